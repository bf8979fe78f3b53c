"""One suite for the API in memory and the real one: what tests with the fake rely on is true of both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api.errors import AlreadyExists, Conflict, Expired, NotFound
from minik8s_modules.api.kinds import CONFIG_MAP, NAMESPACE, NODE, POD
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.fake import FakeApi
from tests.integration.control.conftest import Cluster, pod

Api = FakeApi | ApiClient


@pytest.fixture(params=["fake", "real"])
def api(request: pytest.FixtureRequest) -> Api:
    if request.param == "fake":
        return FakeApi()
    cluster: Cluster = request.getfixturevalue("cluster")
    return cluster.admin


@pytest.fixture
def space(api: Api, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"s-{abs(hash(request.node.name)) % 10**8}"
    api.create(NAMESPACE, {"metadata": {"name": name}})
    yield name
    for kind in (CONFIG_MAP, POD):
        api.delete_collection(kind, name)


def config_map(space: str, name: str = "a", **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": space, **fields.pop("metadata", {})}
    return {"metadata": metadata, "data": {"x": "1"}, **fields}


def revision(obj: dict[str, Any]) -> int:
    return int(obj["metadata"]["resourceVersion"])


def test_create_sets_identity_and_refuses_a_second(api: Api, space: str):
    made = api.create(CONFIG_MAP, config_map(space))
    assert made["metadata"]["uid"]
    assert made["metadata"]["creationTimestamp"]
    assert (made["apiVersion"], made["kind"]) == ("v1", "ConfigMap")
    assert api.get(CONFIG_MAP, "a", space) == made
    with pytest.raises(AlreadyExists):
        api.create(CONFIG_MAP, config_map(space))


def test_what_is_not_there_is_not_found(api: Api, space: str):
    with pytest.raises(NotFound):
        api.get(CONFIG_MAP, "none", space)
    with pytest.raises(NotFound):
        api.patch(CONFIG_MAP, "none", space, {})
    with pytest.raises(NotFound):
        api.delete(CONFIG_MAP, "none", space)
    with pytest.raises(NotFound):
        api.update(CONFIG_MAP, {**config_map(space), "metadata": {"name": "none", "namespace": space}})


def test_writes_compare_and_swap_and_raise_the_revision(api: Api, space: str):
    first = api.create(CONFIG_MAP, config_map(space))
    second = api.update(CONFIG_MAP, {**first, "data": {"x": "2"}})
    assert revision(second) > revision(first)
    with pytest.raises(Conflict):
        api.update(CONFIG_MAP, {**first, "data": {"x": "3"}})
    old = {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}, "data": {"x": "3"}}
    with pytest.raises(Conflict):
        api.patch(CONFIG_MAP, "a", space, old)
    assert api.get(CONFIG_MAP, "a", space)["data"] == {"x": "2"}


def test_a_write_that_changes_nothing_keeps_the_revision(api: Api, space: str):
    made = api.create(CONFIG_MAP, config_map(space))
    assert revision(api.patch(CONFIG_MAP, "a", space, {"data": {"x": "1"}})) == revision(made)
    assert revision(api.update(CONFIG_MAP, made)) == revision(made)


def test_deletes_honour_preconditions_and_finalizers(api: Api, space: str):
    made = api.create(CONFIG_MAP, config_map(space, metadata={"finalizers": ["example.com/keep"]}))
    with pytest.raises(Conflict):
        api.delete(CONFIG_MAP, "a", space, uid="another")
    with pytest.raises(Conflict):
        api.delete(CONFIG_MAP, "a", space, resource_version="1")
    api.delete(CONFIG_MAP, "a", space, uid=made["metadata"]["uid"])
    assert api.get(CONFIG_MAP, "a", space)["metadata"]["deletionTimestamp"]
    api.patch(CONFIG_MAP, "a", space, {"metadata": {"finalizers": None}})
    with pytest.raises(NotFound):
        api.get(CONFIG_MAP, "a", space)


def test_a_pod_is_bound_once_and_then_ends_with_grace(api: Api, space: str):
    api.create(NODE, {"metadata": {"name": f"{space}-n"}})
    api.create(POD, pod("p", space))
    binding = {"metadata": {"name": "p", "namespace": space}, "target": {"kind": "Node", "name": f"{space}-n"}}
    api.create(POD, binding, subresource="binding")
    with pytest.raises(Conflict):
        api.create(POD, binding, subresource="binding")
    bound = api.get(POD, "p", space)
    assert bound["spec"]["nodeName"] == f"{space}-n"
    assert [(each["type"], each["status"]) for each in bound["status"]["conditions"]] == [("PodScheduled", "True")]
    api.delete(POD, "p", space)
    assert api.get(POD, "p", space)["metadata"]["deletionTimestamp"]
    api.delete(POD, "p", space, grace_s=0)
    with pytest.raises(NotFound):
        api.get(POD, "p", space)


def test_status_and_the_rest_are_written_apart(api: Api, space: str):
    made = api.create(POD, pod("p", space))
    ready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    api.patch(POD, "p", space, ready, patch_type="strategic", subresource="status")
    more = {"status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}}
    api.patch(POD, "p", space, more, patch_type="strategic", subresource="status")
    api.patch(POD, "p", space, {"metadata": {"labels": {"c": "d"}}, "status": {"phase": "Failed"}})
    written = api.get(POD, "p", space)
    assert {each["type"] for each in written["status"]["conditions"]} == {"Ready", "PodScheduled"}
    assert written["status"].get("phase") == made.get("status", {}).get("phase")
    assert written["metadata"]["labels"]["c"] == "d"


def test_a_watch_resumes_behind_a_revision_and_shows_every_change(api: Api, space: str):
    made = api.create(CONFIG_MAP, config_map(space))
    api.patch(CONFIG_MAP, "a", space, {"data": {"x": "2"}})
    api.delete(CONFIG_MAP, "a", space)
    watch = api.watch(CONFIG_MAP, space, resource_version=made["metadata"]["resourceVersion"])
    events = [next(watch) for _ in range(2)]
    watch.close()
    assert [event.type for event in events] == ["MODIFIED", "DELETED"]
    assert events[0].object["data"] == {"x": "2"}
    assert revision(events[0].object) < revision(events[1].object)
    assert list(watch) == []


def test_a_field_selector_shows_an_object_that_leaves_as_deleted(api: Api, space: str):
    api.create(NODE, {"metadata": {"name": f"{space}-n"}})
    selector = "spec.nodeName="
    made = api.create(POD, pod("p", space))
    assert len(api.list(POD, space, field_selector=selector).items) == 1
    watch = api.watch(POD, space, resource_version=made["metadata"]["resourceVersion"], field_selector=selector)
    target = {"kind": "Node", "name": f"{space}-n"}
    api.create(POD, {"metadata": {"name": "p", "namespace": space}, "target": target}, subresource="binding")
    assert next(watch).type == "DELETED"
    watch.close()
    assert api.list(POD, space, field_selector=selector).items == []


def test_a_revision_that_is_forgotten_is_expired(api: Api, space: str):
    if isinstance(api, FakeApi):
        api.create(CONFIG_MAP, config_map(space))
        api.compact()
    with pytest.raises(Expired):
        next(api.watch(CONFIG_MAP, space, resource_version="1"))


def test_delete_collection_takes_only_its_namespace(api: Api, space: str):
    api.create(NAMESPACE, {"metadata": {"name": f"{space}-o"}})
    for name in ("a", "b"):
        api.create(CONFIG_MAP, config_map(space, name))
        api.create(CONFIG_MAP, config_map(f"{space}-o", name))
    api.delete_collection(CONFIG_MAP, space)
    assert api.list(CONFIG_MAP, space).items == []
    assert len(api.list(CONFIG_MAP, f"{space}-o").items) == 2
