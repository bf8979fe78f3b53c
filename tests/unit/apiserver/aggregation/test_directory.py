"""Who answers what, what a path there asks for, and what others offer beside the server's own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minik8s_modules.api.access import api_services
from minik8s_modules.api.access.api_services import Availability
from minik8s_modules.api.errors import BadRequest
from minik8s_modules.api.kinds import API_SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.aggregation import directory as directories
from minik8s_modules.apiserver.aggregation import offers
from minik8s_modules.apiserver.aggregation.directory import Directory, remotes_of
from minik8s_modules.apiserver.aggregation.offers import Offer
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.verbs import writing

PATH = "/apis/wardle.example.com/v1"


def api_service(group: str = "wardle.example.com", version: str = "v1", **spec: Any) -> JsonObject:
    declared = {
        "group": group,
        "version": version,
        "groupPriorityMinimum": 2000,
        "versionPriority": 10,
        "service": {"namespace": "wardle", "name": "api"},
        **spec,
    }
    return {"metadata": {"name": f"{version}.{group}"}, "spec": declared}


@pytest.fixture
def directory(backend: Backend) -> Directory:
    options = Options(dry_run=False, validation="Strict", warnings=[])
    writing.create(backend, Target(API_SERVICE), api_service(), options)
    return Directory(backend.cache)


@pytest.mark.parametrize(
    ("method", "path", "watch", "verb", "resource", "namespace", "name"),
    [
        ("GET", "/flunders", "", "list", "flunders", "", ""),
        ("GET", "/flunders", "watch", "watch", "flunders", "", ""),
        ("GET", "/watch/flunders", "", "watch", "flunders", "", ""),
        ("GET", "/namespaces/a/flunders/x", "", "get", "flunders", "a", "x"),
        ("HEAD", "/namespaces/a/flunders/x", "", "get", "flunders", "a", "x"),
        ("PUT", "/namespaces/a/flunders/x/status", "", "update", "flunders/status", "a", "x"),
        ("GET", "/namespaces/a/flunders/x/port/80/tcp", "watch", "get", "flunders/port", "a", "x"),
        ("DELETE", "/namespaces/a/flunders", "", "deletecollection", "flunders", "a", ""),
        ("DELETE", "/fischers/x", "", "delete", "fischers", "", "x"),
        ("POST", "/fischers", "", "create", "fischers", "", ""),
        ("OPTIONS", "/fischers", "", "options", "fischers", "", ""),
    ],
)
def test_a_path_is_authorized_as_what_it_asks_for(
    directory: Directory, method: str, path: str, watch: str, verb: str, resource: str, namespace: str, name: str
) -> None:
    asked = directory.asked(method, PATH + path, watch=bool(watch))
    assert asked is not None
    attributes = asked.target.attributes(asked.verb)
    assert (attributes.verb, attributes.group, attributes.resource) == (verb, "wardle.example.com", resource)
    assert (attributes.namespace, attributes.name) == (namespace, name)
    assert asked.endless == (verb == "watch")


@pytest.mark.parametrize(
    "path",
    [
        "/namespaces/a/../b/flunders",
        "/namespaces/./flunders",
        "/flunders//x",
        "//flunders",
        "/flunders//",
        "/flunders/x//",
    ],
)
def test_a_path_with_two_meanings_is_refused(directory: Directory, path: str) -> None:
    with pytest.raises(BadRequest, match="segment"):
        directory.asked("GET", PATH + path, watch=False)


@pytest.mark.parametrize("value", ["false", "False", "FALSE", "0"])
def test_what_an_extension_reads_as_no_watch_is_authorized_as_none(value: str) -> None:
    assert not directories.is_watch({"watch": value})


@pytest.mark.parametrize("value", ["", "1", "true", "no", "f"])
def test_what_an_extension_reads_as_a_watch_is_authorized_as_one(value: str) -> None:
    assert directories.is_watch({"watch": value})
    assert not directories.is_watch({})


def test_only_what_an_api_service_names_goes_elsewhere(directory: Directory) -> None:
    assert directory.of(f"{PATH}/flunders") is not None
    assert directory.names_resource(f"{PATH}/flunders")
    assert not directory.names_resource(PATH)
    for path in ("/apis/wardle.example.com/v2/flunders", "/apis/wardle.example.com", "/api/v1/pods", "/apis/apps/v1/x"):
        assert directory.asked("GET", path, watch=False) is None


@pytest.mark.parametrize("group", ["", "apps", "rbac.authorization.k8s.io", "apiregistration.k8s.io", "minik8s.io"])
def test_no_built_in_group_goes_elsewhere_in_any_version(group: str) -> None:
    assert not remotes_of([api_service(group), api_service(group, "v9")])


def test_what_the_server_keeps_itself_goes_nowhere_else() -> None:
    kept = api_service()
    kept["metadata"]["labels"] = {api_services.MANAGED: "true"}
    assert not remotes_of([kept])
    metrics = api_service("metrics.k8s.io", "v1beta1")
    metrics["metadata"]["labels"] = {api_services.MANAGED: "onstart"}
    assert ("metrics.k8s.io", "v1beta1") in remotes_of([metrics])


def offer(group: str, version: str, priorities: tuple[int, int], *resources: JsonObject, fresh: bool = True) -> Offer:
    declared = {"groupPriorityMinimum": priorities[0], "versionPriority": priorities[1]}
    found = api_services.remote(api_service(group, version, **declared))
    assert found is not None
    return Offer(found, resources, fresh)


def test_groups_and_versions_come_by_priority() -> None:
    several = [
        offer("a.example.com", "v1", (100, 10)),
        offer("b.example.com", "v1beta1", (100, 20)),
        offer("b.example.com", "v2", (3000, 10)),
        offer("b.example.com", "v10", (50, 10)),
        offer("b.example.com", "v3alpha1", (50, 10)),
    ]
    found = [(each.remote.group[0], each.remote.version) for each in offers.ordered(several)]
    assert found == [("b", "v1beta1"), ("b", "v10"), ("b", "v2"), ("b", "v3alpha1"), ("a", "v1")]


def test_what_others_offer_stands_behind_the_servers_own() -> None:
    own = {"items": [{"metadata": {"name": "apps"}, "versions": [{"version": "v1", "resources": []}]}]}
    pods = {"name": "pods", "kind": "PodMetrics", "namespaced": True, "verbs": ["get"], "shortNames": ["po"]}
    items = offers.with_discovery(own, [offer("a.example.com", "v1", (20000, 10), pods, fresh=False)])["items"]
    assert [each["metadata"]["name"] for each in items] == ["apps", "a.example.com"]
    (version,) = items[1]["versions"]
    assert (version["freshness"], version["resources"][0]["singularResource"]) == ("Stale", "podmetrics")


def test_an_offer_takes_the_place_of_what_it_replaces() -> None:
    own = {"items": [{"metadata": {"name": "m"}, "versions": [{"version": "v1", "resources": ["ours"]}]}]}
    (item,) = offers.with_discovery(own, [offer("m", "v1", (100, 10))])["items"]
    assert [each["resources"] for each in item["versions"]] == [[]]
    groups: JsonObject = {"groups": [{"name": "m", "versions": [{"groupVersion": "m/v1", "version": "v1"}]}]}
    (group,) = offers.with_groups(groups, [offer("m", "v1", (100, 10)), offer("m", "v2", (100, 9))])["groups"]
    assert [each["version"] for each in group["versions"]] == ["v1", "v2"]
    paths = {"paths": {"apis/m/v1": {"serverRelativeURL": "ours"}}}
    assert offers.with_schemas(paths, [offer("m", "v1", (100, 10))]) == {"paths": {}}


@pytest.mark.parametrize(
    ("code", "body", "why"),
    [
        (404, b"{}", "bad status 404"),
        (200, b"<html>", "unexpected character"),
        (200, b"[]", "not an APIResourceList"),
        (200, b'{"resources": []}', "the answer is about"),
        (200, b'{"groupVersion": "apps/v1", "resources": []}', "the answer is about 'apps/v1'"),
    ],
)
def test_what_lists_no_resources_of_its_own_group_is_told(code: int, body: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        offers.resources_in(code, body, "wardle.example.com", "v1")


def test_resources_that_make_no_sense_are_left_out() -> None:
    good = b'{"name": "a", "kind": "A", "verbs": [], "namespaced": true}'
    bad = b'1, {"name": 1}, {"name": "b", "kind": "B"}, {"name": "b", "kind": "B", "verbs": [], "namespaced": 3}'
    listed = b'{"groupVersion": "g/v1", "resources": [' + bad + b", " + good + b"]}"
    assert [each["name"] for each in offers.resources_in(200, listed, "g", "v1")] == ["a"]


def nested(depth: int) -> Any:
    found: Any = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize(
    "verbs",
    [nested(300), [1], "get", [""], ["get\x1b[2J"], ["a" * 254], ["get"] * 51],
    ids=lambda verbs: str(verbs)[:9],
)
def test_a_resource_whose_verbs_nobody_can_read_is_left_out(verbs: Any) -> None:
    good = {"name": "a", "kind": "A", "verbs": ["get"]}
    listed = {"groupVersion": "g/v1", "resources": [{**good, "verbs": verbs}, good]}
    found = offers.resources_in(200, json.dumps(listed).encode(), "g", "v1")
    assert found == ({**good, "namespaced": False},)


@pytest.mark.parametrize(
    ("field", "value"),
    [("shortNames", "fl"), ("shortNames", [1]), ("categories", {}), ("group", 5), ("version", []), ("singularName", 1),
     ("other", nested(300))],
)  # fmt: skip
def test_what_is_wrong_of_a_resource_goes_to_nobody(field: str, value: Any) -> None:
    listed = {"groupVersion": "g/v1", "resources": [{"name": "a", "kind": "A", "verbs": ["get"], field: value}]}
    found = offers.resources_in(200, json.dumps(listed).encode(), "g", "v1")
    (item,) = offers.with_discovery({"items": []}, [offer("g", "v1", (1, 1), *found)])["items"]
    assert item["versions"][0]["resources"] == [
        {
            "resource": "a", "singularResource": "a", "scope": "Cluster", "verbs": ["get"],
            "responseKind": {"group": "g", "version": "v1", "kind": "A"},
        }
    ]  # fmt: skip


def test_nobody_fills_the_discovery_of_all() -> None:
    many = [{"name": f"a{number}", "kind": "A", "verbs": ["get"]} for number in range(2100)]
    listed = json.dumps({"groupVersion": "g/v1", "resources": many}).encode()
    assert len(offers.resources_in(200, listed, "g", "v1")) == 2000


def test_a_conditions_time_is_that_of_its_status() -> None:
    first = api_services.with_condition({}, Availability("False", "MissingEndpoints", "a"), "2026-01-01T00:00:00Z")
    later = api_services.with_condition(first, Availability("False", "ServiceNotFound", "b"), "2026-01-02T00:00:00Z")
    assert later["conditions"][0]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    good = api_services.with_condition(later, api_services.PASSED, "2026-01-03T00:00:00Z")
    assert good["conditions"] == [
        {
            "type": "Available", "status": "True", "reason": "Passed", "message": "all checks passed",
            "lastTransitionTime": "2026-01-03T00:00:00Z",
        }
    ]  # fmt: skip
