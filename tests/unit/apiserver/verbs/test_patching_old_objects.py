"""What is stored may be of other types than its kind now has: that is no error of the server's."""

from __future__ import annotations

import contextlib
from typing import Any

import orjson
import pytest

from minik8s_modules.api.errors import BadRequest, StatusError
from minik8s_modules.api.kinds import CONFIG_MAP, DEPLOYMENT, NAMESPACE, POD, SECRET, SERVICE, Kind
from minik8s_modules.api.objects import JsonObject, labels, metadata
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.verbs import applying, deleting, patching, writing
from minik8s_modules.store import readable

CONTAINER: JsonObject = {"name": "c", "image": "i"}
MADE: dict[Kind, JsonObject] = {
    CONFIG_MAP: {"metadata": {"name": "a"}, "data": {"k": "v"}},
    SECRET: {"metadata": {"name": "a"}, "data": {"k": "dg=="}},
    POD: {"metadata": {"name": "a"}, "spec": {"containers": [CONTAINER]}},
    SERVICE: {"metadata": {"name": "a"}, "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}},
    DEPLOYMENT: {
        "metadata": {"name": "a"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}},
        },
    },
}
NULLS: list[tuple[Kind, str, Any]] = [
    (CONFIG_MAP, "data", {"a": None}),
    (CONFIG_MAP, "metadata.labels", {"a": None}),
    (DEPLOYMENT, "spec.template", None),
    (POD, "spec", None),
    (POD, "spec.containers", [None]),
    (POD, "spec.containers.0.env", [None]),
    (SERVICE, "spec.ports", [None]),
]
OF_OTHER_TYPES: list[tuple[Kind, str, Any]] = [
    (CONFIG_MAP, "data", ["a"]),
    (CONFIG_MAP, "data", {"a": 1}),
    (SECRET, "data", {"a": 1}),
    (POD, "spec", "x"),
    (POD, "spec.tolerations", {}),
    (POD, "spec.volumes", "x"),
    (POD, "spec.containers.0.ports", "80"),
    (POD, "spec.containers.0.resources", []),
    (POD, "spec.containers.0.resources", {"requests": {"cpu": "x"}}),
    (POD, "status", []),
    (DEPLOYMENT, "spec.replicas", "3"),
    (DEPLOYMENT, "spec.strategy", "Recreate"),
    (DEPLOYMENT, "spec.selector", []),
    (SERVICE, "spec.ports", {}),
    (SERVICE, "spec.ports.0.port", "80"),
    (SERVICE, "spec.clusterIPs", "10.0.0.1"),
    (SERVICE, "status", []),
]
LABELLED = {"metadata": {"labels": {"x": "y"}}}


def stored_with(backend: Backend, kind: Kind, path: str, value: Any, options: Options) -> Target:
    """Have the store hold an object with another value at ``path``, as an older version may have left it."""
    writing.create(backend, Target(kind, "default"), orjson.loads(orjson.dumps(MADE[kind])), options)
    target = Target(kind, "default", "a")
    item = backend.get(target)
    obj = orjson.loads(item.data)
    del obj["metadata"]["resourceVersion"]
    *above, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    at = obj
    for part in above:
        at = at[part]
    at[last] = value
    backend.settle(backend.store.update(item.key, orjson.dumps(obj), item.revision))
    return target


def patched(backend: Backend, target: Target, wanted: object, media: str, options: Options) -> JsonObject:
    return writing.patch(backend, target, patching.mutation_of(target, orjson.dumps(wanted), media), options).object


def configured(kind: Kind) -> JsonObject:
    made = MADE[kind]
    meta = {**metadata(made), **LABELLED["metadata"]}
    return {"apiVersion": kind.api_version, "kind": kind.kind, **made, "metadata": meta}


