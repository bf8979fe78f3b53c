"""The live run and plain ansible-playbook, from the same dirty node, lead to the same containers, files and links."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core.sections import SECTIONS
from minik8s_modules.reconcile.executor.runner import PLAYBOOK as NODE_PLAYBOOK
from minik8s_modules.reconcile.planning.plain import render_document
from minik8s_modules.reconcile.values.items import SectionRequest, WorkItem
from tests.support.node import SOCKET, TestNode, command

from .conftest import PROJECT, Lab

EVIL = "{{ lookup('pipe','id') }}"
VOLATILE = re.compile(
    r'"(Id|Created|StartedAt|FinishedAt|Pid|SandboxID|SandboxKey|EndpointID|ResolvConfPath|HostnamePath|HostsPath|LogPath'
    r'|LowerDir|MergedDir|UpperDir|WorkDir|ID|Hostname|NetworkMode|IpcMode|PidMode)":'
)


WRITTEN_AT = re.compile(r"\.\.[0-9_.]+")  # Kubernetes' atomic writer names a volume's directory by the time


@pytest.fixture
def node(new_lab: Callable[..., Lab]) -> Iterator[TestNode]:
    with_home = new_lab(start=False)
    made = TestNode(with_home.files)
    yield made
    made.close()


def document(node: TestNode) -> dict[str, Any]:
    """Return a node's document: two pods, a volume of each plain kind, text that looks like a template."""
    pods = [node.pod(number) for number in (7, 8)]
    containers = {}
    for pod in pods:
        mounts = [
            {
                "volume": "conf",
                "kind": "configMap",
                "target": "/conf",
                "read_only": True,
                "sub_path": "",
                "host_path": "",
            }
        ]
        containers[f"{pod['pod']['uid']}/app"] = node.container(pod, env=[["EVIL", EVIL]], mounts=mounts)
    conf = {"files": {"evil": {"data": base64.b64encode(EVIL.encode()).decode(), "mode": 0o644}}, "kind": "configMap"}
    volumes = {f"{pod['pod']['uid']}/conf": conf for pod in pods}
    return {
        "network": node.network(),
        "volumes": volumes,
        "sandboxes": {pod["pod"]["uid"]: pod for pod in pods},
        "containers": containers,
    }


def make_dirty(node: TestNode) -> None:
    """Leave a pod that is not declared, a wrong file, and a declared container that has been stopped by hand."""
    wanted = document(node)
    stray = node.pod(9)
    for section in ("network", "volumes"):
        assert not node.run(section, wanted[section])["errors"]
    sandboxes = {**wanted["sandboxes"], stray["pod"]["uid"]: stray}
    assert not node.run("sandboxes", sandboxes)["errors"]
    assert not node.run("containers", {f"{stray['pod']['uid']}/app": node.container(stray)})["errors"]
    for path in Path(node.state_dir).rglob("evil"):
        if path.is_file() and not path.is_symlink():
            path.write_text("wrong")


def state(node: TestNode) -> dict[str, Any]:
    """Return all that a pass can be seen by, without what differs between any two containers."""
    inspected = json.loads(command("docker", "-H", f"unix://{SOCKET}", "inspect", *node.ids()))
    for each in inspected:
        each["Mounts"].sort(key=lambda mount: str(mount["Destination"]))  # Docker tells them in any order
    lines = {
        each["Name"]: [
            line for line in json.dumps(each, indent=0, sort_keys=True).splitlines() if not VOLATILE.match(line)
        ]
        for each in inspected
    }
    files = {
        WRITTEN_AT.sub("..<time>", str(path.relative_to(node.state_dir))): (
            path.lstat().st_mode,
            path.lstat().st_uid,
            path.read_bytes(),
        )
        for path in sorted(Path(node.state_dir).rglob("*"))
        if path.is_file() and path.name != "node.key"
    }
    text = json.dumps(lines, sort_keys=True)
    for each in node.ids():
        text = text.replace(each, "<id>")
    return {"containers": json.loads(text), "files": files, "links": len(node.links())}


def inventory(node: TestNode) -> dict[str, dict[str, Any]]:
    return {
        node.name: {
            "ansible_connection": "warm_local",
            "ansible_python_interpreter": "/usr/bin/python3",
            "minik8s_docker_socket": SOCKET,
            "minik8s_state_dir": node.state_dir,
            "minik8s_run_dir": node.run_dir,
        }
    }


