"""A pod cannot come by a device of its node that no administrator has counted for it.

The attacks: a pod writes paths wherever a pod may write, and asks for resources whose names look like paths, or that
somebody who may write a Node's capacity has made up; whoever makes node documents names what is no device; and an image
says by its labels what its containers are to have.
"""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core import labels
from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.pods.container_spec import body_of, normalized
from minik8s_modules.module_utils.minik8s.pods.devices import held
from minik8s_modules.module_utils.minik8s.pods.service_links import forget_links
from minik8s_modules.reconcile.pods.desired import decide_pod
from tests.unit.reconcile.worlds import IMAGE, NODE, T0, UID, inputs, observations, pod

DISK = "/dev/sda"
COUNTED = [{"resource": "example.com/zero", "path": "/dev/zero", "count": 5}]
ALLOCATABLE = {"cpu": "2", "memory": "4Gi", "disk.example.com/sda": "9"}
MADE_UP: dict[str, Any] = {**NODE, "status": {"addresses": [], "allocatable": ALLOCATABLE}}
PATHS = {"minik8s.io/devices": DISK, "devices": DISK, "example.com/zero": DISK}


@pytest.mark.parametrize(
    "limits",
    [{"disk.example.com/sda": "1"}, {"dev/sda": "1"}, {"example.com/zero": "0"}, {"example.com/ZERO": "1"}, {}],
)
def test_what_is_not_counted_is_not_given(limits: dict[str, str]) -> None:
    decided = decide_pod(asking(limits), observations([SANDBOX]), inputs({"devices": COUNTED, "node": MADE_UP}), T0)
    assert "devices" not in decided.entries["containers"][f"{UID}/app"]


def test_a_pods_words_choose_no_path() -> None:
    decided = decide_pod(asking({"example.com/zero": "2"}), observations([SANDBOX]), inputs({"devices": COUNTED}), T0)
    entry = decided.entries["containers"][f"{UID}/app"]
    assert [device["paths"] for device in entry["devices"]] == [["/dev/zero"]]
    assert DISK not in str(entry["devices"])


def test_another_nodes_devices_are_not_given() -> None:
    other = {**NODE, "metadata": {"name": "n2", "uid": "other"}}
    found = inputs({"devices": COUNTED, "node": other})
    decided = decide_pod(asking({"example.com/zero": "1"}), observations([SANDBOX]), found, T0)
    assert "devices" not in decided.entries["containers"][f"{UID}/app"]


@pytest.mark.parametrize("path", ["/etc/shadow", "/", "/proc/kcore", "dev/sda", "/dev/../etc/shadow"])
def test_a_node_takes_no_other_files_for_devices(path: str) -> None:
    device = {"resource": "a.b/c", "count": 1, "paths": [path], "shared": True, "beside": [], "permissions": "rw"}
    entry: dict[str, Any] = {
        "pod": {"uid": UID, "name": "web", "namespace": "default"}, "name": "app", "type": "app", "attempt": 0,
        "sandbox_attempt": 0, "state": "running", "image": IMAGE, "devices": [device],
    }  # fmt: skip
    with pytest.raises(KeyFault, match="must be paths below /dev"):
        normalized(f"{UID}/app", entry)


def test_an_image_says_nothing_of_its_containers_by_our_labels() -> None:
    """Docker gives a container each label of its image that it is not made with, and what stands there is believed."""
    entry: dict[str, Any] = {
        "pod": {"uid": UID, "name": "web", "namespace": "default"}, "name": "app", "type": "app", "attempt": 0,
        "sandbox_attempt": 0, "state": "running", "image": IMAGE,
    }  # fmt: skip
    made = body_of("n1", normalized(f"{UID}/app", entry), "pause", [], {}, b"")["Labels"]
    known = {value for value in vars(labels).values() if isinstance(value, str) and value.startswith(labels.PREFIX)}
    of_sandboxes = {
        labels.HOST_PORTS,
        labels.NETWORK,
    }  # read of pause containers alone, whose image is not a pod's choice
    of_image = dict.fromkeys(known - of_sandboxes - {labels.PREFIX}, DISK)
    merged = {**of_image, **made}
    assert DISK not in merged.values(), merged
    assert held([{"Labels": merged, "State": "running"}]) == []
    assert forget_links_of(merged) == {"env WEB_PORT": "x"}


def forget_links_of(marks: dict[str, str]) -> dict[str, str]:
    """Return what is compared of a container with these labels and a variable that is named like a Service's."""
    facets = {"env WEB_PORT": "x"}
    forget_links({"env": [], "secret_env": []}, {"Labels": marks}, (facets, {}))
    return facets


SANDBOX = {"sandbox": 0, "state": "running", "created": 0}


def asking(limits: dict[str, str]) -> Any:
    """Return a pod with paths in all that it may say of itself."""
    variables = [{"name": "DEVICES", "value": DISK}]
    container = {"name": "app", "image": IMAGE, "env": variables, "resources": {"limits": limits, "requests": limits}}
    return pod({"containers": [container]}, {"annotations": PATHS, "labels": {"minik8s.io/devices": "x"}})
