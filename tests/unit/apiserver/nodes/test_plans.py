"""Plans: objects become operations, every reconciler is asked, nothing is stored."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import CONFIG_MAP, LEASE, NAMESPACE, NODE, POD, SECRET, SERVICE, Kind
from minik8s_modules.api.merging.apply import annotated
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.authorization.authorization import Access, Requester
from minik8s_modules.apiserver.authorization.identity import MASTERS, User
from minik8s_modules.apiserver.authorization.policy import Rbac
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.nodes import plans
from minik8s_modules.apiserver.nodes.reconcilers import ENDPOINT, Endpoint, endpoints, metrics_of
from minik8s_modules.apiserver.verbs import writing

DIFF = {"diff": {"containers": {"before": {"k": None}, "after": {"k": {"is": "x"}}}}, "steps": [{"action": "create"}]}
SHOWN = {"diff": {"containers": {"before": "", "after": "k:\n  is: x\n"}}, "steps": [{"action": "create"}]}


def note_of(text: str) -> JsonObject:
    return {"text": text, "about": []}


class RecordedReconcilers:
    """Remembers the questions and gives each shard's answer; an exception is raised."""

    def __init__(self, answers: dict[str, JsonObject | Exception] | None = None) -> None:
        self.answers = answers or {}
        self.questions: dict[str, JsonObject] = {}

    def ask(self, endpoint: Endpoint, question: JsonObject, within_s: float) -> JsonObject:
        """Return the answer of the endpoint's Lease."""
        assert within_s > 0
        self.questions[endpoint.lease] = question
        answer = self.answers.get(endpoint.lease, {"nodes": {}, "messages": []})
        if isinstance(answer, Exception):
            raise answer
        return answer

    def metrics(self, endpoint: Endpoint, node: str) -> str | None:
        """Return what the endpoint's Lease counted of the node, None where it has no such node."""
        answer = self.answers.get(endpoint.lease, {})
        if isinstance(answer, Exception):
            raise answer
        counted: dict[str, str] = answer.get("metrics", {})
        return counted.get(node)


