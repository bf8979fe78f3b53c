"""A converter of custom kinds is a stranger's program: whatever it answers, objects stay what and where they are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.apiserver.conftest import etcd, namespace, server
from tests.integration.apiserver.extensions.test_conversion import Hosts, honest, hosts, lying
from tests.support.webhook import send

__all__ = ["etcd", "hosts", "namespace", "server"]


def changed(obj: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], **fields}}


@pytest.mark.parametrize("field", ["name", "namespace", "uid"])
def test_it_does_not_put_an_object_in_anothers_place(hosts: Hosts, field: str) -> None:
    assert hosts.make("v1", "a", address="one:1").code == 201
    hosts.hook.answers["/convert"] = lying(lambda obj: changed(obj, **{field: "kube-system"}))
    assert hosts.get("v2", "a").code == 500
    assert hosts.make("v2", "b", host="two", port=2).code == 500
    assert [each["metadata"]["name"] for each in hosts.server.request("GET", hosts.path("v1")).json["items"]] == ["a"]


def test_it_gives_nobody_owners_finalizers_or_managers(hosts: Hosts) -> None:
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": "kube-system", "uid": "x"}
    wrong = {"ownerReferences": [owner], "finalizers": ["a.example.com/b"], "managedFields": [], "generation": 7}
    hosts.hook.answers["/convert"] = lying(lambda obj: changed(obj, **wrong))
    assert hosts.make("v2", "a", host="one", port=1).code == 201
    for version in ("v1", "v2"):
        meta = hosts.get(version, "a").json["metadata"]
        assert (meta.get("ownerReferences"), meta.get("finalizers"), meta["generation"]) == (None, None, 1)
        assert meta["managedFields"]


def test_it_makes_no_other_kind_of_an_object(hosts: Hosts) -> None:
    assert hosts.make("v1", "a", address="one:1").code == 201
    hosts.hook.answers["/convert"] = lying(lambda obj: {**obj, "apiVersion": "v1", "kind": "Secret"})
    assert hosts.get("v2", "a").code == 500


def test_what_it_adds_is_pruned_and_held_to_the_schema_when_written(hosts: Hosts) -> None:
    assert hosts.make("v1", "a", address="one:1").code == 201
    hosts.hook.answers["/convert"] = lying(lambda obj: {**obj, "extra": 1, "spec": {**obj["spec"], "more": 2}})
    found = hosts.get("v2", "a").json
    assert ("extra" in found, "more" in found["spec"]) == (False, False)


@pytest.mark.parametrize(
    "answer",
    [
        b"[" * 100_000,
        b'{"response": {"convertedObjects": [' + b"7," * 2_000_000 + b"7]}}",
        b"\xff\xfe",
        b"null",
        b'{"response": []}',
        b'{"response": {"result": {"status": "Success"}, "convertedObjects": {"a": 1}}}',
    ],
)
def test_an_answer_that_is_none_is_an_error_of_its_kind_alone(hosts: Hosts, answer: bytes) -> None:
    assert hosts.make("v1", "a", address="one:1").code == 201
    hosts.hook.raw["/convert"] = lambda handler, _: send(handler, answer)
    refused = hosts.get("v2", "a")
    assert (refused.code, "conversion webhook for" in refused.json["message"]) == (500, True)
    assert hosts.spec("v1", "a")["address"] == "one:1"


def test_it_is_not_followed_elsewhere(hosts: Hosts) -> None:
    assert hosts.make("v1", "a", address="one:1").code == 201
    hosts.hook.raw["/convert"] = lambda handler, _: send(handler, b"{}", 307, Location=hosts.hook.url("/other"))
    assert "redirects are not followed" in hosts.get("v2", "a").json["message"]
    assert not any(path.startswith("/other") for path in hosts.hook.paths)


def test_it_is_sent_no_credential(hosts: Hosts) -> None:
    hosts.hook.answers["/convert"] = honest
    hosts.make("v2", "a", host="one", port=1)
    assert "Authorization" not in json.dumps(hosts.hook.headers)
