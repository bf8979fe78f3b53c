"""Environments are resolved before a provider gets a Pod; what is missing is told by upstream's names."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.virtual.contract import NoResources, new_pod
from minik8s_modules.virtual.pods.environment import MissingReference, Problem, Surroundings, resolved

NODE = {"metadata": {"name": "contract"}, "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.7"}]}}
CLUSTER = NoResources(
    {"default/settings": {"data": {"A": "1", "B": "2"}}},
    {"default/keys": {"data": {"token": base64.b64encode(b"s3cret").decode()}}},
)


def _pod(env: list[JsonObject] | None = None, env_from: list[JsonObject] | None = None) -> JsonObject:
    pod = new_pod("one")
    pod["spec"]["containers"][0].update({"env": env or [], "envFrom": env_from or []})
    return pod


def _resolve(pod: JsonObject, around: Surroundings | None = None) -> tuple[dict[str, Any], list[Problem]]:
    collected: list[Problem] = []
    made = resolved(pod, CLUSTER, around or Surroundings(NODE), collected.append)
    container = made["spec"]["containers"][0]
    assert "envFrom" not in container
    return {each["name"]: each["value"] for each in container["env"]}, collected


def _from(kind: str, name: str, key: str, **more: Any) -> JsonObject:
    return {"name": "X", "valueFrom": {kind: {"name": name, "key": key, **more}}}


def test_all_sources_become_plain_variables() -> None:
    env = [
        {"name": "PLAIN", "value": "$(A)-$(X)"},
        _from("secretKeyRef", "keys", "token"),
        {"name": "COMBINED", "value": "$(A) $(X)"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
    ]
    around = Surroundings(NODE, "10.0.0.1:6443", lambda _: {"DB_SERVICE_HOST": "100.0.0.9"})
    pod = _pod(env, [{"configMapRef": {"name": "settings"}}])
    values, result = _resolve(pod, around)
    assert result == []
    wanted = {"A": "1", "B": "2", "X": "s3cret", "PLAIN": "1-$(X)", "COMBINED": "1 s3cret", "NODE": "contract"}
    assert values.items() >= {**wanted, "HOST": "192.0.2.7", "DB_SERVICE_HOST": "100.0.0.9"}.items()
    assert values["KUBERNETES_SERVICE_HOST"] == "10.0.0.1"
    assert pod["spec"]["containers"][0]["env"] == env, "the API's copy was changed"


MISSING = {
    "ConfigMapNotFound": ("configMapKeyRef", "never", "A"),
    "ConfigMapKeyNotFound": ("configMapKeyRef", "settings", "never"),
    "SecretNotFound": ("secretKeyRef", "never", "A"),
    "SecretKeyNotFound": ("secretKeyRef", "keys", "never"),
}


@pytest.mark.parametrize("reason", MISSING)
def test_what_is_mandatory_and_missing_is_an_error_with_an_event(reason: str) -> None:
    collected: list[Problem] = []
    with pytest.raises(MissingReference, match="default/"):
        resolved(_pod([_from(*MISSING[reason])]), CLUSTER, Surroundings(NODE), collected.append)
    assert [each.reason for each in collected] == [f"Mandatory{reason}"]


@pytest.mark.parametrize("reason", MISSING)
def test_what_is_optional_and_missing_is_only_an_event(reason: str) -> None:
    variable = _from(*MISSING[reason], optional=True)
    values, result = _resolve(_pod([variable]))
    assert [each.reason for each in result] == [f"Optional{reason}"]
    assert "X" not in values


@pytest.mark.parametrize("kind", ["configMap", "secret"])
def test_a_whole_object_may_be_missing_if_it_is_optional(kind: str) -> None:
    values, result = _resolve(_pod(env_from=[{f"{kind}Ref": {"name": "never", "optional": True}}]))
    assert values == {}
    assert len(result) == 1
    with pytest.raises(MissingReference):
        _resolve(_pod(env_from=[{f"{kind}Ref": {"name": "never"}}]))
