"""Which sidecars enforce a policy, as its status has it, and what is told of those that refuse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import EVENT
from minik8s_modules.api.network.authorization import AUTHORIZATION_POLICY
from minik8s_modules.api.network.readable_policies import readable_policy
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.mesh.authorizations.enforcing import Around, Enforcements, Heard, Pods, decide_status
from minik8s_modules.mesh.authorizations.following import PolicyCopies
from minik8s_modules.mesh.authorizations.guards import Guard, Policies
from minik8s_modules.mesh.messages import try_to_enforce
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from tests.support.authorization import define, policy
from tests.support.waiting import until

ABLE = {name: {"app": "web"} for name in ("a", "b")}
OWN = policy("own", {}, app="web")
OF_PATHS = policy("own", {"to": [{"operation": {"paths": ["/x"]}}]}, app="web")


def guard(*policies: JsonObject) -> Guard | None:
    return Policies(policies).guard("shop", "a", {"app": "web"})


def decided(declared: JsonObject = OWN, fault: str = "", **around: Any) -> JsonObject:
    around = {"pods": Pods(secured=True, able=ABLE), **around}
    return decide_status(declared, Around(**around), FakeClock().now(), fault)


def said(status: JsonObject, kind: str = "Enforced") -> tuple[str, str]:
    (found,) = (each for each in status["conditions"] if each["type"] == kind)
    return found["status"], found["reason"]


def test_a_policy_is_enforced_when_every_sidecar_that_it_selects_has_taken_what_it_says():
    both = {name: Heard(guard(OWN)) for name in ABLE}
    assert said(decided()) == ("False", "WaitsForSidecars")
    assert said(decided(heard={"a": both["a"]})) == ("False", "WaitsForSidecars")
    status = decided(heard=both)
    assert said(status) == ("True", "Enforced")
    assert status["enforcedBy"] == ["a", "b"]
    other = policy("own", app="web")
    assert said(decided(heard={**both, "b": Heard(guard(other))})) == ("False", "WaitsForSidecars"), "an older one"
    assert said(decided(heard={**both, "b": Heard(guard(OWN), "no")})) == ("False", "RefusedBySidecar")


def test_what_another_pilot_has_written_of_a_generation_stays():
    told = {**OWN, "metadata": {**OWN["metadata"], "generation": 2}}
    for generation, enforced in ((2, ["a", "b"]), (1, ["b"])):
        status = {"observedGeneration": generation, "enforcedBy": ["a", "gone"]}
        found = decided({**told, "status": status}, heard={"b": Heard(guard(OWN))})
        assert found["enforcedBy"] == enforced
    again = decided({**told, "status": decided(told)})
    assert again == decided({**told, "status": again}), "nothing is written twice"


def test_pilots_that_have_heard_a_sidecar_at_different_times_write_nothing_against_each_other():
    told = {**OWN, "metadata": {**OWN["metadata"], "generation": 2}}
    older = {name: Heard(guard(policy("own", app="web"))) for name in ABLE}
    status = decided(told, heard=older)
    assert said(status) == ("False", "WaitsForSidecars")
    status = decided({**told, "status": status}, heard={name: Heard(guard(told)) for name in ABLE})
    assert said(status) == ("True", "Enforced")
    assert decided({**told, "status": status}, heard=older) == status
    assert decided({**told, "status": status}) == status
    refused = {"a": Heard(guard(told), "no")}
    status = decided({**told, "status": status}, heard=refused)
    assert decided({**told, "status": status}, heard=older) == status
    again = {**told, "metadata": {**told["metadata"], "generation": 3}, "spec": policy("own", app="web")["spec"]}
    assert said(decided({**again, "status": status}, heard=refused)) == ("False", "WaitsForSidecars")


def test_who_lets_everything_in_is_named():
    assert said(decided(pods=Pods(able=ABLE))) == ("False", "NoMutualTLS")
    blind = Pods(secured=True, able=ABLE, unable={"old": {"app": "web"}, "db": {"app": "db"}})
    status = decided(pods=blind, heard={name: Heard(guard(OWN)) for name in ABLE})
    assert said(status) == ("False", "PodsWithoutSidecar")
    assert status["conditions"][0]["message"].endswith(": old")
    assert said(decided(pods=Pods(secured=True))) == ("Unknown", "NoPods")


def test_a_policy_that_cannot_be_read_is_not_enforced_as_it_is_and_says_which_field_it_is():
    denying, fault = readable_policy(policy("own", {"when": [{"key": "request.headers[x]"}]}, app="web"))
    by_both = {name: Heard(guard(denying)) for name in ABLE}
    status = decided(denying, fault, heard=by_both)
    assert said(status) == ("False", "Unreadable")
    assert status["enforcedBy"] == ["a", "b"]
    text = "it cannot be read and denies everything (by 2 sidecars): spec.rules[0].when is not supported"
    assert status["conditions"][0]["message"] == text
    assert said(decided(denying, fault, pods=Pods(secured=True))) == ("False", "Unreadable")
    waiting = decided(denying, fault)
    assert said(waiting) == ("False", "WaitsForSidecars")
    assert waiting["conditions"][0]["message"].endswith(": spec.rules[0].when is not supported")


def test_rules_of_requests_need_a_port_of_http():
    heard = {name: Heard(guard(OF_PATHS)) for name in ABLE}
    assert said(decided(OF_PATHS, heard=heard, with_http={"a"}), "ProtocolKnown") == ("False", "NoHTTPPort")
    assert said(decided(OF_PATHS, heard=heard, with_http={"a", "b"}), "ProtocolKnown") == ("True", "ProtocolKnown")
    assert len(decided(OWN, heard=heard)["conditions"]) == 1


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi(FakeClock())
    define(api)
    api.create(AUTHORIZATION_POLICY, OWN)
    return api


@pytest.fixture
def context(api: FakeApi) -> Iterator[Context]:
    clock = FakeClock()
    context = Context(api, EventRecorder(api, "minik8s-pilot", clock=clock), Informers(api), clock)
    context.informers.start()
    yield context
    context.informers.stop()
    context.pool.shutdown()


def test_it_is_written_by_what_sidecars_say_and_a_refusal_is_an_event(api: FakeApi, context: Context):
    clock, policies = FakeClock(), PolicyCopies(context, try_to_enforce)
    made = Enforcements(replace(context, clock=clock), policies, lambda _space: Pods(secured=True, able=ABLE))
    policies.start()
    made.start()

    def written(wanted: tuple[str, str]) -> bool:
        clock.advance(1)
        status = objects.status(api.get(AUTHORIZATION_POLICY, "own", "shop"))
        return bool(status) and said(status) == wanted

    try:
        until(lambda: written(("False", "WaitsForSidecars")))
        for name in ABLE:
            made.heard("shop", name, Heard(guard(OWN)))
        until(lambda: written(("True", "Enforced")))
        made.heard("shop", "a", Heard(guard(OWN), "no such matcher"))
        made.heard("shop", "a", Heard(guard(OWN), "no such matcher"))
        until(lambda: written(("False", "RefusedBySidecar")))
        assert context.recorder.write_one()
        (event,) = api.list(EVENT, "shop").items
        assert event["involvedObject"]["kind"] == "AuthorizationPolicy"
        assert event["message"] == "the sidecar of Pod a refused it: no such matcher"
    finally:
        made.stop()
        policies.stop()


def test_what_cannot_be_read_of_a_policy_is_written_beside_the_others(api: FakeApi, context: Context):
    clock, policies = FakeClock(), PolicyCopies(context, try_to_enforce)
    api.create(AUTHORIZATION_POLICY, policy("odd", {"when": [{"key": "x"}]}))
    made = Enforcements(replace(context, clock=clock), policies, lambda _space: Pods(secured=True))
    policies.start()
    made.start()

    def told(name: str) -> JsonObject:
        clock.advance(1)
        return objects.condition(api.get(AUTHORIZATION_POLICY, name, "shop"), "Enforced") or {}

    try:
        until(lambda: told("odd").get("reason") == "Unreadable")
        assert told("odd")["message"].endswith(": spec.rules[0].when is not supported")
        until(lambda: told("own").get("reason") == "NoPods")
        api.update(AUTHORIZATION_POLICY, {**api.get(AUTHORIZATION_POLICY, "odd", "shop"), "spec": OWN["spec"]})
        until(lambda: told("odd").get("reason") == "NoPods")
    finally:
        made.stop()
        policies.stop()
