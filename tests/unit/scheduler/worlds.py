"""Nodes and pods in few words, for the scheduler's tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from minik8s_modules.api.kinds import EVENT, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.fake import FakeApi


def node(name: str, **told: Any) -> JsonObject:
    """Return a ready node with 4 cpus, 8 GiB and 110 pods, changed by ``told``."""
    ready = told.get("ready", "True")
    spec = {key: told[key] for key in ("unschedulable", "taints") if key in told}
    amounts = {"cpu": told.get("cpu", "4"), "memory": told.get("memory", "8Gi"), "pods": str(told.get("pods", 110))}
    return {
        "metadata": {"name": name, "labels": told.get("labels", {})},
        "spec": spec,
        "status": {
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": ready}] if ready else [],
        },
    }


def pod(name: str, **spec: Any) -> JsonObject:
    """Return an unbound pod with one container that asks for nothing, changed by ``spec``."""
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "app"}], **spec},
        "status": {"phase": "Pending"},
    }


def placed(number: int, told: JsonObject) -> JsonObject:
    """Return a bound pod: ``{node, requests, ports, phase, labels, namespace, affinity}``."""
    container = {
        "name": "app",
        "resources": {"requests": told.get("requests", {})},
        "ports": told.get("ports", []),
    }
    made = pod(f"placed-{number}", nodeName=told["node"], containers=[container])
    made["status"]["phase"] = told.get("phase", "Running")
    made["metadata"] |= {"labels": told.get("labels", {}), "namespace": told.get("namespace", "default")}
    made["spec"]["affinity"] = told.get("affinity", {})
    return made


def until(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.005)


def node_of(api: FakeApi, name: str) -> str:
    return str(api.get(POD, name, "default")["spec"].get("nodeName", ""))


def condition_of(api: FakeApi, name: str) -> dict[str, str]:
    conditions = api.get(POD, name, "default")["status"].get("conditions", [])
    return dict(next((each for each in conditions if each["type"] == "PodScheduled"), {}))


def events(api: FakeApi) -> list[tuple[str, str]]:
    return [(event["reason"], event["message"]) for event in api.list(EVENT).items]
