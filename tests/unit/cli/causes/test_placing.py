"""``why pod``: each node with the plugin that objects, or with scores and weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from minik8s_modules.api.kinds import NODE, POD
from minik8s_modules.cli.causes.placing import placing
from minik8s_modules.scheduler.profiles.published import ANNOTATION
from tests.unit.scheduler.worlds import node, pod


class Known:
    """A cluster that is known already."""

    def __init__(self, **listed: list[Any]) -> None:
        self._listed, self.unread, self.client = listed, set[str](), None

    def all(self, kind: Any, namespace: str = "") -> list[Any]:
        """Return its objects."""
        found = self._listed.get(kind.plural, [])
        return [one for one in found if not namespace or one["metadata"].get("namespace", namespace) == namespace]


def shown(wanted: Any, *nodes: Any, unread: Sequence[str] = (), **others: list[Any]) -> list[str]:
    known: Any = Known(**{NODE.plural: list(nodes), POD.plural: [wanted], **others})
    known.unread |= set(unread)
    return list(placing(wanted, known))


def lease(*profiles: Any) -> Any:
    """Return the Lease of a scheduler that runs with ``profiles``."""
    body = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    text = json.dumps({**body, "profiles": profiles})
    return {"metadata": {"name": "minik8s-scheduler", "namespace": "kube-system", "annotations": {ANNOTATION: text}}}


def test_nodes_that_fit_come_first_with_their_scores():
    lines = shown(pod("p"), node("a", unschedulable=True), node("b"))
    assert lines[0].split() == ["NODE", "FOR", "THIS", "POD"]
    assert lines[1].startswith("b")
    assert "TaintToleration 100 x 3" in lines[1]
    assert lines[2].split("  ")[-1].strip() == "NodeUnschedulable: node(s) were unschedulable"


def test_a_pod_that_has_a_node_or_gates_is_not_weighed():
    assert shown(pod("p", nodeName="a"), node("a")) == []
    assert shown(pod("p", schedulingGates=[{"name": "a/b"}]), node("a")) == []


def test_no_more_nodes_than_a_screen_holds_are_shown():
    lines = shown(pod("p"), *(node(f"n{number:02}") for number in range(30)))
    assert (len(lines), lines[-1]) == (22, "… and 10 nodes more")


def test_nodes_are_weighed_as_the_clusters_scheduler_is_configured():
    only = {"score": {"enabled": [{"name": "ImageLocality", "weight": 7}], "disabled": [{"name": "*"}]}}
    lines = shown(pod("p"), node("a"), leases=[lease({"schedulerName": "default-scheduler", "plugins": only})])
    assert lines[1].split(maxsplit=1)[1].strip() == "fits, 0: ImageLocality 0 x 7"


def test_a_profile_that_cannot_be_replayed_is_told():
    absent = {"multiPoint": {"enabled": [{"name": "NowhereInstalled"}]}}
    known = [lease({"schedulerName": "default-scheduler", "plugins": absent})]
    (line,) = shown(pod("p"), node("a"), leases=known)
    assert line.startswith("the decision of scheduler default-scheduler cannot be predicted here: ")
    assert "there is no plugin NowhereInstalled" in line
    assert shown(pod("p", schedulerName="other"), node("a"), leases=known) == ["it waits for a scheduler named other"]


def test_what_may_not_be_read_is_left_out_and_told():
    lines = shown(pod("p"), node("a"), unread=["leases", "services", "namespaces", "secrets"])
    assert lines[-2].startswith("as a scheduler without a configuration decides")
    assert lines[-1] == "without what may not be read: namespaces, services"
