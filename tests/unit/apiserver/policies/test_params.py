"""The objects that the expressions of a binding may name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minik8s_modules.api.kinds import KINDS
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.policies.params import Misconfigured, params_of

CONFIG_MAPS = {"apiVersion": "v1", "kind": "ConfigMap"}
NODES = {"apiVersion": "v1", "kind": "Node"}


def put(backend: Backend, space: str, name: str, **labels: str) -> None:
    body = {"metadata": {"name": name, "namespace": space, "labels": labels}}
    backend.settle(backend.store.create(f"/registry/core/configmaps/{space}/{name}", json.dumps(body).encode()))


def names(backend: Backend, namespace: str = "a", **ref: Any) -> list[str]:
    found = params_of(backend.cache, KINDS, CONFIG_MAPS, {"parameterNotFoundAction": "Deny", **ref}, namespace)
    return [each["metadata"]["name"] for each in found if each is not None]


def test_a_policy_without_params_is_evaluated_once(backend: Backend) -> None:
    assert params_of(backend.cache, KINDS, None, {"name": "x"}, "a") == [None]
    assert params_of(backend.cache, KINDS, CONFIG_MAPS, None, "a") == [None]


def test_params_are_of_the_requests_namespace_unless_the_binding_names_one(backend: Backend) -> None:
    for space in ("a", "b"):
        put(backend, space, f"in-{space}", env="prod")
    assert names(backend, name="in-a") == ["in-a"]
    assert names(backend, name="in-b", namespace="b") == ["in-b"]
    assert names(backend, selector={"matchLabels": {"env": "prod"}}) == ["in-a"]
    assert names(backend, selector={}, namespace="b") == ["in-b"]


def test_what_is_not_there_denies_or_is_passed_over(backend: Backend) -> None:
    with pytest.raises(Misconfigured, match="no params found for policy binding with `Deny`"):
        names(backend, name="x")
    assert names(backend, name="x", parameterNotFoundAction="Allow") == []


@pytest.mark.parametrize(
    ("kind", "ref", "namespace", "message"),
    [
        (CONFIG_MAPS, {"name": "x"}, "", "cannot use namespaced paramRef in policy binding"),
        (NODES, {"name": "x", "namespace": "a"}, "a", "paramRef.namespace must not be provided"),
        ({"apiVersion": "a.b/v1", "kind": "C"}, {"name": "x"}, "a", "paramKind: 'a.b/v1, Kind=C'"),
    ],
)
def test_what_cannot_be(
    backend: Backend, kind: dict[str, str], ref: dict[str, str], namespace: str, message: str
) -> None:
    with pytest.raises(Misconfigured) as error:
        params_of(backend.cache, KINDS, kind, ref, namespace)
    assert message in str(error.value)
