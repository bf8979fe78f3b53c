"""Definitions are taken over as they are stored: a null where it may be meant keeps no kind from being served."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest

from minik8s_modules.api.kinds import CUSTOM_RESOURCE_DEFINITION, KINDS, PERSISTENT_VOLUME
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.schema.shapes import kind_shape
from minik8s_modules.apiserver.http import target as targets
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.settings import Limits
from minik8s_modules.apiserver.intake.limits import Admission
from minik8s_modules.apiserver.reads.hub import Hub
from minik8s_modules.apiserver.serving.definitions import Definitions
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.base.metrics import Registry
from minik8s_modules.store import readable
from minik8s_modules.store.cached import CachedObject
from tests.support.waiting import until
from tests.support.wrong_types import made
from tests.unit.apiserver.serving.test_objects_of_wrong_types import (
    Server,
    damaged,
    path_of,
    requests,
)

DEFINITIONS = path_of(CUSTOM_RESOURCE_DEFINITION)
KEY = CUSTOM_RESOURCE_DEFINITION.key("", "foos.x.io")
FOOS = "/apis/x.io/v1/namespaces/default/foos"
FOO: JsonObject = {"apiVersion": "x.io/v1", "kind": "Foo", "metadata": {"name": "f"}}
SAYS_NULL: dict[str, tuple[JsonObject, JsonObject]] = {
    "a description": ({"description": "may be null"}, {}),
    "a field": ({"nullable": True, "default": None}, {}),
    "an annotation": ({}, {"last-applied": '{"metadata":{"creationTimestamp":null}}'}),
}


@pytest.fixture
def server(backend: Backend, hub: Hub) -> Server:
    return Server(backend, hub)


@pytest.fixture
def hub(backend: Backend, clock: FakeClock) -> Iterator[Hub]:
    made = Hub(clock, backend.cache, Admission(Limits(), Registry()))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def definitions(backend: Backend, hub: Hub) -> Definitions:
    return Definitions(backend, hub, "own")


def definition(field: JsonObject, annotations: JsonObject) -> JsonObject:
    """Return a definition of Foos, which have a field ``a``."""
    schema = {"type": "object", "properties": {"a": {"type": "string"} | field}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.x.io", "annotations": annotations},
        "spec": {"group": "x.io", "scope": "Namespaced", "names": names, "versions": [version]},
    }


def looked(definitions: Definitions, condition: Callable[[], bool]) -> None:
    """Have definitions taken over until ``condition`` holds."""

    def holds() -> bool:
        definitions.look()
        return condition()

    until(holds, 20)


def changed(backend: Backend, change: Callable[[JsonObject], Any]) -> None:
    """Change the stored definition by hand."""
    entry = backend.store.get(KEY)
    assert entry is not None
    obj = orjson.loads(entry.value)
    change(obj)
    backend.settle(backend.store.update(KEY, orjson.dumps(obj), entry.revision))


@pytest.mark.parametrize(("field", "annotations"), SAYS_NULL.values(), ids=SAYS_NULL)
def test_a_definition_that_says_null_is_served_updated_and_deleted(
    server: Server, definitions: Definitions, field: JsonObject, annotations: JsonObject
) -> None:
    assert server.ask("POST", DEFINITIONS, definition(field, annotations))[0] == 201
    looked(definitions, lambda: server.ask("POST", FOOS, {**FOO, "a": "b"})[0] == 201)
    shown = server.ask("GET", f"{DEFINITIONS}/foos.x.io")[1]
    shown["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["b"] = {"type": "string"}
    assert server.ask("PUT", f"{DEFINITIONS}/foos.x.io", shown)[0] == 200
    looked(definitions, lambda: server.ask("PUT", f"{FOOS}/f", {**FOO, "b": "c"})[1].get("b") == "c")
    assert server.ask("DELETE", f"{DEFINITIONS}/foos.x.io")[0] == 200
    looked(definitions, lambda: server.ask("GET", f"{DEFINITIONS}/foos.x.io")[0] == 404)
    assert server.backend.store.get("/registry/x.io/foos/default/f") is None


def test_a_definition_with_nulls_of_another_release_is_served(
    server: Server, backend: Backend, hub: Hub, definitions: Definitions
) -> None:
    assert server.ask("POST", DEFINITIONS, definition({}, {}))[0] == 201
    looked(definitions, lambda: server.ask("GET", FOOS)[0] == 200)
    changed(backend, lambda obj: obj["status"].update(storedVersions=None))
    changed(backend, lambda obj: obj["spec"].update(conversion=None))
    backend.kinds.registry = KINDS  # of a server that has just started
    targets.forget()
    assert server.ask("GET", FOOS)[0] == 404
    Definitions(backend, hub, "again").look()
    assert server.ask("GET", FOOS)[0] == 200


@pytest.mark.parametrize("names", ["text", {}, None])
def test_a_definition_that_cannot_be_read_stays_what_it_was(
    server: Server, backend: Backend, definitions: Definitions, names: Any
) -> None:
    assert server.ask("POST", DEFINITIONS, definition({}, {}))[0] == 201
    looked(definitions, lambda: server.ask("POST", FOOS, FOO)[0] == 201)
    changed(backend, lambda obj: obj["spec"].update(names=names))
    definitions.look()
    assert server.ask("GET", f"{FOOS}/f")[0] == 200


def test_an_object_that_says_null_in_a_text_is_read_as_any_other() -> None:
    obj = {"metadata": {"name": "a", "annotations": {"a": "null"}}, "spec": {"capacity": {"storage": "1"}}}
    item = CachedObject("/a", orjson.dumps(obj), 5, {})
    assert readable.objects_of(PERSISTENT_VOLUME, [item])[0] is item.object
    assert readable.objects_of(PERSISTENT_VOLUME, [item])[0] is item.object
    assert readable.why(PERSISTENT_VOLUME, item) is None


def test_custom_objects_of_wrong_types_are_answered(server: Server, backend: Backend, definitions: Definitions) -> None:
    inner = {
        "type": "object",
        "properties": {"c": {"type": "integer"}, "d": {"type": "array", "items": {"type": "string"}}},
    }
    fields = {"type": "object", "properties": {"b": inner, "e": {"type": "array", "items": inner}}}
    assert server.ask("POST", DEFINITIONS, definition(fields, {}))[0] == 201
    looked(definitions, lambda: server.ask("GET", FOOS)[0] == 200)
    kind = next(kind for kind in backend.kinds.registry.all() if kind.plural == "foos")
    sound, failures = {**made(kind_shape(kind)), "apiVersion": kind.api_version, "kind": kind.kind}, []
    for number, obj in enumerate([*damaged(kind, "foos"), {**sound, "metadata": {}, "a": "text"}]):
        name = f"d{number}"
        backend.settle(backend.store.create(kind.key("default", name), orjson.dumps(obj)))
        for method, path, body, media, accept in requests(kind, name, sound):
            code, answer = server.ask(method, path, body, media, accept)
            if code >= 500:
                failures.append((method, path, media, answer.get("message"), obj))
        assert server.ask("DELETE", path_of(kind, name))[0] in {200, 404}
    assert not failures, "\n".join(map(str, failures[:6]))