def plain(lab: Lab, node: TestNode, *options: str) -> str:
    """Run the playbook as a person would and return what it prints."""
    file = lab.home / "document.yml"
    file.write_text(render_document(document(node)))
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    argv = [program, "-i", str(lab.inventory), NODE_PLAYBOOK, "-e", f"@{file}", "--limit", node.name, *options]
    environment = {**os.environ, **lab.environment, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg")}
    done = subprocess.run(argv, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def live(lab: Lab, node: TestNode, *, check: bool = False) -> dict[str, Any]:
    requests = {name: SectionRequest({"entries": entries}) for name, entries in document(node).items()}
    item = WorkItem(f"live-{check}-{len(lab.outcomes)}", node.name, check, (1, 1), requests)
    lab.runner.submit(item)
    outcome = lab.outcome(item.id)
    assert (outcome.status, outcome.message) == ("ok", "")
    assert not any(section["errors"] for section in outcome.sections.values())
    return dict(outcome.sections)


def test_both_paths_lead_to_the_same_node(new_lab: Callable[..., Lab], node: TestNode) -> None:
    lab = new_lab(inventory(node), playbook=NODE_PLAYBOOK)
    states = []
    for path in (live, plain):
        make_dirty(node)
        assert any(section["changed"] for section in live(lab, node, check=True).values())
        path(lab, node)
        assert not any(section["changed"] for section in live(lab, node).values())
        states.append(state(node))
        for section in reversed(document(node)):
            node.run(section, {})
    assert set(states[0]["files"]) == set(states[1]["files"])
    for name, content in states[0]["files"].items():
        assert content == states[1]["files"][name], name
    assert states[0] == states[1]
    assert len(states[0]["containers"]) == 4
    assert EVIL in json.dumps(states[0]["containers"])
    assert EVIL.encode() in [content for _, _, content in states[0]["files"].values()]


def test_both_paths_predict_without_changing(new_lab: Callable[..., Lab], node: TestNode) -> None:
    lab = new_lab(inventory(node), playbook=NODE_PLAYBOOK)
    make_dirty(node)
    before = state(node)
    predicted = live(lab, node, check=True)
    printed = plain(lab, node, "--check", "--diff")
    assert state(node) == before
    assert predicted["containers"]["changed"] is True
    assert "changed=" in printed
    assert "uid=0(root)" not in printed


def test_with_the_live_run_stopped_a_pod_changes_nothing(new_lab: Callable[..., Lab], node: TestNode) -> None:
    lab = new_lab(inventory(node), playbook=NODE_PLAYBOOK, start=False)
    requests = {name: SectionRequest({"entries": entries}) for name, entries in document(node).items()}
    lab.runner.submit(WorkItem("i", node.name, False, (1, 1), requests))  # noqa: FBT003
    assert node.ids() == []
    assert node.links() == set()
    lab.runner.start()
    assert lab.outcome("i").status == "ok"
    events = [event["event_data"] for event in lab.events]
    assert [(event["task"], event["task_action"], event["res"]["minik8s_item"]) for event in events] == [
        (section, f"minik8s_{section}", "i") for section in SECTIONS if section in requests
    ]


def test_a_node_tells_its_facts(new_lab: Callable[..., Lab], node: TestNode) -> None:
    lab = new_lab(inventory(node), playbook=NODE_PLAYBOOK)
    lab.runner.submit(WorkItem("i", node.name, False, (), {"facts": SectionRequest({})}))  # noqa: FBT003
    assert lab.outcome("i").sections["facts"]["facts"]["cpus"] == os.cpu_count()


def test_a_secret_reaches_tmpfs_and_nothing_else(new_lab: Callable[..., Lab], node: TestNode) -> None:
    lab = new_lab(inventory(node), playbook=NODE_PLAYBOOK)
    value = base64.b64encode(b"canary-secret-value").decode()
    blob = base64.b64encode(json.dumps({"default/db": {"password": value}}).encode()).decode()
    entries = {"default/db": {"hmac": "5d41402abc4b2a76", "keys": ["password"]}}
    for number, sections in enumerate(
        (
            {"secrets": SectionRequest({"entries": entries, "blob": blob})},
            {"secrets": SectionRequest({"entries": "no mapping", "blob": blob})},
        )
    ):
        lab.runner.submit(WorkItem(f"i{number}", node.name, False, (1, 1), sections))  # noqa: FBT003
    assert lab.outcome("i0").status == "ok", lab.outcome("i0")
    assert lab.outcome("i1").status == "failed"
    assert Path(node.run_dir, "secrets/default/db/password").read_bytes() == b"canary-secret-value"
    seen = str(lab.events) + str(lab.outcomes)
    for place in (lab.private, lab.warm, Path(node.state_dir)):
        seen += "".join(path.read_bytes().decode("latin-1") for path in place.rglob("*") if path.is_file())
    for secret in ("canary-secret-value", value, blob):
        assert secret not in seen
