"""A pod's own status is no news to a decision: what it made of an observation it makes again, whoever wrote it down."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from minik8s_modules.reconcile.loop.changed_pods import is_news
from minik8s_modules.reconcile.pods.desired import decide_pod
from minik8s_modules.reconcile.status.status import Place, pod_status
from tests.unit.reconcile.worlds import at, inputs, observations, pod

CASES = sorted((Path(__file__).parents[3] / "cases" / "decide_pod").glob("*.yml"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem.replace("-", " "))
def test_a_decision_that_finds_its_own_status_is_the_same(path: Path):
    case = yaml.safe_load(path.read_text())
    now = at(case.get("now", 10))
    assert now is not None
    before, seen = pod(**case.get("pod", {})), observations(case.get("observed", []))
    given = inputs(case.get("inputs", {}))
    decision = decide_pod(before, seen, given, now)
    place = Place("192.0.2.10", "10.244.0.2" if seen.sandbox and seen.sandbox.alive else "")
    after = {**before, "status": pod_status(before, seen, decision, place, now)}
    if not is_news(before, after):
        assert decide_pod(after, seen, given, now) == decision
        gone = seen._replace(containers={})  # somebody removed them meanwhile
        assert decide_pod(after, gone, given, now) == decide_pod(before, gone, given, now)
