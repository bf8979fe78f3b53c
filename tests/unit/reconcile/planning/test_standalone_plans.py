"""A node with a reconciler of its own, told its part of a plan, answers what one that sees the whole cluster does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from minik8s_modules.api.kinds import CONFIG_MAP, INGRESS, NODE, POD_ADDRESS, SECRET
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.planning.planserver import Vacancy
from minik8s_modules.reconcile.planning.questions import parse_question
from minik8s_modules.reconcile.planning.standalone_plans import read_supplied_plan
from tests.unit.reconcile.loop.test_loop import NAME, Cluster, running, until
from tests.unit.reconcile.planning.test_plan import ask, pod, service
from tests.unit.reconcile.planning.test_plan import told as texts
from tests.unit.reconcile.worlds import IMAGE

Operations = list[tuple[str, JsonObject]]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    for kind, name in ((CONFIG_MAP, "settings"), (SECRET, "hidden")):
        made.api.create(kind, {"metadata": {"name": name, "namespace": "default"}, "data": {"A": "MQ=="}})
    yield made
    made.stop()


def begin(cluster: Cluster, *, own_node: bool) -> None:
    """Have the node be its own reconciler's, or the control plane's, which knows what runs there."""
    cluster.settings = cluster.settings._replace(own_node=own_node)
    cluster.restart()
    until(lambda: cluster.service is not None and cluster.service.loop.basis(NAME) is not None)
    until(lambda: ask_own(cluster, [])["nodes"].get(NAME, {}).get("steps") == [])
    if not own_node:
        until(lambda: ask(cluster, ("create", pod("probe")))["nodes"].get(NAME, {}).get("steps"))


def tell(cluster: Cluster, operations: Operations, *others: str) -> JsonObject:
    """Return what a shard without nodes answers, over JSON as to the API server."""
    body = {"objects": [{"operation": kind, "object": obj} for kind, obj in operations], "others": others or (NAME,)}
    vacancy = Vacancy(cluster.api, cluster.settings, cluster.clock)
    vacancy.start()
    try:
        answer = vacancy.plan(parse_question(json.loads(json.dumps(body))))
    finally:
        vacancy.stop()
    assert answer["nodes"] == {}
    return texts(json.loads(json.dumps(answer)))


def ask_own(cluster: Cluster, operations: Operations) -> JsonObject:
    """Return the node's own answer, and what was told it: by the same two ways over JSON as the API server's."""
    assert cluster.service is not None
    if not operations:
        return texts(cluster.service.plan(parse_question({"objects": []})))
    result = tell(cluster, operations)
    answer = texts(cluster.service.plan(parse_question({"objects": [], "foretold": result["others"][NAME]})))
    return {
        "nodes": answer["nodes"],
        "messages": [*result["messages"], *answer["messages"]],
        "others": result["others"],
    }


def labelled(**spec: Any) -> JsonObject:
    made = pod(**spec)
    made["metadata"]["labels"] = {"app": "web"}
    return made


def reading(**source: Any) -> JsonObject:
    return labelled(containers=[{"name": "app", "image": IMAGE, "envFrom": [source]}])


def stored() -> JsonObject:
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "nfs": {"server": "s", "path": "/p"}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": spec}


def claimed() -> JsonObject:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    meta = {"name": "data", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}


def claiming() -> JsonObject:
    app = {"name": "app", "image": IMAGE, "volumeMounts": [{"name": "d", "mountPath": "/d"}]}
    return pod(containers=[app], volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}])


def standing(cluster: Cluster) -> JsonObject:
    return dict(cluster.pod("stands"), apiVersion="v1", kind="Pod")


CASES: dict[str, Callable[[Cluster], Operations]] = {
    "a pod": lambda _: [("create", pod())],
    "a pod behind a service": lambda _: [("create", service(app="web")), ("create", labelled())],
    "a pod that goes": lambda cluster: [("delete", standing(cluster))],
    "a configmap it reads": lambda _: [("create", reading(configMapRef={"name": "settings"}))],
    "a secret it reads": lambda _: [("create", reading(secretRef={"name": "hidden"}))],
    "a secret planned along": lambda _: [
        ("create", reading(secretRef={"name": "new"})),
        ("create", {"kind": "Secret", "metadata": {"name": "new", "namespace": "default"}, "data": {"B": "Mg=="}}),
    ],
    "an image to pull": lambda _: [("create", pod(containers=[{"name": "app", "image": "example.com/x:1"}]))],
    "a pod that cannot start": lambda _: [("create", reading(configMapRef={"name": "nowhere"}))],
    "a claim planned along": lambda _: [("create", stored()), ("create", claimed()), ("create", claiming())],
    "two pods": lambda _: [("create", pod("a")), ("create", pod("b"))],
}


@pytest.mark.parametrize("what", CASES)
def test_its_answer_is_that_of_one_that_sees_everything(cluster: Cluster, what: str):
    begin(cluster, own_node=False)
    cluster.create("stands")
    until(lambda: running(cluster, "stands"))
    operations = CASES[what](cluster)
    seen = ask(cluster, *operations)
    begin(cluster, own_node=True)
    cluster.api.calls.clear()
    result = ask_own(cluster, operations)
    assert result["nodes"] == seen["nodes"]
    assert set(result["messages"]) == set(seen["messages"])
    assert result["nodes"][NAME]["steps"]


def test_it_is_told_of_no_other_nodes_pods_and_no_secrets_of_theirs(cluster: Cluster):
    cluster.api.create(NODE, {"metadata": {"name": "n2"}, "spec": {"podCIDR": "10.244.9.0/24"}})
    elsewhere = reading(secretRef={"name": "hidden"})
    elsewhere["spec"]["nodeName"] = "n2"
    changed = cluster.api.get(SECRET, "hidden", "default")
    changed |= {"kind": "Secret", "data": {"A": "Mg=="}}
    operations = [("create", elsewhere), ("create", service(app="web")), ("update", changed)]
    others = tell(cluster, operations, NAME, "n2")["others"]
    part = others[NAME]
    assert (part["pods"], part["overlay"], part["sources"], part["addresses"]) == ({}, [], [], {})
    assert [endpoint["addresses"] for endpoint in part["slices"]["default/web"][0]["endpoints"]] == [["10.244.9.2"]]
    assert [row[:2] for row in others["n2"]["overlay"]] == [["Secret", "default/hidden"]]
    assert len(others["n2"]["pods"]) == 1


def test_it_is_told_of_the_certificates_of_hosts(cluster: Cluster):
    tls: JsonObject = {"spec": {"tls": [{"secretName": "hidden", "hosts": ["a.test"]}], "rules": [{"host": "a.test"}]}}
    known = {"kind": "Ingress", "metadata": {"name": "known", "namespace": "default"}, **tls}

    def reported(*operations: tuple[str, JsonObject]) -> JsonObject:
        return dict(tell(cluster, [*operations])["others"][NAME])

    # one that it may not read yet, since its Ingress does not exist
    assert [row[:2] for row in reported(("create", known))["sources"]] == [["Secret", "default/hidden"]]
    cluster.api.create(INGRESS, known)
    changed = {**cluster.api.get(SECRET, "hidden", "default"), "kind": "Secret", "data": {}}
    part = reported(("update", changed))
    assert ([row[:2] for row in part["overlay"]], part["sources"]) == ([["Secret", "default/hidden"]], [])


def test_an_address_that_was_just_released_is_not_planned_with(cluster: Cluster):
    cluster.api.create(NODE, {"metadata": {"name": "n2"}, "spec": {"podCIDR": "10.244.9.0/24"}})
    claim = {"metadata": {"name": "10.244.9.2"}, "spec": {"podUID": "gone", "nodeName": "n2"}}
    cluster.api.create(POD_ADDRESS, claim)
    vacancy = Vacancy(cluster.api, cluster.settings, cluster.clock)
    vacancy.start()
    bound = pod(nodeName="n2")
    question = parse_question({"objects": [{"operation": "create", "object": bound}], "others": ["n2"]})

    def planned() -> list[str]:
        return [*vacancy.plan(question)["others"]["n2"]["addresses"].values()]

    try:
        assert planned() == ["10.244.9.3"]
        cluster.api.delete(POD_ADDRESS, "10.244.9.2")
        until(lambda: vacancy._book.on_node("n2") == [])
        assert planned() == ["10.244.9.3"]
    finally:
        vacancy.stop()


def test_operations_are_refused_where_only_a_part_can_be_answered(cluster: Cluster):
    begin(cluster, own_node=True)
    with pytest.raises(ValueError, match="must contain the result"):
        ask(cluster, ("create", pod()))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([], "must be a mapping"),
        ({"pods": {"u": []}}, "pods must be a mapping of objects"),
        ({"pods": {}, "overlay": [["Secret", "a/b"]]}, "overlay must be rows"),
        ({"pods": {}, "slices": {"a/b": {}}}, "slices must be lists"),
        ({"pods": {}, "slices": {}, "services": []}, "services must be a mapping"),
    ],
)
def test_what_was_not_foretold_is_refused(fields: Any, message: str):
    with pytest.raises(ValueError, match=message):
        read_supplied_plan(fields)