@pytest.mark.parametrize(("kind", "path", "value"), OF_OTHER_TYPES)
def test_a_patch_of_what_cannot_be_read_is_refused_as_such(
    backend: Backend, options: Options, kind: Kind, path: str, value: Any
) -> None:
    target = stored_with(backend, kind, path, value, options)
    before = backend.latest(target).data
    for media in (patching.MERGE_PATCH, patching.STRATEGIC_MERGE_PATCH):
        with pytest.raises(BadRequest, match="cannot be handled as"):
            patched(backend, target, LABELLED, media, options)
    assert backend.latest(target).data == before


@pytest.mark.parametrize(("kind", "path", "value"), NULLS)
def test_nulls_of_what_is_stored_count_as_absent(
    backend: Backend, options: Options, kind: Kind, path: str, value: Any
) -> None:
    target = stored_with(backend, kind, path, value, options)
    for media in (patching.MERGE_PATCH, patching.STRATEGIC_MERGE_PATCH):
        with contextlib.suppress(StatusError):  # what is left may break a rule
            found = patched(backend, target, LABELLED, media, options)
            assert labels(found)["x"] == "y"
            assert b"null" not in backend.latest(target).data


def test_a_patch_works_beside_a_null(backend: Backend, options: Options) -> None:
    target = stored_with(backend, CONFIG_MAP, "data", {"a": None, "b": "c"}, options)
    found = patched(backend, target, LABELLED, patching.MERGE_PATCH, options)
    assert (labels(found), found["data"]) == ({"x": "y"}, {"a": "", "b": "c"})


EVERY = [*NULLS, *OF_OTHER_TYPES]


@pytest.mark.parametrize(("kind", "path", "value"), EVERY)
def test_every_way_to_patch_is_answered(backend: Backend, options: Options, kind: Kind, path: str, value: Any) -> None:
    target = stored_with(backend, kind, path, value, options)
    config, owner = configured(kind), options._replace(manager="me", force=True, dry_run=True)
    with contextlib.suppress(StatusError):
        applying.apply(backend, target, orjson.dumps(config), owner, {"fieldManager": "me"})
    with contextlib.suppress(StatusError):
        add = [{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}]
        patched(backend, target, add, patching.JSON_PATCH, owner)
    with contextlib.suppress(StatusError):
        status = target._replace(subresource="status")
        patched(backend, status, {"status": {"a": "b"}}, patching.MERGE_PATCH, owner)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.generation", "1"),
        ("metadata.labels", "text"),
        ("metadata.labels", {"a": 5}),
        ("metadata.finalizers", "text"),
        ("metadata.ownerReferences", [5]),
        ("metadata.uid", 5),
        ("metadata.name", ["a"]),
        ("metadata", "text"),
        ("metadata", None),
    ],
)
def test_of_metadata_what_can_be_read_is_shown_and_patched(
    backend: Backend, options: Options, path: str, value: Any
) -> None:
    target = stored_with(backend, CONFIG_MAP, path, value, options)
    shown = backend.get(target).object["metadata"]
    assert (shown["name"], shown["namespace"]) == ("a", "default")
    assert shown["uid"] == metadata(backend.latest(target).object)["uid"], "it is the same each time"
    found = patched(backend, target, LABELLED, patching.MERGE_PATCH, options)
    assert (labels(found), found["data"]) == ({"x": "y"}, {"k": "v"})
    assert metadata(found)["uid"] == shown["uid"]


# of Pods nearly nothing can be changed, selectors are for ever, and a status is not replaced with the rest
MENDED = [each for each in OF_OTHER_TYPES if each[0] != POD and each[1] not in {"status", "spec.selector"}]


@pytest.mark.parametrize(("kind", "path", "value"), MENDED)
def test_a_put_mends_what_cannot_be_read(backend: Backend, options: Options, kind: Kind, path: str, value: Any) -> None:
    target = stored_with(backend, kind, path, value, options)
    writing.update(backend, target, configured(kind), options)
    assert readable.why(kind, backend.latest(target)) is None


