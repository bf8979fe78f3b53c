"""Who may write autoscalers in a namespace scales by them what lies in it, and nothing of the cluster's.

The attack: an autoscaler whose target is a cluster-scoped custom kind with a ``scale`` subresource. The controller may
scale everything, so it read and changed a scale that the autoscaler's author may not touch.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api.kinds import Kind
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.discovery import kind_at
from minik8s_modules.client.silences import Silences
from minik8s_modules.controllers.autoscaling.targets import Targets
from tests.integration.apiserver.conftest import Namespace
from tests.integration.apiserver.extensions.test_custom_kinds import DEFINITIONS
from tests.support.waiting import until


def definition(group: str) -> dict[str, Any]:
    size = {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}}
    schema = {"type": "object", "properties": {"spec": size, "status": size}}
    paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    version = {
        "name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": {**paths, "labelSelectorPath": ".status.selector"}},
    }  # fmt: skip
    names = {"plural": "fleets", "kind": "Fleet"}
    spec = {"group": group, "scope": "Cluster", "names": names, "versions": [version]}
    return {"metadata": {"name": f"fleets.{group}"}, "spec": spec}


@pytest.fixture
def fleets(namespace: Namespace) -> Iterator[str]:
    """The path of a kind's objects, with one named ``a`` that has two replicas."""
    group, server = f"g{uuid.uuid4().hex[:8]}.example.com", namespace.server
    path = f"/apis/{group}/v1/fleets"
    assert server.request("POST", DEFINITIONS, definition(group)).code == 201
    until(lambda: server.request("GET", path).code == 200)
    assert server.request("POST", path, {"metadata": {"name": "a"}, "spec": {"replicas": 2}}).code == 201
    yield path
    server.request("DELETE", f"{DEFINITIONS}/fleets.{group}")


def test_the_clusters_scales_are_out_of_reach(namespace: Namespace, fleets: str) -> None:
    server = namespace.server
    client = ApiClient(server.url, server.authority.ca, server.admin.cert, server.admin.key)
    try:
        kind = kind_at(client, fleets.removeprefix("/apis/").removesuffix("/fleets"), "Fleet")
        assert isinstance(kind, Kind)
        targets = Targets(client, {}, Silences(SystemClock()))
        refused = "the server could not find the requested resource"
        assert targets.scale(kind, namespace.name, "a") == refused
        assert targets.change(kind, namespace.name, "a", 2, 9) == refused
    finally:
        client.close()
    assert server.request("GET", f"{fleets}/a/scale").json["spec"]["replicas"] == 2
