"""``why pod``: each node with the plugin that objects, or with scores and weights."""

from __future__ import annotations

from typing import Any

from minik8s_modules.api.kinds import NODE, POD
from minik8s_modules.cli.causes.placing import placing
from tests.unit.scheduler.worlds import node, pod


class Known:
    """A cluster that is known already."""

    def __init__(self, **listed: list[Any]) -> None:
        self._listed = listed

    def all(self, kind: Any) -> list[Any]:
        """Return its objects."""
        return self._listed.get(kind.plural, [])


def told(wanted: Any, *nodes: Any) -> list[str]:
    known: Any = Known(**{NODE.plural: list(nodes), POD.plural: [wanted]})
    return list(placing(wanted, known))


def test_nodes_that_fit_come_first_with_their_scores():
    lines = told(pod("p"), node("a", unschedulable=True), node("b"))
    assert lines[0].split() == ["NODE", "FOR", "THIS", "POD"]
    assert lines[1].startswith("b")
    assert "TaintToleration 100 x 3" in lines[1]
    assert lines[2].split("  ")[-1].strip() == "NodeUnschedulable: node(s) were unschedulable"


def test_a_pod_that_has_a_node_or_gates_is_not_weighed():
    assert told(pod("p", nodeName="a"), node("a")) == []
    assert told(pod("p", schedulingGates=[{"name": "a/b"}]), node("a")) == []


def test_no_more_nodes_than_a_screen_holds_are_shown():
    lines = told(pod("p"), *(node(f"n{number:02}") for number in range(30)))
    assert (len(lines), lines[-1]) == (22, "… and 10 nodes more")
