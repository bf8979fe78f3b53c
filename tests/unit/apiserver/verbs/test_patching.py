"""A patch is applied to what is stored, however often, and only what it changes is looked at."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pytest

from minik8s_modules.api.errors import BadRequest, Invalid
from minik8s_modules.api.kinds import CONFIG_MAP, DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER_V1, POD, Kind
from minik8s_modules.api.objects import JsonObject, labels, metadata, spec
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.verbs import applying, patching, writing
from minik8s_modules.store.memory import MemoryStore

CONTAINER = {"name": "c", "image": "i"}
DEPLOYED = {
    "metadata": {"name": "a"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}},
    },
}


def made(backend: Backend, kind: Kind, obj: JsonObject, options: Options) -> Target:
    writing.create(backend, Target(kind, "default"), obj, options)
    return Target(kind, "default", "a")


def patched(backend: Backend, target: Target, wanted: object, media: str, options: Options) -> JsonObject:
    mutation = patching.mutation_of(target, orjson.dumps(wanted), media)
    return writing.patch(backend, target, mutation, options).object


def stored(backend: Backend, target: Target) -> JsonObject:
    return backend.latest(target).object


def written_under(backend: Backend, target: Target, change: JsonObject) -> None:
    """Have the store hold the object with other fields, as an older version may have left it."""
    item = backend.get(target)
    obj = {**item.object, **change}
    del obj["metadata"]["resourceVersion"]
    backend.settle(backend.store.update(item.key, orjson.dumps(obj), item.revision))


@pytest.fixture
def behind(backend: Backend) -> Iterator[Backend]:
    """A backend whose cache learns nothing that others write: a first attempt is always one on something old."""
    store = backend.store
    assert isinstance(store, MemoryStore)
    with store.unwatched():
        yield backend


@pytest.mark.parametrize(
    ("media", "wanted"),
    [
        (patching.STRATEGIC_MERGE_PATCH, {"metadata": {"labels": {"$patch": "replace", "mine": "1"}}}),
        (patching.MERGE_PATCH, {"metadata": {"labels": {"theirs": None, "mine": "1"}}}),
        (
            patching.JSON_PATCH,
            [
                {"op": "add", "path": "/metadata/labels", "value": {"mine": "1", "other": "1"}},
                {"op": "remove", "path": "/metadata/labels/other"},
            ],
        ),
    ],
)
def test_a_patch_that_lost_a_race_is_applied_again(
    behind: Backend, options: Options, media: str, wanted: JsonObject | list[JsonObject]
) -> None:
    target = made(behind, CONFIG_MAP, {"metadata": {"name": "a", "labels": {"first": "1"}}}, options)
    item = behind.get(target)
    others = {**item.object, "metadata": {**metadata(item.object), "labels": {"theirs": "1"}}}
    behind.store.update(item.key, orjson.dumps(others), item.revision)
    patched(behind, target, wanted, media, options)
    assert labels(stored(behind, target)) == {"mine": "1"}


@pytest.mark.parametrize("media", [patching.MERGE_PATCH, patching.STRATEGIC_MERGE_PATCH])
def test_true_does_not_pass_for_one(backend: Backend, options: Options, media: str) -> None:
    target = made(backend, DEPLOYMENT, DEPLOYED, options)
    wanted = {"metadata": {"labels": {"x": "y"}}, "spec": {"replicas": True}}
    with pytest.raises(BadRequest, match="cannot unmarshal bool into Go struct field DeploymentSpec"):
        patched(backend, target, wanted, media, options)
    assert spec(stored(backend, target))["replicas"] == 1


def test_a_field_that_a_kind_no_longer_has_stays_in_nobodys_way(backend: Backend, options: Options) -> None:
    target = made(backend, CONFIG_MAP, {"metadata": {"name": "a"}, "data": {"k": "v"}}, options)
    written_under(backend, target, {"gone": {"k": "v"}})
    found = patched(backend, target, {"metadata": {"labels": {"x": "y"}}}, patching.MERGE_PATCH, options)
    assert (labels(found), found["gone"]) == ({"x": "y"}, {"k": "v"})
    with pytest.raises(BadRequest, match='unknown field "gone"'):
        patched(backend, target, {"gone": {"j": "v"}}, patching.MERGE_PATCH, options)


def test_who_takes_over_an_object_that_a_rule_now_forbids_changes_its_owners(
    backend: Backend, options: Options
) -> None:
    target = made(backend, CONFIG_MAP, {"metadata": {"name": "a"}, "data": {"k": "v"}}, options)
    written_under(backend, target, {"data": {"no/key": "v"}})
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"no/key": "v"}}
    owner = options._replace(manager="me")
    item, _ = applying.apply(backend, target, orjson.dumps(config), owner, {"fieldManager": "me"})
    assert next(entry["manager"] for entry in metadata(item.object)["managedFields"]) == "me"
    config["data"] = {"no/key": "w"}
    other = owner._replace(force=True)
    applying.apply(backend, target, orjson.dumps(config), other, {"fieldManager": "me"})
    config["data"] = {"no/other": "w"}
    with pytest.raises(Invalid, match="data"):
        applying.apply(backend, target, orjson.dumps(config), other, {"fieldManager": "me"})


def test_a_view_is_read_in_its_own_form(backend: Backend, options: Options) -> None:
    obj = {
        "metadata": {"name": "a"},
        "spec": {
            "maxReplicas": 3,
            "targetCPUUtilizationPercentage": 50,
            "scaleTargetRef": {"kind": "Deployment", "name": "a", "apiVersion": "apps/v1"},
        },
    }
    target = made(backend, HORIZONTAL_POD_AUTOSCALER_V1, obj, options)
    kept = spec(stored(backend, target))
    assert "metrics" in kept
    with pytest.raises(BadRequest, match=r'unknown field "spec.metrics"'):
        patched(backend, target, [{"op": "replace", "path": "/spec", "value": kept}], patching.JSON_PATCH, options)


def test_a_status_of_another_type_is_refused_and_no_null_of_it_kept(backend: Backend, options: Options) -> None:
    target = made(backend, POD, {"metadata": {"name": "a"}, "spec": {"containers": [CONTAINER]}}, options)
    status = target._replace(subresource="status")
    with pytest.raises(BadRequest, match="cannot unmarshal"):
        patched(backend, status, {"status": {"phase": 1}}, patching.STRATEGIC_MERGE_PATCH, options)
    wanted = [
        {"op": "add", "path": "/status/reason", "value": None},
        {"op": "add", "path": "/status/hostIP", "value": "1.2.3.4"},
    ]
    found = patched(backend, status, wanted, patching.JSON_PATCH, options)["status"]
    assert found["hostIP"] == "1.2.3.4"
    assert "reason" not in found
