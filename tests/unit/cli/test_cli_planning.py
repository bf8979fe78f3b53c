"""plan's text: what would happen on which node."""

from __future__ import annotations

import io
from typing import Any

from minik8s_modules.cli.output import Paint
from minik8s_modules.cli.planning import has_changes, render

PLAIN = Paint(io.StringIO())
CHANGED: dict[str, Any] = {
    "nodes": {
        "n1": {
            "steps": [{"section": "containers", "action": "create", "key": "u/app", "detail": "minik8s/busybox:1"}],
            "diff": {"containers": {"before": "", "after": "u/app:\n  image: minik8s/busybox:1\n"}},
        },
        "n2": {"steps": [], "diff": {}},
    },
    "messages": ["shard b did not answer"],
}


def test_steps_diff_and_messages_are_shown_for_changed_nodes_only():
    text = render(CHANGED, PLAIN)
    assert "! shard b did not answer" in text
    assert "+ containers: create u/app  minik8s/busybox:1" in text
    assert "+  image: minik8s/busybox:1" in text
    assert "node n2" not in text
    assert text.endswith("1 step on 1 of 2 nodes")


def test_nothing_to_do_is_said():
    assert render({"nodes": {"n1": {"steps": []}}}, PLAIN) == "no changes"
    assert not has_changes({"nodes": {"n1": {"steps": []}}})
    assert has_changes(CHANGED)


def test_a_plan_that_no_node_answered_is_not_called_free_of_changes():
    text = render({"nodes": {}, "messages": ["no reconciler is running"]}, PLAIN)
    assert "no reconciler is running" in text
    assert "nothing is known" in text
    assert "no changes" not in text


def test_what_one_may_not_read_is_counted():
    nodes = {"n1": {**CHANGED["nodes"]["n1"], "hidden": 2}, "n2": {"steps": [], "diff": {}, "hidden": 1}}
    text = render({"nodes": nodes, "messages": [], "hidden": {"messages": 3, "order": 1}}, PLAIN)
    assert "! messages about objects you may not read: 3" in text
    assert "  2 changes to objects you may not read" in text
    assert "node n2\n  1 change to objects you may not read" in text
    assert text.endswith("4 steps on 2 of 2 nodes")
    assert has_changes({"nodes": {"n2": nodes["n2"]}})