def _pod(name: str = "web", **metadata: Any) -> JsonObject:
    spec = {"containers": [{"name": "c", "image": "busybox"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def _lease(backend: Backend, options: Options, name: str) -> None:
    meta = {"name": name, "annotations": {ENDPOINT: f"https://{name}:1"}}
    writing.create(backend, Target(LEASE, "kube-system"), {"metadata": meta, "spec": {}}, options)


def _store(backend: Backend, options: Options, kind: Kind, obj: JsonObject) -> None:
    writing.create(backend, Target(kind, "default"), obj, options)


def _operations(backend: Backend, options: Options, **spec: Any) -> list[JsonObject]:
    if not endpoints(backend.cache):
        _lease(backend, options, "s0")
    reconcilers = RecordedReconcilers()
    before = backend.cache.revision
    plans.answer(backend, reconcilers, {"spec": spec}, options)
    assert backend.cache.revision == before
    found: list[JsonObject] = reconcilers.questions["s0"]["objects"]
    return found


def test_a_new_object_is_completed_as_create_would(backend: Backend, options: Options):
    (operation,) = _operations(backend, options, objects=[_pod()])
    assert operation["operation"] == "create"
    assert operation["object"]["spec"]["restartPolicy"] == "Always"
    assert operation["object"]["metadata"]["uid"]
    assert operation["object"]["status"]["phase"] == "Pending"


def test_an_existing_object_is_merged_as_apply_would(backend: Backend, options: Options):
    _store(backend, options, POD, annotated(_pod(labels={"old": "x", "kept": "x"})))
    (operation,) = _operations(backend, options, objects=[_pod(labels={"kept": "x", "new": "y"})])
    assert operation["operation"] == "update"
    assert operation["object"]["metadata"]["labels"] == {"kept": "x", "new": "y"}


def test_what_would_change_nothing_is_left_out(backend: Backend, options: Options):
    _store(backend, options, POD, annotated(_pod()))
    (operation,) = _operations(backend, options, objects=[_pod(), _pod("other")])
    assert operation["object"]["metadata"]["name"] == "other"


def test_when_nothing_would_change_nobody_is_asked_for_drift(backend: Backend, options: Options):
    _store(backend, options, POD, annotated(_pod()))
    writing.create(backend, Target(NODE), {"metadata": {"name": "n1"}}, options)
    _lease(backend, options, "s0")
    reconcilers = RecordedReconcilers()
    plan = plans.answer(backend, reconcilers, {"spec": {"objects": [_pod()]}}, options)
    # every node counts as looked at, so that nobody takes it for an outage
    nodes: JsonObject = {"n1": {"diff": {}, "steps": []}}
    assert (plan["status"], reconcilers.questions) == ({"nodes": nodes, "messages": []}, {})


def test_a_node_that_no_reconciler_has_is_told_in_the_drift(backend: Backend, options: Options):
    for node in ("n1", "n2", "n3"):
        writing.create(backend, Target(NODE), {"metadata": {"name": node}}, options)
    _lease(backend, options, "s0")
    answers: dict[str, JsonObject | Exception] = {
        "s0": {
            "nodes": {"n1": {"diff": {}, "steps": []}},
            "messages": [note_of("node n2 does not answer") | {"node": "n2"}, note_of("Pod a/b: node n3 has no room")],
        }
    }
    status = plans.answer(backend, RecordedReconcilers(answers), {"spec": {}}, options)["status"]
    assert status["messages"] == [
        "node n2 does not answer",
        "Pod a/b: node n3 has no room",
        "node n3 was not planned: no reconciler that answered has it in its inventory",
    ]


def test_deletions(backend: Backend, options: Options):
    _store(backend, options, POD, _pod())
    _lease(backend, options, "s0")
    reconcilers = RecordedReconcilers()
    plan = plans.answer(backend, reconcilers, {"spec": {"deleted": [_pod(), _pod("nobody")]}}, options)
    (operation,) = reconcilers.questions["s0"]["objects"]
    assert (operation["operation"], operation["object"]["metadata"]["name"]) == ("delete", "web")
    assert plan["status"]["messages"] == ['pods "nobody" not found']


def test_a_namespace_that_would_go_is_shown_as_terminating(backend: Backend, options: Options):
    namespace: JsonObject = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    writing.create(backend, Target(NAMESPACE), namespace, options)
    (operation,) = _operations(backend, options, deleted=[namespace])
    assert operation["operation"] == "update"
    assert operation["object"]["metadata"]["deletionTimestamp"]


def _status(backend: Backend, options: Options, **spec: Any) -> JsonObject:
    status: JsonObject = plans.answer(backend, RecordedReconcilers(), {"spec": spec}, options)["status"]
    return status


def _config(name: str, data: dict[str, str], **metadata: Any) -> JsonObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": data}


SHOP: JsonObject = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}


def test_a_namespace_and_what_goes_into_it(backend: Backend, options: Options):
    operations = _operations(backend, options, objects=[SHOP, _pod(namespace="shop")])
    assert [operation["operation"] for operation in operations] == ["create", "create"]
    (row,) = _status(backend, options, objects=[_pod(namespace="other")])["objects"]
    assert (row["action"], row["message"]) == ("refuse", 'namespaces "other" not found')


def test_each_object_is_planned_with_those_before_it(backend: Backend, options: Options):
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "clerk", "namespace": "shop"}}
    pod = _pod(namespace="shop")
    pod["spec"]["serviceAccountName"] = "clerk"
    twice = [_config("c", {"a": "1"}, namespace="shop"), _config("c", {"a": "2"}, namespace="shop")]
    requester = Requester(User("root", (MASTERS,)), Access(Rbac(backend.cache)), {})
    options = options._replace(requester=requester)  # admission is for writes of somebody
    rows = _status(backend, options, objects=[SHOP, account, pod, *twice])["objects"]
    assert [row["action"] for row in rows] == ["create", "create", "create", "create", "update"]
    alone = _status(backend, options, objects=[SHOP, pod, account])["objects"]
    assert [row["action"] for row in alone] == ["create", "refuse", "create"]
    assert 'service account shop/clerk: serviceaccount "clerk" not found' in alone[1]["message"]


