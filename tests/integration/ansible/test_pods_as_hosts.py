"""Nodes and pods as hosts of an inventory, and tasks that run inside pods."""

from __future__ import annotations

import hashlib
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api.kinds import NODE, POD
from minik8s_modules.client import exec as execution
from minik8s_modules.client.kubeconfig import load_kubeconfig
from tests.integration.ansible.conftest import Book, ansible
from tests.integration.streams.conftest import Streaming

TEMPLATE = "{{ 6 * 7 }}"


@pytest.fixture(scope="module")
def web(cluster: Streaming) -> dict[str, Any]:
    """A pod with two containers, a label, and an annotation Ansible would love to template; and its node."""
    cluster.admin.create(NODE, {"metadata": {"name": cluster.node.name, "labels": {"disk": "ssd"}}})
    address = {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.9"}]}}
    cluster.admin.patch(NODE, cluster.node.name, "", address, subresource="status")
    made = cluster.pod("web", "sleep 3600", "sleep 3600")
    metadata = {"metadata": {"labels": {"app": "web", "tier": "a-b"}, "annotations": {"note": TEMPLATE}}}
    return cluster.admin.patch(POD, "web", "default", metadata) | {"uid": made["metadata"]["uid"]}


def listed(folder: Path, cluster: Streaming, *arguments: str, **options: Any) -> Any:
    path = folder / "test.minik8s.yml"
    path.write_text(yaml.safe_dump({"plugin": "minik8s", "kubeconfig": str(cluster.server.kubeconfig), **options}))
    text = ansible("ansible-inventory", "-i", str(path), *(arguments or ("--list",))).stdout
    return json.loads(text, object_hook=lambda found: untemplated(found) if "__ansible_unsafe" in found else found)


def untemplated(found: dict[str, str]) -> str:
    """Unwrap a string that Ansible says it never templates."""
    return found["__ansible_unsafe"]


def test_nodes_and_pods_are_hosts_grouped_by_what_they_are(
    cluster: Streaming, web: dict[str, Any], tmp_path: Path
) -> None:
    constructed = {
        "label_selector": "app=web",
        "compose": {"note_length": "minik8s_annotations.note | default('') | length"},
        "keyed_groups": [{"key": "minik8s_labels.tier", "prefix": "tier"}],
        "groups": {"on_pods": "minik8s_kind == 'Pod'"},
        "cache": True,
        "cache_plugin": "ansible.builtin.jsonfile",
        "cache_connection": str(tmp_path / "cache"),
    }
    found = listed(tmp_path, cluster, **constructed)
    node, pod = cluster.node.name, "web.default.pod"
    assert found["minik8s_nodes"]["hosts"] == [node]
    assert found["label_disk_ssd"]["hosts"] == [node]
    for group in ("minik8s_pods", "namespace_default", "label_app_web", "label_tier_a_b", "tier_a_b", "on_pods"):
        assert found[group]["hosts"] == [pod], group
    assert set(found[f"node_{node.replace('-', '_')}"]["hosts"]) == {node, pod}
    result = found["_meta"]["hostvars"]
    assert result[node]["ansible_host"] == "192.0.2.9"
    assert result[pod]["minik8s_annotations"] == {"note": TEMPLATE}
    assert result[pod]["note_length"] == len(TEMPLATE)
    assert (result[pod]["minik8s_container"], result[pod]["minik8s_containers"]) == ("app", ["app", "app1"])
    # the second look is the cache's: a cluster that cannot be asked changes nothing
    assert listed(tmp_path, cluster, **{**constructed, "context": "none"})["minik8s_pods"]["hosts"] == [pod]
    assert list((tmp_path / "cache").iterdir())


def test_a_cluster_that_cannot_be_asked_is_told(tmp_path: Path) -> None:
    path = tmp_path / "minik8s.yml"
    path.write_text(f"{{plugin: minik8s, kubeconfig: {tmp_path}/none}}")
    done = ansible("ansible-inventory", "-i", str(path), "--list", check=False)
    assert f"no kubeconfig at {tmp_path}/none" in done.stderr


def test_tasks_run_inside_pods(cluster: Streaming, web: dict[str, Any], book: Book, tmp_path: Path) -> None:
    inventory = tmp_path / "minik8s.yml"
    inventory.write_text("{plugin: minik8s, nodes: false, label_selector: app=web}")
    script = tmp_path / "a script.sh"
    script.write_text("#!/bin/sh\necho from $(hostname) with $1\n")
    raw: list[dict[str, Any]] = [
        {"ansible.builtin.raw": "hostname; echo told >&2; exit 3", "failed_when": False},
        {"ansible.builtin.raw": "touch /tmp/of-$(echo app1)", "vars": {"minik8s_container": "app1"}},
        {"ansible.builtin.script": {"cmd": "'a script.sh' words"}},
    ]
    found = book.play([{"hosts": "label_app_web", "gather_facts": False, "tasks": raw}], "-i", str(inventory))
    hostname = cluster.kubectl("exec", "web", "--", "hostname").stdout.strip()
    assert (found[0]["rc"], found[0]["stdout"].strip(), found[0]["stderr"].strip()) == (3, hostname, "told")
    assert found[2]["stdout"].strip() == f"from {hostname} with words"
    assert cluster.kubectl("exec", "web", "-c", "app1", "--", "ls", "/tmp").stdout.split() == ["of-app1"]


def test_modules_and_files_work_in_a_pod_with_python(cluster: Streaming, book: Book, tmp_path: Path) -> None:
    machine = [  # this machine's Python, read-only
        {"volume": place, "kind": "hostPath", "target": f"/{place}", "host_path": f"/{place}", "read_only": True}
        for place in ("usr", "lib", "lib64")
    ]
    cluster.pod("python", "sleep 3600", mounts=machine)
    content = os.urandom(200_000)
    (tmp_path / "content").write_bytes(content)
    tasks: list[dict[str, Any]] = [
        {"ansible.builtin.copy": {"src": "content", "dest": "/tmp/it's here", "mode": "0600"}},
        {"ansible.builtin.copy": {"src": "content", "dest": "/tmp/it's here", "mode": "0600"}},
        {"ansible.builtin.fetch": {"src": "/tmp/it's here", "dest": f"{tmp_path}/back", "flat": True}},
        {"ansible.builtin.copy": {"src": "content", "dest": "/nowhere/at/all"}, "ignore_errors": True},
    ]
    variables = {"ansible_connection": "minik8s_pod", "ansible_python_interpreter": "/usr/bin/python3"}
    play = {"hosts": "python", "gather_facts": False, "vars": variables, "tasks": tasks}
    found = book.play([play], "-i", "python,")
    assert [each["changed"] for each in found] == [True, False, True, False]
    assert "/nowhere/at does not exist" in found[3]["msg"]
    assert (tmp_path / "back").read_bytes() == content


def test_what_cannot_be_reached_is_told(cluster: Streaming, web: dict[str, Any], book: Book) -> None:
    tasks = [{"ansible.builtin.raw": "true"}]
    variables = {"ansible_connection": "minik8s_pod"}
    plays = [{"hosts": "all", "gather_facts": False, "vars": variables, "tasks": tasks}]
    book.play(plays, "-i", "gone,", check=False)
    assert 'pod default/gone: pods "gone" not found' in book.printed
    book.play(plays, "-i", "web,", "-e", "minik8s_container=none", check=False)
    assert "UNREACHABLE" in book.printed
    assert "container none is not valid for pod web" in book.printed


def test_large_input_and_output_pass_at_once(cluster: Streaming, web: dict[str, Any]) -> None:
    access = load_kubeconfig(cluster.server.kubeconfig)
    data = random.Random(7).randbytes(8 << 20)
    out = hashlib.sha256()
    err: list[bytes] = []
    program = execution.Program("default", "web", "app", ("cat",))
    chunks = (data[at : at + 300_000] for at in range(0, len(data), 300_000))
    assert execution.run(access, program, out.update, err.append, chunks) == 0
    assert (out.hexdigest(), err) == (hashlib.sha256(data).hexdigest(), [])
    # a program that does not read what it is given ends all the same
    half = execution.Program("default", "web", "app", ("sh", "-c", "head -c 1 >/dev/null; exit 4"))
    assert execution.run(access, half, out.update, err.append, iter([os.urandom(300_000)] * 20)) == 4
