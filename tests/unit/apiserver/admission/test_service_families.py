"""IP families of a Service: both where its name stands for its Pods' addresses, IPv4 where it has an address itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from minik8s_modules.api.errors import Invalid
from minik8s_modules.api.kinds import SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.verbs import writing

BOTH = ["IPv4", "IPv6"]


def create(backend: Backend, options: Options, **spec: Any) -> JsonObject:
    obj = {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}, **spec}}
    return dict(writing.create(backend, Target(SERVICE, "default"), obj, options).object)


@pytest.mark.parametrize(
    ("spec", "families", "policy"),
    [
        ({"clusterIP": "None"}, ["IPv4"], "SingleStack"),
        ({"clusterIP": "None", "ipFamilyPolicy": "PreferDualStack"}, BOTH, "PreferDualStack"),
        ({"clusterIP": "None", "ipFamilyPolicy": "RequireDualStack"}, BOTH, "RequireDualStack"),
        ({"clusterIP": "None", "ipFamilies": BOTH}, BOTH, "RequireDualStack"),
        ({"ipFamilyPolicy": "PreferDualStack"}, ["IPv4"], "PreferDualStack"),
    ],
)
def test_a_headless_service_has_the_families_of_its_pods(
    backend: Backend, options: Options, spec: JsonObject, families: list[str], policy: str
) -> None:
    found = create(replace(backend, dual_stack=True), options, **spec)["spec"]
    assert (found["ipFamilies"], found["ipFamilyPolicy"]) == (families, policy)
    assert all(":" not in each for each in found["clusterIPs"])


def test_where_pods_have_one_address_a_service_prefers_in_vain(backend: Backend, options: Options) -> None:
    found = create(backend, options, clusterIP="None", ipFamilyPolicy="PreferDualStack")["spec"]
    assert found["ipFamilies"] == ["IPv4"]


@pytest.mark.parametrize(
    ("pods", "spec", "words"),
    [
        ("one", {"clusterIP": "None"}, "this cluster is not configured for dual-stack services"),
        ("two", {}, "cluster IPs are of IPv4 in this cluster"),
    ],
)
def test_what_cannot_be_of_both_families_is_refused_where_it_must_be(
    backend: Backend, options: Options, pods: str, spec: JsonObject, words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        create(replace(backend, dual_stack=pods == "two"), options, ipFamilyPolicy="RequireDualStack", **spec)


def test_a_service_gets_and_lets_go_of_the_second_family(backend: Backend, options: Options) -> None:
    dual = replace(backend, dual_stack=True)
    old = create(dual, options, clusterIP="None")
    target = Target(SERVICE, "default", "web")

    def updated(policy: str) -> JsonObject:
        now = dict(dual.latest(target).object)
        now["spec"] = {**now["spec"], "ipFamilyPolicy": policy}
        return dict(writing.update(dual, target, now, options).object)

    assert old["spec"]["ipFamilies"] == ["IPv4"]
    assert updated("PreferDualStack")["spec"]["ipFamilies"] == BOTH
    assert updated("SingleStack")["spec"]["ipFamilies"] == ["IPv4"]
