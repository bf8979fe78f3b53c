"""Counted devices in a Node: as many as are there, gone with their setting, beside what people have declared."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import NODE
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.module_utils.minik8s.pods.devices import parse
from minik8s_modules.reconcile.nodes.registration import Registrar
from minik8s_modules.reconcile.values.node_file import Declared, declared_of, parse_node_file, with_devices

SETTING: list[dict[str, Any]] = [
    {"resource": "devices.kubevirt.io/kvm", "path": "/dev/kvm", "count": 110},
    {"resource": "nvidia.com/gpu", "paths": ["/dev/nvidia0", "/dev/nvidia1"]},
]
GPU, KVM, DONGLE = "nvidia.com/gpu", "devices.kubevirt.io/kvm", "example.com/dongle"


def told(api: FakeApi, setting: list[dict[str, Any]], present: list[str]) -> dict[str, Any]:
    """Return the Node after a machine with the devices ``present`` has told of itself to a new reconciler."""

    def known(name: str) -> Any:
        return next((one for one in api.list(NODE).items if objects.name(one) == name), None)

    declared = {"n1": Declared(devices=parse(setting, "x"))}
    registrar = Registrar(api, known, lambda _: True, "", SystemClock(), declared=declared)
    registrar.on_facts("n1", {"cpus": 2, "memory_bytes": 1 << 30, "devices": present})
    registrar.write("n1")
    return dict(api.get(NODE, "n1"))


def missing(node: dict[str, Any]) -> Any:
    return objects.condition(node, "minik8s.io/DevicesMissing")


def test_a_node_has_as_many_as_are_there():
    node = told(FakeApi(), SETTING, ["/dev/kvm", "/dev/nvidia1"])
    for side in ("capacity", "allocatable"):
        assert (node["status"][side][KVM], node["status"][side][GPU]) == ("110", "1")
    condition = missing(node)
    assert (condition["status"], condition["reason"]) == ("True", "NoSuchDevice")
    assert condition["message"] == "no devices on this node: nvidia.com/gpu: /dev/nvidia0"


def test_a_device_that_comes_is_counted_and_one_that_goes_is_not():
    api = FakeApi()
    assert (
        told(api, SETTING, [])["status"]["allocatable"] | {KVM: "0", GPU: "0"}
        == api.get(NODE, "n1")["status"]["allocatable"]
    )
    node = told(api, SETTING, ["/dev/kvm", "/dev/nvidia0", "/dev/nvidia1"])
    assert (node["status"]["capacity"][KVM], node["status"]["capacity"][GPU]) == ("110", "2")
    assert missing(node)["status"] == "False"
    assert told(api, SETTING, ["/dev/kvm"])["status"]["capacity"][GPU] == "0"


def test_a_resource_goes_with_its_setting_and_what_people_declared_stays():
    api = FakeApi()
    told(api, SETTING, ["/dev/kvm"])
    api.patch(NODE, "n1", "", {"status": {"capacity": {DONGLE: "2"}}}, subresource="status")
    node = told(api, SETTING[:1], ["/dev/kvm"])
    extended = {name: amount for name, amount in node["status"]["allocatable"].items() if "/" in name}
    assert extended == {KVM: "110", DONGLE: "2"}
    node = told(api, [], [])
    assert {name for name in node["status"]["capacity"] if "/" in name} == {DONGLE}
    assert missing(node) is None
    assert "minik8s.io/devices" not in objects.annotations(node)


def test_what_is_so_is_not_written_again():
    api = FakeApi()
    before = told(api, SETTING, ["/dev/kvm"])
    assert told(api, SETTING, ["/dev/kvm"])["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


def test_a_reconciler_that_has_not_been_told_yet_takes_nothing_away():
    api = FakeApi()
    before = told(api, SETTING, ["/dev/kvm"])
    registrar = Registrar(api, lambda name: api.get(NODE, name), lambda _: True, "", SystemClock())
    registrar.write("n1")
    assert api.get(NODE, "n1")["status"]["capacity"] == before["status"]["capacity"]


def test_an_inventory_and_a_nodes_file_say_it():
    found = with_devices({"n1": Declared(labels={"a": "b"})}, {"n1": {"minik8s_devices": SETTING}, "n2": {}})
    assert found == {"n1": Declared(labels={"a": "b"}, devices=parse(SETTING, "x"))}
    assert declared_of({"n1": found["n1"].as_json()}, "reconciler.yml") == found, "as a node's own reconciler reads it"
    text = "{apiVersion: v1, kind: Node, spec: {devices: [{resource: a.b/c, path: /dev/fuse}]}}"
    (device,) = parse_node_file(text, "node.yml").declared.devices
    assert (device.resource, device.paths, device.amount) == ("a.b/c", ("/dev/fuse",), 1)


def test_a_setting_that_cannot_be_used_names_its_node():
    with pytest.raises(ConfigurationError, match=r"minik8s_devices of n1\[0\]\.resource must be like"):
        with_devices({}, {"n1": {"minik8s_devices": [{"resource": "kvm", "path": "/dev/kvm"}]}})
    with pytest.raises(ConfigurationError, match=r"node.yml: spec.devices must be a list"):
        parse_node_file("{apiVersion: v1, kind: Node, spec: {devices: {a: b}}}", "node.yml")