def test_services_of_one_plan_have_an_address_and_a_node_port_each(backend: Backend, options: Options):
    spec = {"type": "NodePort", "ports": [{"port": 80}]}
    both = [{"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec} for name in ("a", "b")]
    planned = [row["after"]["spec"] for row in _status(backend, options, objects=both)["objects"]]
    for each in both:
        _store(backend, options, SERVICE, each)
    stored = [backend.get(Target(SERVICE, "default", name)).object["spec"] for name in ("a", "b")]
    for places in (planned, stored):
        assert (
            len({each["clusterIP"] for each in places}) == len({each["ports"][0]["nodePort"] for each in places}) == 2
        )
    assert [each["clusterIP"] for each in planned] == [each["clusterIP"] for each in stored]


def test_an_object_that_would_be_refused_is_told_and_hides_nothing(backend: Backend, options: Options):
    bad = _pod()
    bad["spec"]["containers"][0].pop("image")
    first, refused, last = _status(backend, options, objects=[_pod("a"), bad, _pod("b")])["objects"]
    assert (first["action"], last["action"]) == ("create", "create")
    assert (refused["action"], "spec.containers[0].image" in refused["message"]) == ("refuse", True)
    assert "after" not in refused


def test_a_new_object_with_a_resource_version_would_be_refused(backend: Backend, options: Options):
    (refused,) = _status(backend, options, objects=[_pod("a", resourceVersion="5")])["objects"]
    assert (refused["action"], "resourceVersion should not be set" in refused["message"]) == ("refuse", True)


def test_what_cannot_be_read_is_refused_with_its_place(backend: Backend, options: Options):
    unknown = {"apiVersion": "example.com/v1", "kind": "Unicorn", "metadata": {"name": "a"}}
    with pytest.raises(StatusError) as refused:
        _status(backend, options, objects=[_pod(), unknown])
    assert refused.value.message.startswith("spec.objects[1]: no matches for kind")
    misspelt = _pod()
    misspelt["spec"]["terminationGracePeriod"] = 1
    with pytest.raises(StatusError, match=r'unknown field "spec\.terminationGracePeriod"'):
        _status(backend, options, objects=[misspelt])


def test_a_plan_that_is_made_again_is_the_same(backend: Backend, options: Options):
    template = {"spec": {"containers": [{"name": "c", "image": "busybox"}], "restartPolicy": "Never"}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}}
    requester = Requester(User("root", (MASTERS,)), Access(Rbac(backend.cache)), {})
    objects = [SHOP, _pod(), _pod(namespace="shop"), job, {**_pod(""), "metadata": {"generateName": "p-"}}]
    first, second = (
        _status(backend, options._replace(requester=requester), objects=copy.deepcopy(objects)) for _ in range(2)
    )
    assert [row["action"] for row in first["objects"]] == ["create"] * 5
    assert first == second
    assert [row["name"] for row in first["objects"] if row.get("nameUnknown")] == [first["objects"][-1]["name"]]


def test_objects_are_shown_as_they_are_and_would_be(backend: Backend, options: Options):
    _store(backend, options, CONFIG_MAP, annotated(_config("c", {"a": "1", "b": "1"})))
    new, changed = _status(backend, options, objects=[_config("new", {"a": "1"}), _config("c", {"a": "2"})])["objects"]
    assert (new["action"], new["namespace"], new["name"]) == ("create", "default", "new")
    assert (new["after"]["data"], "before" in new, "resourceVersion" in new) == ({"a": "1"}, False, False)
    live = backend.cache.get(CONFIG_MAP.key("default", "c"))
    assert live is not None
    assert (changed["action"], changed["resourceVersion"]) == ("update", str(live.revision))
    assert (changed["before"]["data"], changed["after"]["data"]) == ({"a": "1", "b": "1"}, {"a": "2"})
    assert "annotations" not in {**changed["before"]["metadata"], **changed["after"]["metadata"]}


def test_an_object_that_only_learns_what_was_applied_is_no_change(backend: Backend, options: Options):
    _store(backend, options, CONFIG_MAP, _config("c", {"a": "1"}))
    assert "objects" not in _status(backend, options, objects=[_config("c", {"a": "1"})])


def test_values_of_secrets_are_in_no_plan(backend: Backend, options: Options):
    secret: JsonObject = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"p": "Y2FuYXJ5"}}
    _store(backend, options, SECRET, annotated(secret))
    changed = _status(backend, options, objects=[{**secret, "data": {"p": "b3RoZXI="}}], deleted=[secret])
    assert [row["action"] for row in changed["objects"]] == ["update", "delete"]
    assert (changed["objects"][0]["before"]["data"], changed["objects"][0]["after"]["data"]) == (
        {"p": "hidden"},
        {"p": "hidden (changed)"},
    )
    assert not [value for value in ("Y2FuYXJ5", "b3RoZXI=") if value in str(changed)]


