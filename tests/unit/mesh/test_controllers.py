"""What is written down, and what is kept for sidecars, over an API in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import (
    ENDPOINT_SLICE,
    EVENT,
    NAMESPACE,
    POD,
    ROLLING_UPDATE,
    SERVICE,
    SIDECAR_MAPPING,
    SUBSET,
    TOKEN_REVIEW,
    VIRTUAL_SERVICE,
)
from minik8s_modules.api.network.authorization import AUTHORIZATION_POLICY
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.pods.mutual_tls import MTLS, STRICT
from minik8s_modules.api.pods.sidecars import with_sidecar
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.access.signing_requests import LONGEST_IN_MESH, SHORTEST
from minik8s_modules.mesh.acknowledgements import Acknowledgements
from minik8s_modules.mesh.gateways.following import RouteCopies
from minik8s_modules.mesh.identity import Sidecar, known_sidecar, sidecar_of
from minik8s_modules.mesh.main import lifetime_of, tell_refusal
from minik8s_modules.mesh.mapping import Withholding
from minik8s_modules.mesh.resources import ENDPOINTS
from minik8s_modules.mesh.serving import ServingController
from minik8s_modules.mesh.statuses import MAPPING, StatusController
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from tests.support.authorization import policy
from tests.support.waiting import until
from tests.unit.mesh.namespaces import declared

SPLIT = {"name": "x", "serviceRef": "reviews", "port": 9080, "subsets": [{"name": "v1", "weight": 1}]}
CASE: dict[str, Any] = {
    "services": [{"name": "reviews", "ports": [9080]}],
    "pods": {"reviews": ["a", "b"]},
    "subsets": {"v1": ["a"]},
    "virtual": [SPLIT],
}
PLACE = "100.0.0.1:9080"


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi(FakeClock())
    found = declared(CASE)
    for kind, group in zip((SERVICE, ENDPOINT_SLICE, VIRTUAL_SERVICE, SUBSET), found[:4], strict=True):
        for obj in group:
            api.create(kind, obj)
    return api


@pytest.fixture
def context(api: FakeApi) -> Iterator[Context]:
    clock = FakeClock()
    context = Context(api, EventRecorder(api, "c", clock=clock), Informers(api), clock)
    context.informers.start()
    yield context
    context.informers.stop()
    context.pool.shutdown()


@pytest.fixture
def statuses(context: Context) -> Iterator[StatusController]:
    routes = RouteCopies(context)
    routes.start()
    controller = StatusController(context, routes)
    controller.start()
    yield controller
    controller.stop()
    routes.stop()


def mapping(api: FakeApi) -> JsonObject | None:
    try:
        return objects.spec(api.get(SIDECAR_MAPPING, MAPPING, "shop"))
    except NotFound:
        return None


def reason(api: FakeApi, kind: str) -> str:
    condition = objects.condition(api.get(VIRTUAL_SERVICE, "x", "shop"), kind)
    return str(condition["reason"]) if condition else ""


@pytest.mark.usefixtures("statuses")
def test_a_namespace_has_its_mapping_while_something_is_split_in_it(api: FakeApi):
    entry = {"weight": 1, "endpoints": [{"ip": "10.244.0.1", "targetPort": 8080}]}
    until(lambda: mapping(api) == {PLACE: [entry]})
    api.delete(SIDECAR_MAPPING, MAPPING, "shop")
    until(lambda: mapping(api) == {PLACE: [entry]})
    api.update(SIDECAR_MAPPING, {**api.get(SIDECAR_MAPPING, MAPPING, "shop"), "spec": {}})
    until(lambda: mapping(api) == {PLACE: [entry]})
    api.delete(VIRTUAL_SERVICE, "x", "shop")
    until(lambda: mapping(api) is None)


def test_a_mapping_of_that_name_that_is_somebodys_own_is_left_alone_and_told(api: FakeApi, context: Context):
    api.create(SIDECAR_MAPPING, {"metadata": {"name": MAPPING, "namespace": "shop"}, "spec": {"mine": []}})
    context.recorder.start()
    routes = RouteCopies(context)
    routes.start()
    controller = StatusController(context, routes)
    controller.start()
    try:
        until(lambda: any(each.get("reason") == "NameTaken" for each in api.list(EVENT, "shop").items))
        api.delete(VIRTUAL_SERVICE, "x", "shop")
        until(lambda: not api.list(VIRTUAL_SERVICE, "shop").items)
        controller.sync(Key("shop", MAPPING))
    finally:
        controller.stop()
        routes.stop()
        context.recorder.stop()
    assert mapping(api) == {"mine": []}


def unlabelled(*writers: str) -> JsonObject:
    """Return a mapping as the pilot made it before it set a label, with those that have written it."""
    fields = [{"manager": each, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}
              for each in writers]  # fmt: skip
    return {"metadata": {"name": MAPPING, "namespace": "shop", "managedFields": fields}, "spec": {"mine": []}}


def test_a_mapping_that_an_earlier_pilot_made_without_a_label_is_kept_up(api: FakeApi, request: pytest.FixtureRequest):
    api.create(SIDECAR_MAPPING, unlabelled("minik8s-pilot"))
    request.getfixturevalue("statuses")
    until(lambda: PLACE in (mapping(api) or {}))
    made = api.get(SIDECAR_MAPPING, MAPPING, "shop")
    assert objects.labels(made) == {"app.kubernetes.io/managed-by": "minik8s-pilot"}
    api.delete(VIRTUAL_SERVICE, "x", "shop")
    until(lambda: mapping(api) is None)


def test_one_that_somebody_has_written_to_besides_is_his(api: FakeApi, request: pytest.FixtureRequest):
    api.create(SIDECAR_MAPPING, unlabelled("minik8s-pilot", "kubectl-edit"))
    statuses = request.getfixturevalue("statuses")
    until(lambda: reason(api, "Accepted") == "Accepted")
    statuses.sync(Key("shop", MAPPING))
    assert mapping(api) == {"mine": []}


@pytest.mark.usefixtures("statuses")
def test_a_virtual_service_says_what_it_lacks_until_it_is_there(api: FakeApi):
    until(lambda: (reason(api, "Accepted"), reason(api, "ResolvedRefs")) == ("Accepted", "ResolvedRefs"))
    api.delete(SUBSET, "v1", "shop")
    until(lambda: reason(api, "ResolvedRefs") == "SubsetNotFound")
    api.create(SUBSET, {"metadata": {"name": "v1", "namespace": "shop"}, "spec": {"pods": ["a"]}})
    until(lambda: reason(api, "ResolvedRefs") == "ResolvedRefs")


def test_a_namespace_is_kept_while_it_has_sidecars_and_follows_its_objects(api: FakeApi, context: Context):
    serving = ServingController(context)
    serving.start()
    woken: list[str] = []

    def wake() -> None:
        woken.append("")

    def weights() -> list[int]:
        told = serving.catalogue.get("shop")
        packed = told.snapshot[ENDPOINTS]["reviews.shop:9080"].packed if told is not None else None
        return [len(packed.value)] if packed is not None else []

    try:
        assert serving.catalogue.get("shop") is None
        serving.catalogue.wait_for("shop", wake)
        until(lambda: bool(woken))
        one = weights()
        api.delete(VIRTUAL_SERVICE, "x", "shop")
        until(lambda: weights() != one)
        serving.catalogue.leave("shop", wake)
        assert serving.catalogue.get("shop") is None
    finally:
        serving.stop()


def test_a_pod_that_speaks_tls_has_only_those_decided_on_again_who_may_call_it(api: FakeApi, context: Context):
    for space in ("shop", "bank"):
        api.create(NAMESPACE, {"metadata": {"name": space, "labels": {MTLS: STRICT}}})
    serving = ServingController(context)
    serving.start()
    woken = {"shop": list[str](), "bank": list[str]()}
    spec = with_sidecar({"containers": []}, mutual=True)

    def known() -> dict[str, bool]:
        found = {space: serving.catalogue.get(space) for space in woken}
        return {space: each is not None and "web" in each.peers.pods.get("bank", {}) for space, each in found.items()}

    try:
        for space, wakes in woken.items():
            serving.catalogue.wait_for(space, lambda wakes=wakes: wakes.append(""))  # type: ignore[misc]
        until(lambda: all(woken.values()))
        before = len(woken["shop"])
        meta = {"name": "web", "namespace": "bank"}
        api.create(POD, {"metadata": meta, "spec": spec, "status": {"podIPs": [{"ip": "10.0.0.1"}]}})
        until(lambda: known()["bank"])
        last = len(woken["bank"])
        api.delete(POD, "web", "bank")
        until(lambda: len(woken["bank"]) > last)  # what was touched before has been decided on by one worker
        assert len(woken["shop"]) == before
    finally:
        serving.stop()


class Reviewer(FakeApi):
    """An API that says whose a token is."""

    def __init__(self, status: JsonObject) -> None:
        super().__init__()
        self._status = status

    def create(self, kind: Any, obj: Any, *more: Any, **named: Any) -> JsonObject:
        """Answer a review; create everything else."""
        if kind is TOKEN_REVIEW:
            return {**obj, "status": self._status if obj["spec"]["token"] == "t" else {"authenticated": False}}
        return super().create(kind, obj, *more, **named)


def test_who_takes_tls_is_asked_about_with_its_namespace_as_both_are_now():
    reviewer = Reviewer(user("system:serviceaccount:shop:robot", "client"))
    assert known_sidecar(reviewer, "Bearer t") is None, "there is no such Pod"
    can = with_sidecar({"containers": []}, mutual=True)
    made = reviewer.create(POD, {"metadata": {"name": "client", "namespace": "shop"}, "spec": can})
    whole = Sidecar("shop", "client", "robot", speaks_tls=True, uid=objects.uid(made), space_speaks_tls=True)
    space = reviewer.create(NAMESPACE, {"metadata": {"name": "shop"}})
    assert known_sidecar(reviewer, "Bearer t") == whole._replace(space_speaks_tls=False)
    reviewer.update(NAMESPACE, {**space, "metadata": {**space["metadata"], "labels": {MTLS: STRICT}}})
    assert known_sidecar(reviewer, "Bearer t") == whole
    first, last = (reviewer.create(AUTHORIZATION_POLICY, policy(name)) for name in ("a", "b"))
    reviewer.create(AUTHORIZATION_POLICY, policy("c", namespace="bank"))
    newest = int(objects.resource_version(last))
    assert newest > int(objects.resource_version(first))
    assert known_sidecar(reviewer, "Bearer t") == whole._replace(newest_policy=newest)


def user(name: str, *pods: str) -> JsonObject:
    return {"authenticated": True, "user": {"username": name, "extra": {"authentication.kubernetes.io/pod-name": pods}}}


@pytest.mark.parametrize(
    ("header", "status", "whose"),
    [
        ("Bearer t", user("system:serviceaccount:shop:default", "client"), Sidecar("shop", "client", "default")),
        ("bearer t", user("system:serviceaccount:shop:default", "client"), Sidecar("shop", "client", "default")),
        ("", user("system:serviceaccount:shop:default", "client"), None),
        ("Basic t", user("system:serviceaccount:shop:default", "client"), None),
        ("Bearer other", user("system:serviceaccount:shop:default", "client"), None),
        ("Bearer t", user("system:serviceaccount:shop:default"), None),  # a token of no Pod
        ("Bearer t", user("system:node:shop", "client"), None),
        ("Bearer t", {"user": {"username": "system:serviceaccount:shop:default"}}, None),
    ],
)
def test_a_sidecar_is_whose_token_it_shows(header: str, status: JsonObject, whose: Sidecar | None):
    assert sidecar_of(Reviewer(status), header) == whose


def test_what_a_sidecar_refuses_is_an_event_of_the_virtual_service_behind_it(api: FakeApi):
    recorder = EventRecorder(api, "minik8s-pilot", clock=FakeClock())
    tell_refusal(recorder, Sidecar("shop", "client"), {"x"}, "no such weight")
    assert recorder.write_one()
    (event,) = api.list(EVENT, "shop").items
    assert event["involvedObject"]["name"] == "x"
    assert event["reason"] == "RefusedBySidecar"
    assert event["message"] == "the sidecar of Pod client refused it: no such weight"


def test_an_event_on_a_route_names_no_pod_of_another_namespace_and_repeats_nothing_that_is_said_there(api: FakeApi):
    recorder = EventRecorder(api, "minik8s-pilot", clock=FakeClock())
    tell_refusal(recorder, Sidecar("elsewhere", "secret-project"), {"shop/web"}, "no argument for repetition: /secret")
    assert recorder.write_one()
    (event,) = api.list(EVENT, "shop").items
    assert event["message"] == "a sidecar of another namespace refused it, and keeps what it had"


def test_whose_sidecars_have_taken_a_batch_is_written_once_and_of_that_batch_alone(api: FakeApi, context: Context):
    spec = {"serviceRef": "reviews", "port": 9080, "newPodSpec": {}}
    update = {"metadata": {"name": "u", "namespace": "shop"}, "spec": spec}
    made = api.create(ROLLING_UPDATE, update)
    status = {"phase": "Running", "withheld": ["a"], "batch": 2, "acknowledged": ["c"]}
    api.update(ROLLING_UPDATE, {**made, "status": status}, subresource="status")
    clock = FakeClock()
    acknowledgements = Acknowledgements(replace(context, clock=clock))
    acknowledgements.start()

    def written(*pods: str) -> bool:
        clock.advance(1)
        return bool(objects.status(api.get(ROLLING_UPDATE, "u", "shop"))["acknowledged"] == [*pods])

    batch = Withholding("u", objects.uid(made), 2)
    try:
        acknowledgements.settled(Sidecar("shop", "old"), frozenset({batch._replace(batch=1)}))
        acknowledgements.settled(Sidecar("shop", "none"), frozenset())
        acknowledgements.settled(Sidecar("shop", "b"), frozenset({batch}))
        acknowledgements.settled(Sidecar("other", "d"), frozenset({batch}))
        until(lambda: written("b", "c"))
        acknowledgements.settled(Sidecar("shop", "a"), frozenset({batch}))
        until(lambda: written("a", "b", "c"))
    finally:
        acknowledgements.stop()


@pytest.mark.parametrize("minutes", [-3, 0, 5, 9, 1441])
def test_a_lifetime_of_certificates_that_nobody_would_give_is_an_error(minutes: int):
    with pytest.raises(ConfigurationError, match=rf"^pilot.yml: certificates.minutes must be .* not {minutes}$"):
        lifetime_of(Configuration({"certificates": {"minutes": minutes}}, "pilot.yml"))
    for good in (10, 720, 1440):
        found = lifetime_of(Configuration({"certificates": {"minutes": good}}, "pilot.yml"))
        assert SHORTEST.total_seconds() <= found.total_seconds() == good * 60 <= LONGEST_IN_MESH.total_seconds()
    assert lifetime_of(Configuration({}, "pilot.yml")).total_seconds() == 12 * 3600
