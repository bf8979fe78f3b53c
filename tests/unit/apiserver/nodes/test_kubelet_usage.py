"""What kubelets say of their use, in the words of gateways; what cannot be read is left out."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from minik8s_modules.api.errors import ServiceUnavailable
from minik8s_modules.apiserver.nodes import kubelets as kubelets_module
from minik8s_modules.apiserver.nodes.kubelet_usage import of_kubelets, usage_of
from minik8s_modules.apiserver.nodes.kubelets import Kubelet, KubeletAnswer

AT = "2026-01-01T00:00:10Z"


def _used(cores: Any = 5, memory: Any = 7) -> dict[str, Any]:
    return {
        "cpu": {"time": AT, "usageNanoCores": cores, "usageCoreNanoSeconds": 9},
        "memory": {"workingSetBytes": memory},
    }


SUMMARY = {
    "node": {"nodeName": "far", **_used(100, 200)},
    "pods": [
        {
            "podRef": {"namespace": "ns", "name": "web", "uid": "u"},
            "containers": [{"name": "app", **_used()}, {"name": "broken", "cpu": {}}],
        }
    ],
}


def test_a_summary_says_what_node_and_containers_use() -> None:
    usage = usage_of(SUMMARY)
    assert usage["machine"]["cpu_nanocores"] == 100
    (row,) = usage["containers"]
    assert (row["namespace"], row["pod"], row["pod_uid"], row["container"]) == ("ns", "web", "u", "app")
    assert row["usage"] == {
        "timestamp_s": 1767225610.0,
        "window_s": 10.0,
        "cpu_nanocores": 5,
        "cpu_nanoseconds": 9,
        "memory_bytes": 7,
    }


@pytest.mark.parametrize(
    "summary",
    [None, [], "x", {}, {"node": 3, "pods": 4}, {"pods": [5, {"podRef": 1}, {"podRef": {}, "containers": [None]}]},
     {"node": _used("many")}, {"node": {"cpu": {"time": "now", "usageNanoCores": 1}}}],
)  # fmt: skip
def test_what_cannot_be_read_is_left_out(summary: Any) -> None:
    assert usage_of(summary) == {"machine": None, "containers": []}


class _Item:
    def __init__(self, name: str, ready: str) -> None:
        self.object = {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


class _Cache:
    """Nodes: one that is ready, one that is silent, one that lies, one that has no kubelet."""

    items = (_Item("far", "True"), _Item("silent", "Unknown"), _Item("liar", "True"), _Item("machine", "True"))

    def list(self, _prefix: str) -> _Cache:
        return self


class _Kubelets:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def of(self, _cache: object, node: str) -> Kubelet | None:
        if node == "liar":
            raise ServiceUnavailable("it is nowhere")
        return None if node == "machine" else Kubelet(node, "192.0.2.7", 10250)


def test_only_nodes_that_are_ready_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    kubelets: Any = _Kubelets()

    def get(_kubelets: object, kubelet: Kubelet, _path: str) -> KubeletAnswer:
        kubelets.asked.append(kubelet.node)
        return KubeletAnswer("application/json", orjson.dumps(SUMMARY))

    monkeypatch.setattr(kubelets_module, "get", get)
    cache: Any = _Cache()
    assert of_kubelets(cache, kubelets).keys() == {"far"}
    assert kubelets.asked == ["far"]
    assert of_kubelets(cache, None) == {}
