"""Valid objects with one part replaced by something odd: never a 500, and what is stored can be read again."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from minik8s_modules.api.kinds import KINDS, Kind
from tests.integration.apiserver.conftest import Namespace, pod
from tests.unit.api import samples

ODD: list[Any] = [
    None, True, False, 0, -1, 1.5, 2**31, 2**63, -(2**63), 1e308, "", " ", "x", "x" * 300, "é", "\u0000", "a\nb",
    "../..", "{{ 7 * 7 }}", "$(id)", "0x10", "1e9999", "-1Gi", "∞", [], [None], [[]], {}, {"": ""}, {"a": None},
    {"$patch": "delete"}, {"$patch": "nonsense"}, {"$retainKeys": 1}, {"$setElementOrder/containers": [{}]},
    {"$deleteFromPrimitiveList/args": 1},
]  # fmt: skip
MEDIA = {
    "PUT": ("application/json",),
    "PATCH": ("application/merge-patch+json", "application/strategic-merge-patch+json"),
}
CHANGES = (
    ("PUT", "application/json"),
    ("PATCH", "application/merge-patch+json"),
    ("PATCH", "application/strategic-merge-patch+json"),
    ("PATCH", "application/apply-patch+yaml"),
)
OBJECTS: dict[str, dict[str, Any]] = {
    "pods": pod(
        "p",
        initContainers=[{"name": "i", "image": "x", "env": [{"name": "A", "value": "b"}]}],
        volumes=[{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}, {"name": "c", "configMap": {"name": "c"}}],
        tolerations=[{"key": "k", "operator": "Exists"}],
        securityContext={"runAsUser": 1},
        nodeSelector={"a": "b"},
    ),
    "services": {
        "metadata": {"name": "p"},
        "spec": {"ports": [{"port": 80, "targetPort": "http"}], "selector": {"a": "b"}},
    },
    "secrets": {"metadata": {"name": "p", "labels": {"a": "b"}, "annotations": {"a": "b"}}, "data": {"k": "Yg=="}},
    "events": {"metadata": {"name": "p"}, "involvedObject": {"kind": "Pod", "name": "p"}, "count": 1},
    "endpoints": {"metadata": {"name": "p"}, "subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]},
}


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, each in inner for place in _places(each, (*path, key)))]


def _replaced(obj: dict[str, Any], place: tuple[Any, ...], odd: Any) -> Any:
    if not place:
        return odd
    changed = copy.deepcopy(obj)
    at: Any = changed
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = odd
    return changed


@pytest.mark.parametrize("plural", OBJECTS)
def test_odd_values_are_answered_and_never_break_the_server(namespace: Namespace, plural: str):
    dice, server = random.Random(plural), namespace.server
    places = _places(OBJECTS[plural])
    for _ in range(60):
        body = _replaced(OBJECTS[plural], dice.choice(places), dice.choice(ODD))
        answer = server.request("POST", namespace.path(plural), body)
        assert answer.code < 500, (body, answer.body)
        server.request("POST", namespace.path(plural), OBJECTS[plural])
        method = dice.choice(["PUT", "PATCH"])
        headers = {"Content-Type": dice.choice(MEDIA[method])}
        body = _replaced(OBJECTS[plural], dice.choice(places), dice.choice(ODD))
        changed = server.request(method, namespace.path(plural, "p"), body, headers=headers)
        assert changed.code < 500, (method, headers, body, changed.body)
        table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        assert server.request("GET", namespace.path(plural), headers=table).code == 200
        server.request("DELETE", namespace.path(plural))
    assert server.request("GET", namespace.path(plural)).json["items"] == []


@pytest.mark.parametrize("plural", ["pods", "services"])
def test_odd_json_patches_are_answered(namespace: Namespace, plural: str):
    dice, server = random.Random(plural), namespace.server
    server.request("POST", namespace.path(plural), OBJECTS[plural])
    pointers = ["/" + "/".join(map(str, place)) for place in _places(OBJECTS[plural])] + [
        "",
        "/",
        "x",
        "/-",
        "/spec/-",
        "/~2",
    ]
    for _ in range(80):
        op = {
            "op": dice.choice(["add", "remove", "replace", "move", "copy", "test", "nonsense", None]),
            "path": dice.choice(pointers),
            "from": dice.choice(pointers),
            "value": dice.choice(ODD),
        }
        path = namespace.path(plural, "p") + "?dryRun=All"
        answer = server.request("PATCH", path, [op], headers={"Content-Type": "application/json-patch+json"})
        assert answer.code < 500, (op, answer.body)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/%ff%fe/configmaps",
        "/api/v1/namespaces/a%00b/configmaps",
        "/api/v1/namespaces/default/configmaps/%ed%a0%80",
        "/api/v1/namespaces/default/configmaps?labelSelector=%ff",
        "/api/v1/namespaces/default/configmaps?limit=%00",
        "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3D%ff",
        "/api/v1/namespaces/default/configmaps?timeoutSeconds=nan&watch=x",
        "/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=nan",
        "/%2e%2e/%2e%2e/etc/passwd",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_odd_paths_are_answered(namespace: Namespace, method: str, path: str):
    body = {"metadata": {"name": "a"}} if method == "POST" else None
    answer = namespace.server.request(method, path + ("&" if "?" in path else "?") + "dryRun=All", body)
    assert answer.code < 500


STORED = [
    kind
    for kind in KINDS.all()
    if kind.stored and kind.namespaced and kind.plural not in OBJECTS and "create" in kind.verbs
]


@pytest.mark.parametrize("kind", STORED, ids=lambda kind: f"{kind.plural}.{kind.version}.{kind.group}")
def test_odd_values_of_every_kind_are_answered(namespace: Namespace, kind: Kind):
    dice, server, sample = random.Random(kind.plural), namespace.server, samples.sample(kind)
    base = f"{'/apis/' if kind.group else '/api/'}{kind.api_version}/namespaces/{namespace.name}/{kind.plural}"
    places = _places(sample)
    for service in samples.services_of(sample):
        assert server.request("POST", namespace.path("services"), service).code == 201
    assert server.request("POST", base, sample).code == 201
    for _ in range(25):
        method, media = dice.choice(CHANGES)
        body = _replaced(sample, dice.choice(places), dice.choice(ODD))
        query = "?fieldManager=odd&force=true" if media.endswith("yaml") else ""
        answer = server.request(method, f"{base}/web{query}", body, headers={"Content-Type": media})
        assert answer.code < 500, (method, media, body, answer.body)
        table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        assert server.request("GET", base, headers=table).code == 200
        stored = server.request("GET", f"{base}/web")
        assert stored.code == 200
        assert server.request("PUT", f"{base}/web", stored.json).code == 200  # what is stored is accepted
