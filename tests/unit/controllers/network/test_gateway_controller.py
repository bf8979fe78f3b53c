"""The loop that keeps what a Gateway runs as, beside programs that disagree and objects that were there before."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.defaulting.defaults import apply_defaults
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import CUSTOM_RESOURCE_DEFINITION, DEPLOYMENT, EVENT, SERVICE
from minik8s_modules.api.merging.typed_merge import merge
from minik8s_modules.api.network.gateway_api import CONTROLLER, GATEWAY_KINDS, name_of_parts
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.schema.shapes import kind_shape
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.network.gateways import PARTS, Apply, GatewayController
from minik8s_modules.controllers.network.reverting import AT_ONCE
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from tests.support.gateway_api import definitions
from tests.support.waiting import until

SPACE, NAME = "shop", name_of_parts("edge")


class Api(FakeApi):
    """One that applies; ``webhook`` is an image that each written Deployment gets, with ``stamps`` a count besides."""

    def __init__(self) -> None:
        super().__init__()
        self.webhook, self.stamps = "", False
        self.applied: list[float] = []

    def patch(self, kind: Kind, name: str, namespace: str, body: Any, **options: Any) -> JsonObject:
        """Patch, or apply."""
        if options.get("patch_type") != "apply":
            return super().patch(kind, name, namespace, body, **options)
        try:
            old = self.get(kind, name, namespace)
        except NotFound:
            made = copy.deepcopy(body)
            apply_defaults(kind, made)
            return self.create(kind, made)
        if kind == DEPLOYMENT:
            self.applied.append(time.monotonic())
        new: JsonObject = merge(kind_shape(kind), copy.deepcopy(old), copy.deepcopy(body))
        if kind == DEPLOYMENT and self.webhook:
            set_image(new, self.webhook)
            if self.stamps:
                objects.annotations(new)["example.com/at"] = str(len(self.applied))
        apply_defaults(kind, new)
        return self.update(kind, new)


def set_image(deployment: JsonObject, image: str) -> None:
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = image


def image_of(deployment: JsonObject) -> str:
    return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])


@pytest.fixture
def api() -> Iterator[Api]:
    made = Api()
    accepted = {"conditions": [{"type": each, "status": "True"} for each in ("Established", "NamesAccepted")]}
    for each in definitions():
        names = each["spec"]["names"]
        made.create(CUSTOM_RESOURCE_DEFINITION, {**each, "status": {**accepted, "acceptedNames": names}})
    made.create(GATEWAY_KINDS.classes, {"metadata": {"name": "ours"}, "spec": {"controllerName": CONTROLLER}})
    recorder = EventRecorder(made, "test")
    context = Context(made, recorder, Informers(made))
    controller = GatewayController(context)
    for part in (recorder, context.informers, controller):
        part.start()
    yield made
    for part in (controller, context.informers, recorder):
        part.stop()
    context.pool.shutdown()


def create(api: Api) -> None:
    listeners = [{"name": "http", "port": 80, "protocol": "HTTP"}]
    spec = {"gatewayClassName": "ours", "listeners": listeners}
    api.create(GATEWAY_KINDS.gateways, {"metadata": {"name": "edge", "namespace": SPACE, "uid": "u"}, "spec": spec})


def parts(api: Api) -> set[str]:
    return {kind.kind for kind in PARTS if any(objects.controller_of(each) for each in api.list(kind, SPACE).items)}


def is_made(api: Api) -> bool:
    return parts(api) == {kind.kind for kind in PARTS}


def told(api: Api, reason: str) -> list[JsonObject]:
    return [each for each in api.list(EVENT, SPACE).items if each["reason"] == reason]


def edit(api: Api, image: str) -> None:
    edited = api.get(DEPLOYMENT, NAME, SPACE)
    set_image(edited, image)
    api.update(DEPLOYMENT, edited)


def test_a_program_that_sets_a_field_again_at_once_is_reverted_ever_later(api: Api) -> None:
    create(api)
    until(lambda: is_made(api))

    def again() -> bool:
        if image_of(api.get(DEPLOYMENT, NAME, SPACE)) == "minik8s/envoy:1":
            edit(api, "mine:1")
        return len(api.applied) > AT_ONCE

    until(again)
    assert api.applied[AT_ONCE] - api.applied[AT_ONCE - 1] >= 1
    until(lambda: len(told(api, "Reverted")) == 1)  # and not one each time


def test_what_a_webhook_sets_on_every_write_is_no_revert_and_no_loop(api: Api) -> None:
    create(api)
    until(lambda: is_made(api))
    api.webhook = "mirror.example/envoy:1"
    edit(api, api.webhook)
    until(lambda: api.applied)
    written = objects.resource_version(api.get(DEPLOYMENT, NAME, SPACE))
    edited = api.get(SERVICE, NAME, SPACE)
    edited["spec"]["type"] = "ClusterIP"
    api.update(SERVICE, edited)  # the whole Gateway is looked at again
    until(lambda: told(api, "Reverted"))
    until(lambda: api.get(SERVICE, NAME, SPACE)["spec"]["type"] == "LoadBalancer")
    assert objects.resource_version(api.get(DEPLOYMENT, NAME, SPACE)) == written
    assert {each["message"].split()[0] for each in told(api, "Reverted")} == {"Service"}


def test_a_webhook_that_sets_another_value_on_every_write_is_no_revert_and_is_written_ever_later(api: Api) -> None:
    create(api)
    until(lambda: is_made(api))
    api.webhook, api.stamps = "mirror.example/envoy:1", True
    edit(api, api.webhook)
    until(lambda: len(api.applied) > AT_ONCE)
    assert api.applied[AT_ONCE] - api.applied[AT_ONCE - 1] >= 1
    assert told(api, "Reverted") == []


def test_a_gateway_whose_name_is_taken_is_made_once_that_object_goes(api: Api) -> None:
    api.create(SERVICE, {"metadata": {"name": NAME, "namespace": SPACE}, "spec": {"ports": [{"port": 80}]}})
    create(api)
    until(lambda: told(api, "NameTaken"))
    api.delete(SERVICE, NAME, SPACE)
    until(lambda: is_made(api))


def test_an_owner_that_is_edited_away_is_told(api: Api) -> None:
    create(api)
    until(lambda: is_made(api))
    orphan = api.get(DEPLOYMENT, NAME, SPACE)
    orphan["metadata"]["ownerReferences"] = []
    api.update(DEPLOYMENT, orphan)
    until(lambda: told(api, "NameTaken"))


def test_an_object_that_came_just_now_and_is_in_no_copy_yet_is_not_taken_over(api: Api) -> None:
    theirs = api.create(SERVICE, {"metadata": {"name": NAME, "namespace": SPACE}, "spec": {"ports": [{"port": 80}]}})
    wanted = {"metadata": {"name": NAME, "namespace": SPACE, "labels": {"mine": "yes"}}}
    late = GatewayController(Context(api, EventRecorder(api, "test"), Informers(api)))
    assert not late._take(Apply(SERVICE, wanted), {}).written
    assert api.get(SERVICE, NAME, SPACE) == theirs
