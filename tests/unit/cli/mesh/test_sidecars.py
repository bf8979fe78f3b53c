"""What is read of sidecars: a Pod may answer anything, and nothing of it steers the terminal."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api.kinds import SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.sidecars import with_sidecar
from minik8s_modules.cli import kubectl
from minik8s_modules.cli.mesh.expecting import expected
from minik8s_modules.cli.mesh.looking import judge, rows, table_rows
from minik8s_modules.cli.mesh.sidecars import (
    DUMP,
    Expected,
    Unanswered,
    asking,
    container_of,
    read_configuration,
    read_counts,
)
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.mesh.wording import Address, has_path, leading, matching, plain, unwrapped
from tests.unit.mesh.namespaces import service

NOTHING: JsonObject = {
    "configs": [{"@type": f"x.{kind}ConfigDump"} for kind in ("Clusters", "Listeners", "Routes", "Endpoints")]
}
POD: JsonObject = {
    "metadata": {"name": "client", "namespace": "shop"},
    "spec": with_sidecar({"containers": [{"name": "app", "image": "i"}]}),
}


@pytest.mark.parametrize(
    "dump",
    [None, [], {}, {"configs": None}, {"configs": [1]}, {"configs": []}, "x", {"configs": [{"@type": 3}]},
     {"configs": [{"@type": "x.ClustersConfigDump", "dynamic_active_clusters": [{}]}, *NOTHING["configs"][1:]]}],
)  # fmt: skip
def test_what_is_no_configuration_is_unknown(dump: Any):
    with pytest.raises(Unanswered):
        read_configuration(dump)
    with pytest.raises(Unanswered):
        read_counts({"cluster_statuses": [{"host_statuses": [{}]}]})


def test_a_sidecar_that_was_told_nothing_has_nothing():
    found = read_configuration(NOTHING)
    assert (found.versions, found.listeners, found.updated, found.refused) == ({}, [], "", "")
    assert judge(found, Expected({}, {}), is_connected=True) == ("synced", "")
    wanted = Expected({("cluster", "web"): "1"}, {"web": {Address("10.0.0.1", 80): 1}})
    assert judge(found, wanted, is_connected=True) == ("behind", "cluster web, endpoints web")
    assert judge(found, wanted, is_connected=False)[0] == "no pilot"


def test_of_many_services_a_sidecar_has_those_that_it_has_asked_for():
    place, other = "100.0.0.1:80", "100.0.0.2:80"
    action = {"action": {"name": "chain"}}
    by_address = {"matcher_tree": {"exact_match_map": {"map": {"100.0.0.1": action, "100.0.0.2": action}}}}
    wildcard = {"socket_address": {"address": "0.0.0.0", "port_value": 80}}
    listener = {
        "name": "*.shop:80",
        "address": wildcard,
        "filter_chain_matcher": {"on_no_match": {"matcher": by_address}},
    }
    endpoint = {"address": {"socket_address": {"address": "10.0.0.1", "port_value": 8080}}}
    assignment = {
        "cluster_name": place,
        "endpoints": [{"lb_endpoints": [{"endpoint": endpoint, "load_balancing_weight": 1}]}],
    }
    cluster = {"cluster": {"name": place, "alt_stat_name": "web.shop:80"}, "version_info": "1"}
    table = {"name": "*.shop:80", "virtual_hosts": [{"name": "*", "domains": ["*"], "routes": []}]}
    found = read_configuration({"configs": [
        {"@type": "x.ClustersConfigDump", "dynamic_active_clusters": [cluster]},
        {"@type": "x.ListenersConfigDump", "dynamic_listeners": [{"active_state": {"listener": listener}}]},
        {"@type": "x.RoutesConfigDump", "dynamic_route_configs": [{"route_config": table, "version_info": "2"}]},
        {"@type": "x.EndpointsConfigDump", "dynamic_endpoint_configs": [{"endpoint_config": assignment}]},
    ]})  # fmt: skip
    weights = {Address("10.0.0.1", 8080): 1}
    told = {
        ("cluster", place): "1",
        ("cluster", other): "1",
        ("listener", "*.shop:80"): "",
        ("route", "*.shop:80"): "2",
    }
    wanted = Expected(told, {place: weights, other: weights}, frozenset({place, other}))
    assert judge(found, wanted, is_connected=True) == ("synced", "")
    changed = Expected(told, {place: {}, other: weights}, frozenset({place, other}))
    assert judge(found, changed, is_connected=True) == ("behind", f"endpoints {place}")
    few = Expected({}, {}, sharing={frozenset({80}): wanted}.__getitem__)
    assert judge(found, few, is_connected=True) == ("synced", ""), "they have become few, and share a listener yet"
    assert table_rows(found, {"10.0.0.1": "a"}) == [
        ("web.shop:80", place, "all", "a 100%"),
        ("*:80", "1 more", "all", "Pods that it asks the pilot for at the first request"),
    ]


def test_few_services_may_share_a_listener_yet_and_all_else_is_as_decided():
    api = FakeApi()
    for number in (1, 2):
        api.create(SERVICE, service(number, f"web-{number}", [80]))
    wanted = expected(api, "shop")
    assert {name for kind, name in wanted.versions if kind == "listener"} == {"web-1.shop:80", "web-2.shop:80"}
    assert wanted.sharing is not None
    sharing = wanted.sharing(frozenset({80}))
    assert {name for kind, name in sharing.versions if kind == "listener"} == {"*.shop:80"}
    assert wanted.sharing(frozenset({81})).versions == wanted.versions


def test_what_a_pod_says_does_not_steer_the_terminal():
    assert plain("a\x1b[2Jb\nc") == "a?[2Jb?c"

    def ask(_pod: JsonObject, path: str) -> Any:
        if path == DUMP:
            raise Unanswered("\x1b]0;x")
        return 7

    ((namespace, row),) = rows(ask, [POD], {"shop": Expected({}, {})}, datetime.now(UTC))
    assert (namespace, row) == ("shop", ("client", "", "unknown", "", "", "", "?]0;x"))


def test_the_sidecar_is_the_container_that_lasts():
    assert container_of(POD) == "envoy"
    assert container_of({"spec": {"containers": [{"name": "app", "image": "i"}]}}) == ""
    by_hand = {"containers": [{"name": "proxy", "image": "minik8s/envoy:1"}]}
    assert container_of({"spec": by_hand}) == "proxy"


def test_it_is_asked_by_exec_over_the_connection_that_was_named(monkeypatch: pytest.MonkeyPatch):
    asked: list[list[str]] = []

    def output_of(argv: list[str], _timeout_s: float) -> str:
        asked.append(argv)
        return "{" if len(asked) > 1 else '{"a": 1}'

    monkeypatch.setattr(kubectl, "output_of", output_of)
    ask = asking(argparse.Namespace(kubeconfig="/k", context=""))
    assert ask(POD, "/x") == {"a": 1}
    assert asked[0][:7] == ["--kubeconfig", "/k", "exec", "-n", "shop", "client", "-c"]
    with pytest.raises(Unanswered):
        ask(POD, "/x")


@pytest.mark.parametrize(
    ("script", "limit_s", "said"),
    [
        ("echo no such pod >&2; exit 1", 60.0, "no such pod"),
        ("while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done", 60.0, "more than 1000 bytes"),
        ("while :; do echo e >&2; done", 1.0, "no answer within|e"),
        ("exec sleep 100", 1.0, "no answer within 1 s"),
    ],
)
def test_a_pod_that_never_ends_is_not_listened_to_for_ever(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, limit_s: float, said: str
):
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(kubectl, "find", lambda: str(program))
    monkeypatch.setattr(kubectl, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match=said):
        kubectl.output_of(["exec"], limit_s)


def test_a_path_has_a_route_as_envoy_compares_them():
    assert has_path({"prefix": "/"}, "/x")
    assert not has_path({"prefix": "/y"}, "/x")
    assert has_path({"safe_regex": {"regex": "(?s:.*)(?:/1$)(?s:.*)"}}, "/a/1")
    assert not has_path({"safe_regex": {"regex": "/1"}}, "/a/1")
    assert not has_path({"safe_regex": {"regex": "("}}, "/a")


def test_a_pattern_is_shown_as_it_was_declared():
    assert unwrapped("(?s:.*)(?:/1$)(?s:.*)") == "/1$"
    assert unwrapped("/whole") == "/whole"


def test_routes_of_an_httproute_are_told_in_words():
    match = {"path_separated_prefix": "/a", "headers": [{"name": ":method", "string_match": {"exact": "GET"}}],
             "query_parameters": [{"name": "q", "string_match": {"exact": "1"}}]}  # fmt: skip
    assert matching({"match": match}) == "path /a and below, method: GET, ?q=1"
    assert matching({"match": {"path": "/a"}}) == "path /a"
    assert has_path(match, "/a/b")
    assert not has_path(match, "/ab")
    assert not has_path({"path": "/a"}, "/a/b")
    found = read_configuration(NOTHING)._replace(endpoints={"web/*": {Address("10.0.0.1", 80): 1}, "next/*": {}})
    clusters = [{"name": "web/*", "weight": 2}, {"name": "next/*", "weight": 1}, {"name": "none", "weight": 1}]
    told = leading({"route": {"weighted_clusters": {"clusters": clusters}}}, found.endpoints, {"10.0.0.1": "a"})
    assert [*told] == ["a 50%", "25% 503: no available endpoint", "25% 500: there is no such backend"]
    assert [*leading({"redirect": {"host_redirect": "b.example"}}, found.endpoints, {})] == [
        "redirect (MOVED_PERMANENTLY) to host b.example"
    ]