def test_what_cannot_be_read_is_not_lost_by_a_status(backend: Backend, options: Options) -> None:
    target = stored_with(backend, DEPLOYMENT, "spec.strategy", "Recreate", options)
    before = backend.latest(target).data
    with contextlib.suppress(StatusError):
        writing.update(
            backend, target._replace(subresource="status"), {**configured(DEPLOYMENT), "status": {}}, options
        )
    assert orjson.loads(backend.latest(target).data)["spec"] == orjson.loads(before)["spec"]


@pytest.mark.parametrize("finalizers", [[], ["e.io/f"]])
@pytest.mark.parametrize(("kind", "path", "value"), EVERY)
def test_what_cannot_be_read_can_be_deleted(
    backend: Backend, options: Options, kind: Kind, path: str, value: Any, finalizers: list[str]
) -> None:
    target = stored_with(backend, kind, path, value, options)
    item = backend.latest(target)
    obj = orjson.loads(item.data)
    del obj["metadata"]["resourceVersion"]
    obj["metadata"]["finalizers"] = finalizers
    backend.settle(backend.store.update(item.key, orjson.dumps(obj), item.revision))
    deleting.delete(backend, target, {"gracePeriodSeconds": 0}, options)
    left = backend.store.get(item.key)
    if not finalizers:
        assert left is None
        return
    assert left is not None
    kept = orjson.loads(left.value)
    assert metadata(kept)["deletionTimestamp"]
    assert {part: value for part, value in kept.items() if part != "metadata"} == {
        part: value for part, value in obj.items() if part != "metadata"
    }


@pytest.mark.parametrize(("kind", "path", "value"), EVERY)
def test_a_put_replaces_what_cannot_be_read_or_says_why_not(
    backend: Backend, options: Options, kind: Kind, path: str, value: Any
) -> None:
    target = stored_with(backend, kind, path, value, options)
    with contextlib.suppress(StatusError):
        found = writing.update(backend, target, configured(kind), options).object
        assert labels(found)["x"] == "y"


@pytest.mark.parametrize("mend", [False, True], ids=["deleted", "replaced and deleted"])
@pytest.mark.parametrize(
    "part",
    [{"spec": "text"}, {"spec": []}, {"spec": {"finalizers": {}}}, {"spec": {"finalizers": "x"}, "status": 5}],
    ids=str,
)
def test_a_namespace_that_cannot_be_read_goes_after_its_contents(
    backend: Backend, options: Options, part: JsonObject, *, mend: bool
) -> None:
    target, key = Target(NAMESPACE, "", "prod"), NAMESPACE.key("", "prod")
    obj: JsonObject = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "prod", "uid": "u"}}
    backend.settle(backend.store.create(key, orjson.dumps({**obj, **part})))
    if mend:
        writing.update(backend, target, {**obj, "metadata": {"name": "prod"}, "spec": {}}, options)
    deleting.delete(backend, target, {}, options)
    left = backend.store.get(key)
    assert left is not None
    kept = orjson.loads(left.value)
    assert kept["spec"] == {"finalizers": ["kubernetes"]}
    assert metadata(kept)["deletionTimestamp"]
    writing.update(backend, target._replace(subresource="finalize"), {**kept, "spec": {}}, options)
    assert backend.store.get(key) is None


@pytest.mark.parametrize(("finalizers", "left"), [("e.io/f", "e.io/f"), ([5], "minik8s.io/unreadable")])
def test_finalizers_that_cannot_be_read_hold_an_object_until_they_are_removed(
    backend: Backend, options: Options, finalizers: object, left: str
) -> None:
    target = stored_with(backend, CONFIG_MAP, "metadata.finalizers", finalizers, options)
    deleting.delete(backend, target, {}, options)
    kept = metadata(backend.latest(target).object)
    assert kept["finalizers"] == [left]
    assert kept["deletionTimestamp"]
    patched(backend, target, {"metadata": {"finalizers": None}}, patching.MERGE_PATCH, options)
    assert backend.store.get(target.kind.key("default", "a")) is None