def test_what_a_deletion_takes_along_is_told(backend: Backend, options: Options):
    writing.create(backend, Target(NAMESPACE), SHOP, options)
    writing.create(backend, Target(CONFIG_MAP, "shop"), _config("a", {}), options)
    live = backend.cache.get(CONFIG_MAP.key("shop", "a"))
    assert live is not None
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": live.object["metadata"]["uid"]}
    writing.create(backend, Target(CONFIG_MAP, "shop"), _config("below", {}, ownerReferences=[owner]), options)
    writing.create(backend, Target(CONFIG_MAP, "shop"), _config("beside", {}), options)

    def reported(deleted: JsonObject) -> list[tuple[str, str]]:
        rows = _status(backend, options, deleted=[deleted])["objects"]
        assert {row["action"] for row in rows} == {"delete"}
        return [(row["name"], row.get("because", "")) for row in rows]

    assert reported(_config("a", {}, namespace="shop")) == [("a", ""), ("below", "ConfigMap/a")]
    assert reported(SHOP) == [
        (name, "Namespace/shop" if name != "shop" else "") for name in ("shop", "a", "below", "beside")
    ]


def test_answers_are_merged_and_who_does_not_answer_is_named(backend: Backend, options: Options):
    for name in ("s0", "s1", "s2"):
        _lease(backend, options, name)
    reconcilers = RecordedReconcilers({
        "s0": {"nodes": {"n0": DIFF}, "messages": [note_of("told")]},
        "s1": OSError("connection refused"),
        "s2": {"nodes": {"n2": DIFF}, "messages": []},
    })  # fmt: skip
    status = plans.answer(backend, reconcilers, {"spec": {"nodes": ["n0", "n2"]}}, options)["status"]
    assert status["nodes"] == {"n0": SHOWN, "n2": SHOWN}
    assert status["messages"] == ["told", "reconciler s1 at https://s1:1 did not answer: connection refused"]
    assert reconcilers.questions["s0"] == {"objects": [], "nodes": ["n0", "n2"]}


def test_without_a_reconciler_the_plan_says_so(backend: Backend, options: Options):
    status = plans.answer(backend, RecordedReconcilers(), {"spec": {}}, options)["status"]
    assert "no reconciler is running" in status["messages"][0]
    status = plans.answer(backend, None, {"spec": {}}, options)["status"]
    assert "reconciler_client" in status["messages"][0]


def test_a_lease_without_an_endpoint_is_nobody(backend: Backend, options: Options):
    writing.create(backend, Target(LEASE, "kube-system"), {"metadata": {"name": "other"}, "spec": {}}, options)
    _store(backend, options, CONFIG_MAP, {"metadata": {"name": "c"}})
    assert endpoints(backend.cache) == []


ALONE = "minik8s-reconciler-node.n1"


def test_a_node_of_its_own_is_told_its_part_and_nothing_else(backend: Backend, options: Options):
    for lease in ("s0", ALONE):
        _lease(backend, options, lease)
    part: JsonObject = {"pods": {}}
    reconcilers = RecordedReconcilers({
        "s0": {"nodes": {"n0": DIFF}, "messages": [note_of("told")], "others": {"n1": part, "n2": {}}},
        ALONE: {"nodes": {"n0": {"diff": {}, "steps": []}, "n1": DIFF}, "messages": [note_of("told"), note_of("more")]},
    })  # fmt: skip
    status = plans.answer(backend, reconcilers, {"spec": {"objects": [_pod()]}}, options)["status"]
    # it speaks for itself alone
    assert (status["nodes"], status["messages"]) == ({"n0": SHOWN, "n1": SHOWN}, ["told", "more"])
    assert reconcilers.questions["s0"]["others"] == ["n1"]
    assert reconcilers.questions[ALONE] == {"objects": [], "nodes": ["n1"], "foretold": part}


