"""A plan shows what its asker may read, and says of the rest only how much there is.

The attack: with ``create plans`` and nothing else, somebody plans a pod that mounts ConfigMaps of another namespace, or
asks for the drift of all nodes. The answer holds what the ConfigMaps say, other tenants' environments, and the names
and UIDs of their pods.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.rights import Rights, rule
from tests.support.apiserver import Answer, ApiServerProcess
from tests.support.etcd import EtcdServer
from tests.support.pki import Authority, Certificate
from tests.support.servers.reconciler import Reconciler

PLANS = rule("create", "plans", group="minik8s.io")
SECTIONS = ("network", "containers", "volumes", "services")
_users = itertools.count()


def ref(kind: str, namespace: str = "", name: str = "") -> dict[str, str]:
    return {"apiVersion": "v1", "kind": kind, "namespace": namespace, "name": name}


SUBJECTS: dict[tuple[str, str], Any] = {
    ("network", "pod-network"): [ref("Node", "", "n1")],
    ("containers", "uid-own/app"): [ref("Pod", "own", "web")],
    ("containers", "uid-bank/app"): [ref("Pod", "bank", "ledger"), ref("ConfigMap", "bank", "rates")],
    ("volumes", "uid-bank/v"): [ref("Pod", "bank", "ledger"), ref("Secret", "bank", "key")],
    ("services", "bank/front:80"): [ref("Service", "bank", "front"), ref("Endpoints", "bank", "front")],
    ("containers", "uid-gone/app"): [ref("Pod"), ref("ConfigMap"), ref("Secret")],
    ("volumes", "uid-odd/v"): None,  # a row that does not say what it is about
    ("services", "odd"): [{"apiVersion": "*", "kind": "*"}],
}


QUEUES = {"apiVersion": "external.metrics.k8s.io/v1beta1", "kind": "*", "namespace": "bank", "name": ""}


def _part() -> dict[str, Any]:
    facets = {where: {"is": f"facet of {where[1]}"} for where in SUBJECTS}
    return {
        "diff": {
            section: {"before": {}, "after": {key: facets[one, key] for one, key in SUBJECTS if one == section}}
            for section in SECTIONS
        },
        "about": {
            section: {key: about for (one, key), about in SUBJECTS.items() if one == section} for section in SECTIONS
        },
        "steps": [
            {"section": section, "action": "create", "key": key, "detail": f"detail of {key}"}
            | ({} if about is None else {"about": about})
            for (section, key), about in SUBJECTS.items()
        ],
    }


ANSWER = {
    "nodes": {"n1": _part(), "n2": {"diff": {}, "steps": []}},
    "messages": [
        {"text": "Pod bank/ledger: image minik8s/ledger:7 would be pulled", "about": [ref("Pod", "bank", "ledger")]},
        {"text": "Pod own/web: 0/1 nodes are available", "about": [ref("Pod", "own", "web")]},
        {"text": "node n3 does not answer; what would change there is not known", "about": []},
        {"text": "an odd one"},
        {"text": "HorizontalPodAutoscaler own/web: by the queue of bank", "about": [QUEUES]},
    ],
    "order": [
        {"action": "delete", "pod": "bank/ledger", "node": "n1", "owner": "", "about": [ref("Pod", "bank", "ledger")]},
        {"action": "create", "pod": "own/web", "node": "n1", "owner": "", "about": [ref("Pod", "own", "web")]},
    ],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    """An API server with a reconciler that answers ``ANSWER``."""
    folder: Path = tmp_path_factory.mktemp("plans")
    authority = Authority(folder / "pki", "plans")
    client = authority.issue("apiserver", "system:minik8s:apiserver")
    files = {"cert": str(client.cert), "key": str(client.key), "ca": str(authority.ca)}
    reconciler = Reconciler(authority.issue("reconciler", "minik8s-reconciler"), authority.ca, ANSWER)
    etcd = EtcdServer(folder / "etcd").start()
    server = ApiServerProcess(folder / "api", etcd.endpoint, reconciler_client=files).start()
    lease = {"name": "minik8s-reconciler-s0", "annotations": {"minik8s.io/plan-endpoint": reconciler.url}}
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    event_writer = server.identity("system:minik8s:reconciler")
    assert server.request("POST", path, {"metadata": lease, "spec": {}}, client=event_writer).code == 201
    for namespace in ("own", "bank"):
        assert server.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}).code == 201
    yield server
    server.stop()
    etcd.stop()
    reconciler.close()


@pytest.fixture
def rights(server: ApiServerProcess) -> Rights:
    return Rights(server)


def planned(rights: Rights, client: Certificate | None, **spec: Any) -> Answer:
    body = {"metadata": {"name": "plan"}, "spec": spec}
    return rights.server.request("POST", "/apis/minik8s.io/v1/plans", body, client=client)


def drift(rights: Rights, client: Certificate) -> Any:
    answer = planned(rights, client)
    assert answer.code == 201, answer.body
    return answer.json["status"]


def keys(status: Any) -> list[str]:
    return sorted(step["key"] for step in status["nodes"]["n1"]["steps"])


def user(rights: Rights, everywhere: Sequence[Any] = (), **inside: Sequence[Any]) -> Certificate:
    """A user who may make plans, and what is granted besides: everywhere, or in the namespaces named."""
    return rights.user(f"planner-{next(_users)}", [PLANS, *everywhere], inside)


def test_with_plans_alone_one_sees_counts(rights: Rights):
    status = drift(rights, user(rights))
    assert status["nodes"] == {
        "n1": {"diff": {}, "steps": [], "hidden": len(SUBJECTS)},
        "n2": {"diff": {}, "steps": []},
    }
    assert status["messages"] == ["node n3 does not answer; what would change there is not known"]
    assert status["hidden"] == {"messages": 4, "order": 2}
    reported = json.dumps(status)
    assert not [word for word in ("bank", "ledger", "uid-", "own/web", "rates", "facet", "detail") if word in reported]


def test_ones_own_namespace_is_shown(rights: Rights):
    status = drift(rights, user(rights, own=[rule("get", "pods", "configmaps", "secrets", "services", "endpoints")]))
    assert keys(status) == ["uid-own/app"]
    assert status["nodes"]["n1"]["diff"] == {
        "containers": {"before": "", "after": "uid-own/app:\n  is: facet of uid-own/app\n"}
    }
    assert (status["nodes"]["n1"]["hidden"], status["hidden"]) == (len(SUBJECTS) - 1, {"messages": 3, "order": 1})
    assert [step["pod"] for step in status["order"]] == ["own/web"]
    assert "bank" not in json.dumps(status)


@pytest.mark.parametrize(
    ("granted", "seen"),
    [
        (["pods"], []),
        (["configmaps"], []),
        (["pods", "configmaps"], ["uid-bank/app"]),
        (["pods", "secrets"], ["uid-bank/v"]),
        (["services"], []),
        (["services", "endpoints"], ["bank/front:80"]),
    ],
)
def test_a_row_about_several_objects_needs_the_right_to_all(rights: Rights, granted: list[str], seen: list[str]):
    assert keys(drift(rights, user(rights, bank=[rule("get", *granted)]))) == seen


def test_a_right_to_a_name_shows_that_name(rights: Rights):
    rates = rule("get", "configmaps", names=["rates"])
    status = drift(rights, user(rights, bank=[rule("get", "pods", names=["ledger"]), rates]))
    assert keys(status) == ["uid-bank/app"]
    assert status["messages"][0].startswith("Pod bank/ledger: image")
    others = drift(rights, user(rights, bank=[rule("get", "pods", names=["ledger"]), rule("list", "configmaps")]))
    assert keys(others) == []


@pytest.mark.parametrize(
    ("granted", "shown"),
    [
        ({"bank": [rule("get", "*", group="external.metrics.k8s.io")]}, 1),
        ({"own": [rule("get", "*", group="external.metrics.k8s.io")]}, 0),
        ({"bank": [rule("get", "*", group="custom.metrics.k8s.io")]}, 0),
        ({"bank": [rule("get", "queue", group="external.metrics.k8s.io")]}, 0),
    ],
)
def test_what_metrics_say_needs_the_right_to_all_of_their_group(rights: Rights, granted: Any, shown: int):
    message = drift(rights, user(rights, **granted))["messages"]
    assert sum("the queue of bank" in text for text in message) == shown


def test_what_is_of_machines_needs_rights_to_nodes(rights: Rights):
    assert keys(drift(rights, user(rights, [rule("get", "nodes")]))) == ["pod-network"]
    assert keys(drift(rights, user(rights, [rule("get", "nodes", names=["n2"])]))) == []


def test_what_belonged_to_nobody_known_needs_rights_everywhere(rights: Rights):
    wide = [rule("get", "pods", "configmaps", "secrets")]
    assert keys(drift(rights, user(rights, wide))) == ["uid-bank/app", "uid-bank/v", "uid-gone/app", "uid-own/app"]


def test_who_may_read_everything_sees_everything(rights: Rights):
    status = drift(rights, user(rights, [rule("get", "*", group="*")]))
    assert len(keys(status)) == len(SUBJECTS)
    assert ("hidden" in status, "hidden" in status["nodes"]["n1"]) == (False, False)
    assert drift(rights, rights.server.admin) == status


CONFIG: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "own"}}


def test_who_may_not_write_may_not_plan_to(rights: Rights):
    client = user(rights, own=[rule("get", "configmaps")])
    refused = planned(rights, client, objects=[CONFIG])
    assert (refused.code, "spec.objects[0]" in refused.json["message"]) == (403, True)
    assert planned(rights, user(rights, own=[rule("create", "configmaps")]), objects=[CONFIG]).code == 201


def test_a_plan_tells_nobody_what_there_is(rights: Rights):
    there: dict[str, Any] = {**CONFIG, "metadata": {"name": "there", "namespace": "bank"}}
    path = "/api/v1/namespaces/bank/configmaps"
    assert rights.server.request("POST", path, there).code in {201, 409}
    creator = user(rights, bank=[rule("create", "configmaps")])
    assert planned(rights, creator, objects=[there]).code == 403  # it would be patched
    assert planned(rights, user(rights, bank=[rule("patch", "configmaps")]), objects=[there]).code == 201
    client = user(rights, bank=[rule("get", "configmaps")])
    absent = {**there, "metadata": {"name": "absent", "namespace": "bank"}}
    assert [planned(rights, client, deleted=[one]).code for one in (there, absent)] == [403, 403]
    assert planned(rights, user(rights, bank=[rule("delete", "configmaps")]), deleted=[there]).code == 201


def test_objects_are_shown_to_who_may_read_them(rights: Rights):
    there: dict[str, Any] = {**CONFIG, "metadata": {"name": "told", "namespace": "bank"}, "data": {"k": "canary"}}
    path = "/api/v1/namespaces/bank/configmaps"
    assert rights.server.request("POST", path, there).code in {201, 409}
    changed = {**there, "data": {"k": "other"}}
    writer, reader = ["patch", "delete"], ["get", "patch", "delete"]
    for spec in ({"objects": [changed]}, {"deleted": [there]}):
        blind = planned(rights, user(rights, bank=[rule(verb, "configmaps") for verb in writer]), **spec)
        assert (blind.code, blind.json["status"]["hidden"]["objects"]) == (201, 1)
        assert "objects" not in blind.json["status"]
        assert "canary" not in json.dumps(blind.json["status"])
        seen = planned(rights, user(rights, bank=[rule(verb, "configmaps") for verb in reader]), **spec)
        assert [row["before"]["data"] for row in seen.json["status"]["objects"]] == [{"k": "canary"}]


def test_what_goes_along_is_shown_to_who_may_read_it(rights: Rights):
    gone = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bank"}}
    secret = {"metadata": {"name": "vault", "namespace": "bank"}, "stringData": {"k": "canary"}}
    assert rights.server.request("POST", "/api/v1/namespaces/bank/secrets", secret).code in {201, 409}
    everywhere = [rule("delete", "namespaces"), rule("get", "namespaces")]
    blind = planned(rights, user(rights, everywhere), deleted=[gone]).json["status"]
    assert [row["name"] for row in blind["objects"]] == ["bank"]
    assert blind["hidden"]["objects"] > 0
    assert "vault" not in json.dumps(blind)
    seen = planned(rights, user(rights, everywhere, bank=[rule("get", "secrets")]), deleted=[gone]).json["status"]
    assert "vault" in [row["name"] for row in seen["objects"]]
    assert "canary" not in json.dumps(seen)
