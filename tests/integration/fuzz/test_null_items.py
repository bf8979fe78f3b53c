"""Lists that hold null where an object is meant, in parts that are written alone."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.kinds import CERTIFICATE_SIGNING_REQUEST, HORIZONTAL_POD_AUTOSCALER, KINDS, PLAN, Kind
from minik8s_modules.api.schema.shapes import kind_shape
from tests.integration.fuzz.conftest import Client, collection, seed, stored
from tests.support.apiserver import ApiServerProcess

WITH_STATUS = [kind for kind in stored() if "status" in kind.subresources]


@pytest.fixture(scope="module")
def client(server: ApiServerProcess):
    """A connection to a server with an object of every kind."""
    seed(server)
    opened = Client(server)
    yield opened
    opened.close()


@pytest.mark.parametrize("kind", WITH_STATUS, ids=lambda kind: f"{kind.plural}.{kind.version}.{kind.group}")
def test_a_status_of_nulls_is_answered(client: Client, kind: Kind):
    name = "10.244.0.7" if kind.kind == "PodAddress" else "web"
    path, shape = f"{collection(kind)}/{name}", kind_shape(kind).fields["status"]
    fields = shape.fields if shape.kind == "object" else {}
    values: list[Any] = [None, [None], {"a": None}, [{}], [None, None]]
    for field in fields:
        for value in values:
            live = client.request("GET", path).json
            answer = client.request("PUT", f"{path}/status?dryRun=All", {**live, "status": {field: value}})
            assert answer.code < 500, (field, value, answer.body)


def test_a_plan_of_other_things_than_objects_names_them(client: Client):
    path = f"/apis/{PLAN.api_version}/{PLAN.plural}"
    body = {
        "metadata": {"name": "p"},
        "spec": {"objects": [None, [None]], "deleted": ["x", {"apiVersion": "v1", "kind": "Pod", "metadata": [1]}]},
    }
    answer = client.request("POST", path, body)
    assert answer.code == 422, answer.body
    fields = [cause["field"] for cause in answer.json["details"]["causes"]]
    assert fields == ["spec.objects[0]", "spec.objects[1]", "spec.deleted[0]", "spec.deleted[1].metadata"]


def test_the_kinds_that_were_at_fault_are_among_them():
    assert {HORIZONTAL_POD_AUTOSCALER, CERTIFICATE_SIGNING_REQUEST} <= set(WITH_STATUS) <= set(KINDS.all())