def test_a_node_of_its_own_is_asked_for_its_drift_at_once(backend: Backend, options: Options):
    for lease in ("s0", ALONE):
        _lease(backend, options, lease)
    reconcilers = RecordedReconcilers({ALONE: {"nodes": {"n1": DIFF}, "messages": []}})
    status = plans.answer(backend, reconcilers, {"spec": {}}, options)["status"]
    assert status["nodes"] == {"n1": SHOWN}
    assert reconcilers.questions["s0"] == reconcilers.questions[ALONE] == {"objects": [], "nodes": []}


def test_a_node_of_its_own_that_is_not_asked_for_hears_nothing(backend: Backend, options: Options):
    for lease in ("s0", ALONE):
        _lease(backend, options, lease)
    reconcilers = RecordedReconcilers()
    plans.answer(backend, reconcilers, {"spec": {"objects": [_pod()], "nodes": ["n0"]}}, options)
    assert reconcilers.questions.keys() == {"s0"}
    assert "others" not in reconcilers.questions["s0"]


@pytest.mark.parametrize("answer", [{"nodes": {"n1": []}}, {"nodes": {"n1": {"diff": 1}}}, {"nodes": {}}])
def test_an_answer_of_a_node_that_is_none_counts_for_nothing(backend: Backend, options: Options, answer: JsonObject):
    _lease(backend, options, ALONE)
    status = plans.answer(backend, RecordedReconcilers({ALONE: answer}), {"spec": {}}, options)["status"]
    assert status["nodes"] == {}


def test_without_the_control_planes_reconciler_a_node_of_its_own_cannot_be_told(backend: Backend, options: Options):
    _lease(backend, options, ALONE)
    reconcilers = RecordedReconcilers()
    status = plans.answer(backend, reconcilers, {"spec": {"objects": [_pod()]}}, options)["status"]
    assert status["messages"] == ["node n1: no reconciler of the control plane answered what would change there"]
    assert reconcilers.questions == {}


def test_what_was_counted_of_a_node_comes_from_the_reconciler_that_has_it(backend: Backend, options: Options):
    for lease in ("minik8s-reconciler-a", "minik8s-reconciler-b", "minik8s-reconciler-node.n2"):
        _lease(backend, options, lease)
    result = RecordedReconcilers(
        {
            "minik8s-reconciler-a": OSError("away"),
            "minik8s-reconciler-b": {"metrics": {"n1": "one", "n2": "a shard must not tell of it"}},
            "minik8s-reconciler-node.n2": {"metrics": {"n2": "two"}},
        }
    )
    assert metrics_of(backend.cache, result, "n1") == "one"
    assert metrics_of(backend.cache, result, "n2") == "two"
    assert metrics_of(backend.cache, result, "n3") == ""
    assert metrics_of(backend.cache, None, "n1") == ""


def test_a_nodes_own_reconciler_speaks_for_no_other_node(backend: Backend, options: Options):
    for node in ("n1", "n2"):
        writing.create(backend, Target(NODE), {"metadata": {"name": node}}, options)
    _lease(backend, options, "minik8s-reconciler-node.n1")
    lie = note_of("all is well") | {"node": "n2"}
    answers: dict[str, JsonObject | Exception] = {
        "minik8s-reconciler-node.n1": {"nodes": {"n1": {"diff": {}, "steps": []}}, "messages": [lie]}
    }
    status = plans.answer(backend, RecordedReconcilers(answers), {"spec": {}}, options)["status"]
    why = "was not planned: no reconciler that answered has it in its inventory"
    assert status["messages"] == ["all is well", f"node n2 {why}"]
