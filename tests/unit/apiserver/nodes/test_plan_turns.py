"""A plan takes two turns with a reconciler whose controllers would make Pods; none of them waits for another."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from minik8s_modules.api.kinds import LEASE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.settings import TlsFiles
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.nodes import planned_pods, plans, reconcilers
from minik8s_modules.apiserver.nodes.reconcilers import ENDPOINT, Endpoint, HttpsReconcilers
from minik8s_modules.apiserver.verbs import writing
from minik8s_modules.reconcile.planning.planserver import CALLER, PlanFiles, PlanServer
from tests.support.pki import Authority
from tests.unit.apiserver.nodes.test_planned_pods import deployment, prepare

MADE: JsonObject = {"metadata": {"generateName": "web-"}, "spec": {"containers": [{"name": "c", "image": "web:1"}]}}
COMES: JsonObject = {"action": "create", "pod": "shop/web-1", "node": "a", "owner": "ReplicaSet/web", "about": []}


class Shards:
    """Reconcilers that say first which pods would be made; those of ``silent`` answer only once all others have.

    Attributes:
        turns: of each, whether it was told what admission makes of them.
    """

    def __init__(self, made: JsonObject, silent: str = "", *, outdated: bool = False) -> None:
        self.made, self.silent, self.outdated = made, silent, outdated
        self.turns: dict[str, list[bool]] = {}
        self._answered = threading.Event()

    def ask(self, endpoint: Endpoint, question: JsonObject, within_s: float) -> JsonObject:
        """Return an answer."""
        assert within_s > 0
        lease, told = endpoint.lease, "admission" in question
        self.turns.setdefault(lease, []).append(told)
        if lease == self.silent:
            assert self._answered.wait(60), "a reconciler that is silent holds up another"
        elif told:
            self._answered.set()
        if self.outdated or told:
            return {"nodes": {}, "messages": [], "order": [COMES]}
        return {"nodes": {}, "messages": [], "made": self.made}

    def metrics(self, endpoint: Endpoint, node: str) -> str | None:
        """Return nothing."""
        raise NotImplementedError(endpoint, node)


def plan(backend: Backend, options: Options, shards: Shards) -> JsonObject:
    """Return the status of a plan that two reconcilers are asked for."""
    prepare(backend, options)
    meta = {"name": "s1", "annotations": {ENDPOINT: "https://s1:1"}}
    writing.create(backend, Target(LEASE, "kube-system"), {"metadata": meta, "spec": {}}, options)
    found: JsonObject = plans.answer(backend, shards, {"spec": {"objects": [deployment(1)]}}, options)["status"]
    return found


def test_each_reconciler_has_its_turns_whatever_others_do(backend: Backend, options: Options):
    shards = Shards({"k": MADE}, silent="s0")
    assert plan(backend, options, shards)["messages"] == []
    assert shards.turns == {"s0": [False, True], "s1": [False, True]}


def test_a_pod_that_several_reconcilers_tell_is_admitted_once(
    backend: Backend, options: Options, monkeypatch: pytest.MonkeyPatch
):
    seen = list[str]()

    def admitted(*asked: object) -> JsonObject:
        seen.append(str(asked[2]))
        return {"pod": MADE}

    monkeypatch.setattr(planned_pods, "_admitted", admitted)
    plan(backend, options, Shards({"k": MADE, "l": {**MADE, "spec": {}}}))
    assert len(seen) == 2


def test_a_reconciler_of_a_former_release_is_named(backend: Backend, options: Options):
    status = plan(backend, options, Shards({}, outdated=True))
    assert len(status["order"]) == 1
    why = "is older than this API server: it shows new Pods of workloads without admission"
    assert status["messages"] == [f"reconciler s0 {why}", f"reconciler s1 {why}"]


class Endless(Shards):
    """Reconcilers that come to other Pods with each answer, while they are asked for them; ``after_s`` each time."""

    def __init__(self, clock: list[float], after_s: float) -> None:
        super().__init__({})
        self.clock, self.after_s, self.questions = clock, after_s, list[JsonObject]()

    def ask(self, endpoint: Endpoint, question: JsonObject, within_s: float) -> JsonObject:
        """Return an answer."""
        assert endpoint.lease
        self.questions.append(question)
        self.clock[0] += min(self.after_s, within_s)
        if "admits" in question or "further" in question:
            number = len(self.questions)
            return {"nodes": {}, "messages": [], "made": {str(number): {**MADE, "spec": {"number": number}}}}
        return {"nodes": {}, "messages": [], "order": [COMES]}


@pytest.mark.parametrize(("after_s", "answers"), [(1.0, 6), (20.0, 3), (40.0, 2), (100.0, 2)])
def test_turns_end_with_an_answer_before_the_deadline_of_a_request(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, after_s: float, answers: int
):
    clock = [1000.0]
    monkeypatch.setattr(reconcilers, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    shards, known = Endless(clock, after_s), list[str]()

    def admit(made: JsonObject, _around: object, until_s: float) -> JsonObject:
        assert until_s < 1000 + 45
        known.extend(made)
        return {"pods": {key: {} for key in known}, "quotas": []}

    shard = Endpoint("s0", "https://s0:1")
    found = reconcilers._ask_in_turns(shards, shard, {"objects": [], "nodes": []}, admit, clock[0])
    assert found["order"] == [COMES]
    assert len(shards.questions) == answers
    assert clock[0] <= 1000 + 50  # what nodes with reconcilers of their own need comes yet
    assert [*shards.questions[-1]["admission"]["pods"]] == known
    assert [len(each["admission"]["pods"]) for each in shards.questions[1:-1]] == [*range(1, answers - 1)]


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"made": []}, "pods that are none"),
        ({"made": {"k": "pod"}}, "pods that are none"),
        ({"made": {"k": {"spec": {}}}}, "pods that are none"),
        ({"made": {"k": {"metadata": "web"}}}, "pods that are none"),
        ({"made": {}, "around": {}}, "ServiceAccounts that are none"),
        ({"made": {}, "around": ["account"]}, "ServiceAccounts that are none"),
        ({"made": {}, "around": [{"metadata": "account"}]}, "ServiceAccounts that are none"),
    ],
)
def test_objects_of_another_form_are_no_answer(tmp_path: Path, told: JsonObject, why: str):
    authority = Authority(tmp_path, "cluster")
    own = authority.issue("own", "own")
    files = PlanFiles(own.cert, own.key, authority.ca)
    server = PlanServer("127.0.0.1", 0, files, lambda _: {"nodes": {}, "messages": [], **told})
    server.start()
    caller = authority.issue("caller", CALLER)
    try:
        asker = HttpsReconcilers(TlsFiles(caller.cert, caller.key, authority.ca))
        with pytest.raises(ValueError, match=why):
            asker.ask(Endpoint("s0", f"https://127.0.0.1:{server.port}"), {"objects": [], "nodes": []}, 60.0)
    finally:
        server.stop()
