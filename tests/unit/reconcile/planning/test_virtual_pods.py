"""A plan says that it does not know what becomes of Pods on virtual nodes."""

from __future__ import annotations

from typing import Any

from minik8s_modules.reconcile.planning.virtual_pods import on_virtual_nodes

NODES: list[dict[str, Any]] = [
    {"metadata": {"name": "n1"}},
    {"metadata": {"name": "far", "labels": {"type": "virtual-kubelet"}}},
]


def _pod(name: str, node: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": name, "uid": name}, "spec": {"nodeName": node}}


def test_pods_on_machines_are_not_spoken_of() -> None:
    assert [*on_virtual_nodes({"a": _pod("a", "n1"), "gone": None, "waits": _pod("waits", "")}, NODES)] == []


def test_there_is_one_message_a_node() -> None:
    pods: dict[str, Any] = {name: _pod(name, "far") for name in "edcba"}
    (note,) = on_virtual_nodes(pods, NODES)
    assert note.text == (
        "node far is virtual: what its provider does about Pod shop/a, shop/b, shop/c and 2 more is unknown"
    )
    assert len(note.about) >= 5
