"""Objects as hosts, and the documentation of the plugins for a cluster's own objects."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from minik8s_modules.plugins.cluster import hosts

REPOSITORY = Path(__file__).parents[3]


def pod(**metadata: object) -> dict[str, object]:
    spec = {"nodeName": "n-1", "containers": [{"name": "a"}, {"name": "b"}]}
    return {"metadata": {"name": "web.0", "namespace": "shop", **metadata}, "spec": spec, "status": {}}


def test_a_pods_name_holds_its_namespace_and_its_container_is_kubectls_choice() -> None:
    chosen = {"kubectl.kubernetes.io/default-container": "b"}
    first, second, third = hosts.pod_hosts([pod(), pod(annotations=chosen), pod(annotations={**chosen, **_wrong()})])
    assert first.name == "web.0.shop.pod"
    assert [each.variables["minik8s_container"] for each in (first, second, third)] == ["a", "b", "a"]


def _wrong() -> dict[str, str]:
    return {"kubectl.kubernetes.io/default-container": "gone"}


def test_groups_are_kind_namespace_node_and_labels() -> None:
    (found,) = hosts.pod_hosts([pod(labels={"app": "web", "empty": ""})])
    assert found.groups == ("minik8s_pods", "namespace_shop", "node_n-1", "label_app_web", "label_empty")


def test_a_node_without_an_address_has_none() -> None:
    addresses = [{"type": "InternalIP", "address": "192.0.2.1"}, {"type": "InternalIP", "address": "fd00::1"}]
    ready = {"type": "Ready", "status": "True"}
    bare, whole = hosts.node_hosts(
        [
            {"metadata": {"name": "n"}, "spec": {"unschedulable": True}},
            {"metadata": {"name": "m"}, "status": {"addresses": addresses, "conditions": [ready]}},
        ]
    )
    assert "ansible_host" not in bare.variables
    assert (bare.variables["minik8s_unschedulable"], bare.variables["minik8s_ready"]) == (True, False)
    assert (whole.variables["ansible_host"], whole.variables["minik8s_ready"]) == ("192.0.2.1", True)


@pytest.mark.parametrize(("kind", "name"), [("inventory", "minik8s"), ("connection", "minik8s_pod")])
def test_ansible_doc_shows_the_plugins_with_examples(kind: str, name: str) -> None:
    environment = {**os.environ, "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg")}
    argv = [str(Path(sys.executable).parent / "ansible-doc"), "-t", kind, "--json", name]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)[name]
    options = shown["doc"]["options"]
    assert all(option.get("description") for option in options.values())
    for document in yaml.safe_load_all(shown["examples"]):
        if kind == "inventory":
            assert set(document) <= set(options)
