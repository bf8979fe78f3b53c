"""Objects of custom kinds are collected, counted, and go with their namespace, as those of built-in kinds."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound, StatusError
from minik8s_modules.api.kinds import (
    CONFIG_MAP,
    CUSTOM_RESOURCE_DEFINITION,
    NAMESPACE,
    RESOURCE_QUOTA,
    Kind,
)
from tests.integration.control.conftest import Cluster, Daemon
from tests.support.waiting import until

PATIENCE_S = 60.0


@pytest.fixture
def widget(cluster: Cluster) -> Iterator[Kind]:
    """A custom kind, established."""
    group = f"g{uuid.uuid4().hex[:8]}.example.com"
    name = f"widgets.{group}"
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    names = {"plural": "widgets", "kind": "Widget"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    cluster.admin.create(CUSTOM_RESOURCE_DEFINITION, {"metadata": {"name": name}, "spec": spec})

    def established() -> bool:
        found = objects.condition(cluster.admin.get(CUSTOM_RESOURCE_DEFINITION, name), "Established")
        return found is not None and found["status"] == "True"

    until(established, PATIENCE_S)
    yield Kind(group, "v1", "Widget", "widgets", "")
    cluster.admin.delete(CUSTOM_RESOURCE_DEFINITION, name)


def named(name: str, space: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": space, **more}}


def is_there(cluster: Cluster, kind: Kind, name: str, space: str) -> bool:
    try:
        cluster.admin.get(kind, name, space)
    except NotFound:
        return False
    return True


def owner(kind: Kind, obj: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": kind.api_version, "kind": kind.kind, "name": objects.name(obj), "uid": objects.uid(obj),
        "blockOwnerDeletion": True,
    }  # fmt: skip


def test_what_a_custom_object_owns_goes_with_it_and_it_goes_with_its_owner(
    cluster: Cluster, daemon: Daemon, widget: Kind
):
    space = cluster.namespace()
    first = cluster.admin.create(CONFIG_MAP, named("first", space))
    second = cluster.admin.create(widget, named("second", space, ownerReferences=[owner(CONFIG_MAP, first)]))
    cluster.admin.create(CONFIG_MAP, named("third", space, ownerReferences=[owner(widget, second)]))
    cluster.admin.delete(CONFIG_MAP, "first", space)
    until(lambda: not is_there(cluster, widget, "second", space), PATIENCE_S)
    until(lambda: not is_there(cluster, CONFIG_MAP, "third", space), PATIENCE_S)


def test_a_namespace_goes_with_its_custom_objects(cluster: Cluster, daemon: Daemon, widget: Kind):
    space = cluster.namespace()
    cluster.admin.create(widget, named("a", space, finalizers=["example.com/held"]))
    cluster.admin.delete(NAMESPACE, space)
    until(lambda: objects.is_deleting(cluster.admin.get(widget, "a", space)), PATIENCE_S)
    cluster.admin.patch(widget, "a", space, {"metadata": {"finalizers": None}})
    until(lambda: not is_there(cluster, NAMESPACE, space, ""), PATIENCE_S)


def test_a_quota_counts_custom_objects(cluster: Cluster, daemon: Daemon, widget: Kind):
    space, resource = cluster.namespace(), f"count/{widget.resource}"
    cluster.admin.create(widget, named("a", space))
    cluster.admin.create(RESOURCE_QUOTA, {**named("q", space), "spec": {"hard": {resource: "2"}}})

    def used() -> str | None:
        counted = objects.status(cluster.admin.get(RESOURCE_QUOTA, "q", space)).get("used") or {}
        return counted.get(resource)

    until(lambda: used() == "1", PATIENCE_S)
    cluster.admin.create(widget, named("b", space))
    with pytest.raises(StatusError, match="exceeded quota"):
        cluster.admin.create(widget, named("c", space))
    cluster.admin.delete(widget, "a", space)
    until(lambda: used() == "1", PATIENCE_S)
