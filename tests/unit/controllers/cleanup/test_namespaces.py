"""Deleting namespaces: every file of tests/cases/decide_namespace is one decision; then the controller at work."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import CONFIG_MAP, KINDS, NAMESPACE, POD, SECRET, Kind
from minik8s_modules.api.objects import Key
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.fake import FakeApi, passing_error
from minik8s_modules.client.informer import PAGE, Informer
from minik8s_modules.client.interface import ObjectList
from minik8s_modules.client.silences import AGAIN_S
from minik8s_modules.client.transport import READ_TIMEOUT_S
from minik8s_modules.controllers.cleanup.extensions import Extended, extended, kinds_in
from minik8s_modules.controllers.cleanup.namespaces import (
    DeleteContent,
    Finalize,
    NamespaceController,
    SetConditions,
    Step,
    changed_conditions,
    decide_namespace,
    namespaced_kinds,
    wanted_conditions,
)

CASES = sorted((Path(__file__).parents[3] / "cases" / "decide_namespace").glob("*.yml"))
NOW = "2026-01-01T00:00:00Z"


def thing(fields: dict[str, Any]) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "x", "finalizers": fields.get("finalizers", [])}
    if fields.get("deleting"):
        metadata["deletionTimestamp"] = NOW
    return {"metadata": metadata}


def namespace(fields: dict[str, Any]) -> dict[str, Any]:
    made = thing({"deleting": fields.get("deleting", True)})
    return {**made, "spec": {"finalizers": fields.get("finalizers", ["kubernetes"])}, "status": {}}


def words(step: Step) -> str:
    match step:
        case DeleteContent(kind):
            return f"delete {kind.resource}"
        case SetConditions():
            return "conditions"
        case Finalize():
            return "finalize"


def kind_of(resource: str) -> Kind:
    return next(kind for kind in KINDS.all() if kind.resource == resource)


def test_there_are_cases():
    assert len(CASES) >= 10


@pytest.mark.parametrize("spec", ["text", {"finalizers": "x"}, {"finalizers": ["kubernetes", 5]}])
def test_a_namespace_whose_spec_cannot_be_read_is_finalized_all_the_same(spec: object, monkeypatch: pytest.MonkeyPatch):
    api, about = FakeApi(), {**namespace({}), "spec": spec}
    assert decide_namespace(about, {}, {}, NOW) == (Finalize(),)
    sent: list[Any] = []
    monkeypatch.setattr(api, "update", lambda _kind, body, subresource: sent.append((body["spec"], subresource)))
    NamespaceController(api)._finalize(Key("", "x"), about)
    assert sent == [({"finalizers": []}, "finalize")]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_decide_namespace(path: Path):
    case = yaml.safe_load(path.read_text())
    wanted = {kind_of(resource): [thing(one) for one in found] for resource, found in case["content"].items()}
    content = {kind: wanted[kind] for kind in namespaced_kinds() if kind in wanted}
    about = namespace(case.get("namespace", {}))
    if case.get("namespace", {}).get("told"):
        about["status"]["conditions"] = changed_conditions(about, wanted_conditions(content, {}), NOW)
    steps = decide_namespace(about, content, case.get("failures", {}), NOW)
    assert [words(step) for step in steps] == case["expect"]
    one = {each["type"]: each for step in steps if isinstance(step, SetConditions) for each in step.conditions}
    for key, kind in (
        ("remaining", "NamespaceContentRemaining"),
        ("finalizers", "NamespaceFinalizersRemaining"),
        ("failure", "NamespaceDeletionContentFailure"),
    ):
        if key in case:
            assert (one[kind]["status"], one[kind]["message"]) == ("True", case[key])


def test_views_of_other_kinds_and_kinds_that_are_not_kept_are_no_content():
    plurals = [kind.resource for kind in namespaced_kinds()]
    assert plurals[0] == "pods"
    assert "events.events.k8s.io" not in plurals
    assert len(plurals) == len(set(plurals))
    assert {"secrets", "configmaps", "services", "events", "leases.coordination.k8s.io"} <= set(plurals)


def a_namespace_with_content(api: FakeApi) -> None:
    made = {"metadata": {"name": "shop", "finalizers": ["x"]}, "spec": {"finalizers": ["kubernetes"]}}
    created = api.create(NAMESPACE, made)
    for kind in (CONFIG_MAP, SECRET, POD):
        for name in ("a", "b"):
            api.create(kind, {"metadata": {"name": name, "namespace": "shop"}, "spec": {}})
        api.create(kind, {"metadata": {"name": "a", "namespace": "other"}, "spec": {}})
    api.delete(NAMESPACE, "shop")
    marked = api.get(NAMESPACE, "shop")
    marked["metadata"]["finalizers"] = []
    api.update(NAMESPACE, marked)
    assert created


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def controller(api: FakeApi) -> Iterator[NamespaceController]:
    controller = NamespaceController(api)
    yield controller
    controller.stop()


def until(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.01)


def exists(api: FakeApi, kind: Kind, name: str, namespace: str = "") -> bool:
    try:
        api.get(kind, name, namespace)
    except NotFound:
        return False
    return True


def test_a_namespace_goes_with_its_content_and_nothing_else(api: FakeApi, controller: NamespaceController):
    controller.start()
    a_namespace_with_content(api)
    until(lambda: not exists(api, NAMESPACE, "shop"))
    assert {kind: len(api.list(kind).items) for kind in (CONFIG_MAP, SECRET, POD)} == dict.fromkeys(
        (CONFIG_MAP, SECRET, POD), 1
    )


@pytest.mark.parametrize("steps_taken", range(6))
def test_a_crash_between_any_two_steps_leaves_the_rest_to_the_successor(api: FakeApi, steps_taken: int):
    a_namespace_with_content(api)
    first = NamespaceController(api)
    key, taken = Key("", "shop"), list[str]()
    while len(taken) < steps_taken:
        about = api.get(NAMESPACE, "shop")
        steps = decide_namespace(about, first._content("shop"), {}, NOW)
        first._take(key, about, steps[0])
        taken.append(words(steps[0]))
        # what is planned after a step is what was planned behind it, or has been done by it
        if exists(api, NAMESPACE, "shop"):
            again = decide_namespace(api.get(NAMESPACE, "shop"), first._content("shop"), {}, NOW)
            assert words(steps[0]) not in map(words, again)
        else:
            break
    NamespaceController(api).sync(key)
    assert not exists(api, NAMESPACE, "shop")
    assert [obj["metadata"]["namespace"] for obj in api.list(CONFIG_MAP).items] == ["other"]


def test_it_waits_for_pods_that_end_with_grace(api: FakeApi, controller: NamespaceController):
    a_namespace_with_content(api)
    bound = {"metadata": {"name": "slow", "namespace": "shop"}, "spec": {"nodeName": "n"}}
    api.create(POD, bound)
    controller.sync(Key("", "shop"))
    assert exists(api, CONFIG_MAP, "a", "shop")
    conditions = {each["type"]: each for each in api.get(NAMESPACE, "shop")["status"]["conditions"]}
    assert conditions["NamespaceContentRemaining"]["status"] == "True"
    api.delete(POD, "slow", "shop", grace_s=0)
    controller.sync(Key("", "shop"))
    assert not exists(api, NAMESPACE, "shop")


def test_what_goes_is_seen_without_looking_again(api: FakeApi):
    copies = [Informer(api, kind) for kind in (POD, CONFIG_MAP, SECRET)]
    controller = NamespaceController(api, copies=copies)
    for copy in copies:
        copy.start()
    controller.start()
    api.create(POD, {"metadata": {"name": "slow", "namespace": "shop"}, "spec": {"nodeName": "n"}})
    a_namespace_with_content(api)
    until(lambda: len(api.list(POD, "shop").items) == 1, 60)
    until(lambda: "NamespaceContentRemaining" in str(api.get(NAMESPACE, "shop")), 60)
    api.delete(POD, "slow", "shop", grace_s=0)
    until(lambda: not exists(api, NAMESPACE, "shop"), 60)
    controller.stop()
    for copy in copies:
        copy.stop()


def test_many_that_go_one_by_one_are_listed_few_times(api: FakeApi):
    copies = [Informer(api, kind) for kind in (POD, CONFIG_MAP, SECRET)]
    controller = NamespaceController(api, copies=copies)
    for copy in copies:
        copy.start()
    controller.start()
    for number in range(200):
        api.create(POD, {"metadata": {"name": f"p{number}", "namespace": "shop"}, "spec": {"nodeName": "n"}})
    a_namespace_with_content(api)
    until(lambda: all("deletionTimestamp" in pod["metadata"] for pod in api.list(POD, "shop").items), 60)
    until(lambda: "NamespaceContentRemaining" in str(api.get(NAMESPACE, "shop")), 60)
    api.calls.clear()
    for number in range(200):
        api.delete(POD, f"p{number}", "shop", grace_s=0)
        time.sleep(0.002)
    until(lambda: not exists(api, NAMESPACE, "shop"), 60)
    controller.stop()
    for copy in copies:
        copy.stop()
    looks = sum(call[:2] == ("list", "configmaps") for call in api.calls)
    assert looks <= 16  # 200, 100, 50, … and the last ones as they go; else one every 50 ms


def test_a_deletion_that_is_refused_shows_in_the_conditions_and_is_tried_again(
    api: FakeApi, controller: NamespaceController
):
    a_namespace_with_content(api)
    delete = api.delete_collection
    refused: list[Kind] = []

    def refuse_once(kind: Kind, namespace: str) -> None:
        if kind == SECRET and len(refused) < 4:
            refused.append(kind)
            raise passing_error("the server is tired")
        delete(kind, namespace)

    api.delete_collection = refuse_once  # type: ignore[method-assign]  # one verb of one kind fails
    controller.sync(Key("", "shop"))
    conditions = {each["type"]: each for each in api.get(NAMESPACE, "shop")["status"]["conditions"]}
    assert "secrets: the server is tired" in conditions["NamespaceDeletionContentFailure"]["message"]
    controller.sync(Key("", "shop"))
    assert not exists(api, NAMESPACE, "shop")


FLUNDER = Kind("wardle.example.com", "v1", "Flunder", "flunders", "", verbs=("list", "delete"))


def test_what_extensions_keep_goes_with_a_namespace_one_by_one_where_it_must(api: FakeApi):
    api.create(FLUNDER, {"metadata": {"name": "one", "namespace": "shop"}})
    api.create(FLUNDER, {"metadata": {"name": "two", "namespace": "shop"}})
    a_namespace_with_content(api)
    fischer = Kind("wardle.example.com", "v1", "Fischer", "fischers", "", namespaced=False)
    api.create(fischer, {"metadata": {"name": "stays"}})
    controller = NamespaceController(api, extensions=lambda: Extended((fischer, FLUNDER), {}))
    controller.sync(Key("", "shop"))
    assert not exists(api, NAMESPACE, "shop")
    assert not api.list(FLUNDER).items
    assert len(api.list(fischer).items) == 1


def test_of_everything_in_a_namespace_pages_are_asked_for_and_only_who_it_is_is_kept(api: FakeApi):
    widget = Kind("example.com", "v1", "Widget", "widgets", "")
    kinds = SimpleNamespace(
        informer=SimpleNamespace(wait_synced=lambda _timeout_s: True),
        all=lambda: (widget,),
        follow=lambda _follower: None,
    )
    for kind in (widget, FLUNDER):
        api.create(kind, {"metadata": {"name": "one", "namespace": "shop"}, "spec": {"large": "x" * 100}})
    a_namespace_with_content(api)
    real, asked = api.list, list[tuple[Kind, int]]()

    def listed(kind: Kind, *arguments: Any, **options: Any) -> ObjectList:
        found = real(kind, *arguments, **options)
        asked.append((kind, options.get("limit", 0)))
        assert not any("spec" in each for each in found.items)
        return found

    api.list = listed  # type: ignore[method-assign]
    informers = SimpleNamespace(custom=kinds)
    controller = NamespaceController(api, informers=informers, extensions=lambda: Extended((FLUNDER,), {}))  # type: ignore[arg-type]
    controller.sync(Key("", "shop"))
    assert not exists(api, NAMESPACE, "shop")
    assert {widget, FLUNDER, POD, SECRET} <= {kind for kind, _ in asked}
    assert {limit for _, limit in asked} == {PAGE}


def test_a_namespace_waits_for_an_extension_that_is_away(api: FakeApi):
    a_namespace_with_content(api)
    unknown = {"wardle.example.com/v1": "stale GroupVersion discovery: wardle.example.com/v1"}
    controller = NamespaceController(api, extensions=lambda: Extended((), unknown))
    controller.sync(Key("", "shop"))
    conditions = {each["type"]: each for each in api.get(NAMESPACE, "shop")["status"]["conditions"]}
    result = conditions["NamespaceDeletionDiscoveryFailure"]
    assert (result["status"], result["reason"]) == ("True", "DiscoveryFailed")
    assert result["message"] == (
        "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: "
        "wardle.example.com/v1: stale GroupVersion discovery: wardle.example.com/v1"
    )
    assert not api.list(CONFIG_MAP, "shop").items
    unknown.clear()
    controller.sync(Key("", "shop"))
    assert not exists(api, NAMESPACE, "shop")


def test_an_extension_that_keeps_silent_holds_up_one_look_at_a_time(api: FakeApi):
    for name in ("shop", "bank"):
        spec = {"finalizers": ["kubernetes"]}
        api.create(NAMESPACE, {"metadata": {"name": name, "finalizers": ["x"]}, "spec": spec})
        api.delete(NAMESPACE, name)
    clock, real, waited = FakeClock(), api.list, list[str]()

    def listed(kind: Kind, namespace: str = "", *arguments: Any, **options: Any) -> ObjectList:
        if kind != FLUNDER:
            return real(kind, namespace, *arguments, **options)
        waited.append(namespace)
        clock.advance(READ_TIMEOUT_S)
        raise ApiUnreachable("Read timed out.")

    api.list = listed  # type: ignore[method-assign]
    controller = NamespaceController(api, clock, extensions=lambda: Extended((FLUNDER,), {}))
    for name, text in (("shop", "Read timed out"), ("bank", "has kept silent"), ("shop", "has kept silent")):
        controller.sync(Key("", name))
        conditions = {each["type"]: each for each in api.get(NAMESPACE, name)["status"]["conditions"]}
        assert text in conditions["NamespaceDeletionDiscoveryFailure"]["message"]
    assert waited == ["shop"]
    clock.advance(AGAIN_S)
    controller.sync(Key("", "bank"))
    assert waited == ["shop", "bank"]


def test_one_kind_that_keeps_silent_leaves_an_extensions_other_objects_deleted(api: FakeApi):
    api.create(NAMESPACE, {"metadata": {"name": "shop", "finalizers": ["x"]}, "spec": {"finalizers": ["kubernetes"]}})
    fischer = replace(FLUNDER, kind="Fischer", plural="fischers")
    api.create(fischer, {"metadata": {"name": "a", "namespace": "shop"}})
    api.delete(NAMESPACE, "shop")
    clock, real = FakeClock(), api.list

    def listed(kind: Kind, namespace: str = "", *arguments: Any, **options: Any) -> ObjectList:
        if kind != FLUNDER:
            return real(kind, namespace, *arguments, **options)
        clock.advance(READ_TIMEOUT_S)
        raise ApiUnreachable("Read timed out.")

    api.list = listed  # type: ignore[method-assign]
    controller = NamespaceController(api, clock, extensions=lambda: Extended((FLUNDER, fischer), {}))
    controller.sync(Key("", "shop"))
    assert not real(fischer, "shop").items


def test_only_what_may_be_deleted_is_looked_for():
    found = discovered(
        {"resource": "flunders", "scope": "Namespaced", "verbs": ["list", "delete"]},
        {"resource": "fischers", "scope": "Cluster", "verbs": ["list", "delete"]},
        {"resource": "usages", "scope": "Namespaced", "verbs": ["list"]},
    )
    kinds = [(kind.plural, kind.namespaced) for kind in kinds_in(found, "wardle.example.com", "v1")]
    assert kinds == [("flunders", True), ("fischers", False)]


def discovered(*resources: dict[str, Any], freshness: str = "Current") -> dict[str, Any]:
    found = [{"responseKind": {"kind": "Flunder"}, **each} for each in resources]
    return {"version": "v1", "freshness": freshness, "resources": found}


class Discovery:
    """A client that answers discovery, and lists APIServices of these groups, all available."""

    def __init__(self, **versions: Any) -> None:
        self.versions = versions

    def list(self, _kind: Kind) -> ObjectList:
        """Return an APIService of each group."""
        conditions = {"conditions": [{"type": "Available", "status": "True"}]}
        spec = {"version": "v1", "service": {"namespace": "a", "name": "b"}}
        return ObjectList([{"spec": {**spec, "group": group}, "status": conditions} for group in self.versions], "1")

    def raw(self, _method: str, _path: str, headers: dict[str, str]) -> Any:
        """Return the discovery document."""
        assert "APIGroupDiscoveryList" in headers["Accept"]
        items = [{"metadata": {"name": group}, "versions": [each]} for group, each in self.versions.items()]
        return SimpleNamespace(status=200, data=json.dumps({"items": items}).encode())


def test_what_one_extension_lists_wrong_is_its_own_matter():
    good = discovered({"resource": "flunders", "scope": "Namespaced", "verbs": ["list", "delete"]})
    null = {**good, "resources": [None]}
    verbs = discovered({"resource": "flunders", "scope": "Namespaced", "verbs": 1})
    away = discovered(freshness="Stale")
    found = extended(Discovery(good=good, null=null, verbs=verbs, away=away))  # type: ignore[arg-type]
    assert [kind.group for kind in found.kinds] == ["good"]
    assert set(found.unknown) == {"null/v1", "verbs/v1", "away/v1"}
    assert found.unknown["away/v1"] == "stale GroupVersion discovery: away/v1"
    assert found.may_change
    assert not extended(Discovery()).may_change  # type: ignore[arg-type]


@pytest.mark.parametrize("items", [[None], [{}], [{"metadata": {"name": 1}}], [{"metadata": {"finalizers": 5}}]])
def test_a_list_that_holds_no_objects_keeps_no_namespace_from_being_emptied(api: FakeApi, items: list[Any]):
    a_namespace_with_content(api)
    real = api.list

    def listed(kind: Kind, *arguments: Any, **options: Any) -> ObjectList:
        return ObjectList(items, "1") if kind == FLUNDER else real(kind, *arguments, **options)

    api.list = listed  # type: ignore[method-assign]
    controller = NamespaceController(api, extensions=lambda: Extended((FLUNDER,), {}))
    controller.sync(Key("", "shop"))
    assert not real(CONFIG_MAP, "shop").items
    conditions = {each["type"]: each for each in api.get(NAMESPACE, "shop")["status"]["conditions"]}
    message = conditions["NamespaceDeletionDiscoveryFailure"]["message"]
    assert "wardle.example.com/v1: flunders cannot be listed" in message


def test_what_is_known_goes_before_extensions_are_asked(api: FakeApi):
    a_namespace_with_content(api)

    def fail() -> Extended:
        assert not api.list(POD, "shop").items
        raise passing_error()

    controller = NamespaceController(api, extensions=fail)
    for _ in range(2):
        with pytest.raises(type(passing_error())):
            controller.sync(Key("", "shop"))
    assert not api.list(CONFIG_MAP, "shop").items
