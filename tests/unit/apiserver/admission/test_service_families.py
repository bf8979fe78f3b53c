"""IP families of a Service, and its addresses of each: given, kept, asked for, and given back."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from typing import Any

import pytest

from minik8s_modules.api.errors import Invalid
from minik8s_modules.api.kinds import SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.admission import service_addresses
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.verbs import deleting, writing

BOTH = ["IPv4", "IPv6"]
SECOND = ipaddress.IPv6Network("fd00:96::/112")
PREFER, REQUIRE = {"ipFamilyPolicy": "PreferDualStack"}, {"ipFamilyPolicy": "RequireDualStack"}
NO_DUAL = "this cluster is not configured for dual-stack services"


@pytest.fixture
def dual(backend: Backend) -> Backend:
    return replace(backend, dual_stack=True, service_cidr_ipv6=SECOND)


def create(backend: Backend, options: Options, name: str = "web", **spec: Any) -> JsonObject:
    obj = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}, **spec}}
    return dict(writing.create(backend, Target(SERVICE, "default"), obj, options).object["spec"])


def change(backend: Backend, options: Options, **spec: Any) -> JsonObject:
    target = Target(SERVICE, "default", "web")
    now = dict(backend.latest(target).object)
    now["spec"] = {key: value for key, value in {**now["spec"], **spec}.items() if value is not None}
    return dict(writing.update(backend, target, now, options).object["spec"])


def claimed(backend: Backend) -> list[str]:
    prefix = service_addresses.ADDRESSES
    return sorted(entry.key.removeprefix(prefix) for entry in backend.store.range(prefix).entries)


@pytest.mark.parametrize(
    ("spec", "families", "policy"),
    [
        ({}, ["IPv4"], "SingleStack"),
        (PREFER, ["IPv4"], "PreferDualStack"),
        ({"clusterIP": "None"}, ["IPv4"], "SingleStack"),
        ({"clusterIP": "None", **PREFER}, BOTH, "PreferDualStack"),
        ({"clusterIP": "None", **REQUIRE}, BOTH, "RequireDualStack"),
        ({"clusterIP": "None", "ipFamilies": ["IPv6"]}, ["IPv6"], "SingleStack"),
        # who names the addresses himself may name those of both, as in Kubernetes
        ({"clusterIP": "None", "selector": None}, BOTH, "RequireDualStack"),
    ],
)
def test_without_a_range_of_ipv6_a_name_can_stand_for_both_and_an_address_for_one(
    backend: Backend, options: Options, spec: JsonObject, families: list[str], policy: str
) -> None:
    found = create(replace(backend, dual_stack=True), options, **spec)
    assert (found["ipFamilies"], found["ipFamilyPolicy"]) == (families, policy)
    assert all(":" not in each for each in found["clusterIPs"])


@pytest.mark.parametrize(
    ("spec", "families", "addresses"),
    [
        ({}, ["IPv4"], ["100.0.0.2"]),
        (PREFER, BOTH, ["100.0.0.2", "fd00:96::2"]),
        (REQUIRE, BOTH, ["100.0.0.2", "fd00:96::2"]),
        ({"ipFamilies": ["IPv6"]}, ["IPv6"], ["fd00:96::2"]),
        ({"ipFamilies": ["IPv6"], **PREFER}, ["IPv6", "IPv4"], ["fd00:96::2", "100.0.0.2"]),
        ({"clusterIP": "fd00:96::77"}, ["IPv6"], ["fd00:96::77"]),
        ({"clusterIP": "fd00:96::77", **REQUIRE}, ["IPv6", "IPv4"], ["fd00:96::77", "100.0.0.2"]),
        ({"clusterIPs": ["100.0.0.9", "fd00:96::9"], "clusterIP": "100.0.0.9", **REQUIRE}, BOTH, None),
    ],
)
def test_a_service_has_an_address_of_each_family(
    dual: Backend, options: Options, spec: JsonObject, families: list[str], addresses: list[str] | None
) -> None:
    found = create(dual, options, **spec)
    wanted = addresses or spec["clusterIPs"]
    assert (found["ipFamilies"], found["clusterIPs"], found["clusterIP"]) == (families, wanted, wanted[0])
    assert claimed(dual) == sorted(wanted)
    deleting.delete(dual, Target(SERVICE, "default", "web"), {}, options)
    assert claimed(dual) == []


@pytest.mark.parametrize(
    ("second", "spec", "words"),
    [
        (False, {"clusterIP": "None", **REQUIRE}, NO_DUAL),
        (False, REQUIRE, NO_DUAL),
        (False, {"ipFamilies": ["IPv6"]}, r"ipFamilies\[0\]: Invalid value: \"IPv6\": not configured on this cluster"),
        (False, {"clusterIP": "fd00:96::7"}, r"clusterIPs\[0\].*IPv6 is not configured on this cluster"),
        (True, {"ipFamilies": BOTH}, "'PreferDualStack' when multiple IP families are specified"),
        (
            True,
            {"clusterIP": "100.0.0.9", "clusterIPs": ["100.0.0.9", "fd00:96::9"]},
            "'PreferDualStack' when multiple cluster IPs are specified",
        ),
        (True, {"ipFamilies": ["IPv6"], "externalIPs": ["192.0.2.9"]}, r"externalIPs\[0\].*is of IPv4, of which"),
        (True, {"externalIPs": ["192.0.2.9", "2001:db8::9"]}, r"externalIPs\[1\].*is of IPv6, of which.*add IPv6"),
        (True, {"clusterIP": "fd00:97::7"}, "the provided IP is not in the valid range fd00:96::/112"),
    ],
)
def test_what_a_service_cannot_have_is_refused(
    backend: Backend, dual: Backend, options: Options, *, second: bool, spec: JsonObject, words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        create(dual if second else backend, options, **spec)
    assert claimed(backend) == []


@pytest.mark.parametrize("spelled", ["fd00:96::7", "FD00:96::7", "fd00:0096:0:0::0007"])
def test_an_address_is_one_services_however_it_is_written(dual: Backend, options: Options, spelled: str) -> None:
    create(dual, options, clusterIP="fd00:96::7")
    with pytest.raises(Invalid, match="provided IP is already allocated to service default/web"):
        create(dual, options, "thief", clusterIP=spelled)
    both = {"clusterIP": "100.0.0.9", "clusterIPs": ["100.0.0.9", spelled]}
    with pytest.raises(Invalid, match="is already allocated"):
        create(dual, options, "thief", **both, **REQUIRE)
    assert claimed(dual) == ["fd00:96::7"]


def test_a_service_gets_and_lets_go_of_the_second_family(dual: Backend, options: Options) -> None:
    create(dual, options)
    assert change(dual, options, **PREFER)["clusterIPs"] == ["100.0.0.2", "fd00:96::2"]
    # a full update of a client that knows nothing of families changes nothing
    blind = dict.fromkeys(("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"))
    assert change(dual, options, **blind)["ipFamilies"] == BOTH
    with pytest.raises(Invalid, match="must be 'SingleStack' to release the secondary cluster IP"):
        change(dual, options, clusterIPs=["100.0.0.2"])
    with pytest.raises(Invalid, match=r"clusterIPs\[1\].*may not change once set"):
        change(dual, options, clusterIPs=["100.0.0.2", "fd00:96::3"])
    assert claimed(dual) == ["100.0.0.2", "fd00:96::2"]
    found = change(dual, options, ipFamilyPolicy="SingleStack")
    assert (found["clusterIPs"], found["ipFamilies"]) == (["100.0.0.2"], ["IPv4"])
    assert claimed(dual) == ["100.0.0.2"]
    with pytest.raises(Invalid, match="may not change once set"):
        change(dual, options, ipFamilies=["IPv6"])
    external = {"type": "ExternalName", "externalName": "example.org", "ports": None}
    assert "ipFamilies" not in change(dual, options, **external, clusterIP=None, clusterIPs=None)
    assert claimed(dual) == []


def test_who_prefers_both_gets_no_second_address_by_itself(backend: Backend, dual: Backend, options: Options) -> None:
    create(backend, options, **PREFER)
    assert change(dual, options, sessionAffinity="ClientIP")["clusterIPs"] == ["100.0.0.2"]
    assert change(dual, options, **REQUIRE)["clusterIPs"] == ["100.0.0.2", "fd00:96::2"]


def test_headless_services_change_their_families(dual: Backend, options: Options) -> None:
    create(dual, options, clusterIP="None")
    assert change(dual, options, **PREFER)["ipFamilies"] == BOTH
    assert change(dual, options, ipFamilyPolicy="SingleStack")["ipFamilies"] == ["IPv4"]


def test_what_crashes_left_of_either_family_is_repaired(dual: Backend, options: Options) -> None:
    create(dual, options, **REQUIRE)
    key = service_addresses.ADDRESSES + "fd00:96::2"
    entry = dual.store.get(key)
    assert entry is not None
    dual.store.delete(key, entry.revision)
    service_addresses.repair(dual)
    assert claimed(dual) == ["100.0.0.2", "fd00:96::2"]


@pytest.mark.parametrize(
    "spec",
    [REQUIRE, PREFER, {"ipFamilies": ["IPv6"]}, {"clusterIP": "None", **REQUIRE}, {"ipFamilies": ["IPv6"], **PREFER}],
)
def test_a_service_of_a_range_that_is_gone_is_still_updated_and_deleted(
    backend: Backend, dual: Backend, options: Options, spec: JsonObject
) -> None:
    held = {"metadata": {"name": "web", "finalizers": ["example.org/wait"]}}
    rest = {"ports": [{"port": 80}], "selector": {"app": "web"}}
    target, before = Target(SERVICE, "default", "web"), create(dual, options, "other")
    obj = writing.create(dual, Target(SERVICE, "default"), {**held, "spec": {**rest, **spec}}, options).object
    families = {field: obj["spec"][field] for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy")}
    assert before["ipFamilies"] == ["IPv4"]
    assert not options.warnings
    asking = {"annotations": {"minik8s.io/asked-by": "why"}}
    changed = options._replace(dry_run=True)
    writing.patch(backend, target, lambda old: {**old, "metadata": {**old["metadata"], **asking}}, changed)
    asked = [*options.warnings]  # by why, which writes nothing
    options.warnings.clear()
    found = change(backend, options, sessionAffinity="ClientIP")
    assert asked == options.warnings
    assert found["sessionAffinity"] == "ClientIP"
    lost = [each for each in families["clusterIPs"] if ":" in each]
    assert [text.split(": ")[1] for text in options.warnings] == [f"nobody reaches {each}" for each in lost]
    assert {field: found[field] for field in families} == families
    # a full update of a client that knows nothing of families
    found = change(backend, options, **dict.fromkeys(("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")))
    assert {field: found[field] for field in families} == families
    # but nothing new of the family that is gone
    with pytest.raises(Invalid, match="configured"):
        create(backend, options, "late", **REQUIRE)
    deleting.delete(backend, target, {}, options)
    now = dict(backend.latest(target).object)
    now["metadata"] = {**now["metadata"], "finalizers": []}
    writing.update(backend, target, now, options)
    deleting.delete(backend, Target(SERVICE, "default", "other"), {}, options)
    assert claimed(backend) == []


def test_a_service_of_a_range_that_is_gone_gets_no_other_families(
    backend: Backend, dual: Backend, options: Options
) -> None:
    create(dual, options, **REQUIRE)
    with pytest.raises(Invalid, match=r"may not change once set|not configured"):
        change(backend, options, ipFamilies=["IPv6", "IPv4"])
    with pytest.raises(Invalid, match=r"may not change once set|not configured"):
        change(backend, options, clusterIPs=["100.0.0.2", "fd00:96::9"])
    assert change(backend, options, ipFamilyPolicy="SingleStack")["clusterIPs"] == ["100.0.0.2"]
    assert claimed(backend) == ["100.0.0.2"]


@pytest.fixture
def alone(backend: Backend) -> Backend:
    return replace(backend, service_cidr=SECOND)


@pytest.mark.parametrize(
    "spec", [{}, PREFER, {"ipFamilies": ["IPv6"]}, {"clusterIP": "fd00:96::2"}, {"type": "NodePort"}]
)
def test_where_services_have_ipv6_alone_that_is_what_they_get(
    alone: Backend, options: Options, spec: JsonObject
) -> None:
    found = create(alone, options, **spec)
    assert (found["ipFamilies"], found["clusterIPs"]) == (["IPv6"], ["fd00:96::2"])
    assert create(alone, options, "db", clusterIP="None", **PREFER)["ipFamilies"] == ["IPv6"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (REQUIRE, NO_DUAL),
        ({"ipFamilies": ["IPv4"]}, "not configured on this cluster"),
        ({"clusterIP": "100.0.0.9"}, "IPv4 is not configured on this cluster"),
        ({"externalIPs": ["192.0.2.7"]}, "of which the Service has no address"),
    ],
)
def test_where_services_have_ipv6_alone_nobody_gets_ipv4(
    alone: Backend, options: Options, spec: JsonObject, words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        create(alone, options, **spec)
