"""Every file of tests/cases/decide_node is one decision; the file's name is the sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from minik8s_modules.scheduler.framework.snapshot import Snapshot
from minik8s_modules.scheduler.profiles.deciding import decide_node
from tests.unit.scheduler.worlds import node, placed, pod

CASES = sorted((Path(__file__).parents[2] / "cases" / "decide_node").glob("*.yml"))


def test_there_are_cases():
    assert len(CASES) > 20


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_decide_node(path: Path):
    case = yaml.safe_load(path.read_text())
    nodes = [node(name, **each) for name, each in case["nodes"].items()]
    pods = [placed(number, each) for number, each in enumerate(case.get("pods", []))]
    new = pod("new", **case.get("pod", {}))
    new["metadata"]["labels"] = case.get("labels", {})
    decision = decide_node(new, Snapshot.of(nodes, pods, case.get("turn", 0), case.get("namespaces")))
    expect = case["expect"]
    assert (decision.node, decision.message) == (expect.get("node", ""), expect.get("message", ""))
    if "reasons" in expect:
        assert {name: list(why) for name, why in decision.reasons.items()} == expect["reasons"]
