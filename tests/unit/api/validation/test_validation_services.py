"""Rules of services and endpoints that coverage.yml names."""

from __future__ import annotations

import pytest

from minik8s_modules.api.kinds import ENDPOINT_SLICE, ENDPOINTS, SERVICE
from minik8s_modules.api.lifecycle.strategy import prepare_update
from minik8s_modules.api.validation import validate_create, validate_update, warnings
from tests.unit.api import samples

SPECIAL_IPV6 = (
    "::1", "0:0::1", "::", "fe80::1", "fe80::1%eth0", "fd00::1%eth0", "ff02::1",
    "::ffff:127.0.0.1", "::FFFF:7f00:1", "0:0:0:0:0:ffff:169.254.169.254", "::ffff:192.0.2.7",
)  # fmt: skip


def service(change):
    return samples.created(samples.merged(samples.sample(SERVICE), change))


def test_the_cluster_ip_stays():
    old = service({"spec": {"clusterIP": "100.0.0.2", "clusterIPs": ["100.0.0.2"]}})
    left_out = samples.merged(old, {"spec": {"clusterIP": None, "clusterIPs": None}})
    prepare_update(SERVICE, left_out, old)
    assert left_out["spec"]["clusterIP"] == "100.0.0.2"
    assert validate_update(SERVICE, left_out, old) == []
    changed = samples.merged(old, {"spec": {"clusterIP": "100.0.0.3", "clusterIPs": ["100.0.0.3"]}})
    prepare_update(SERVICE, changed, old)
    assert [cause.field for cause in validate_update(SERVICE, changed, old)] == ["spec.clusterIPs[0]"]


@pytest.mark.parametrize(
    ("kind", "change", "field"),
    [
        (SERVICE, {"spec": {"clusterIP": "::ffff:100.0.0.2"}}, "spec.clusterIPs[0]"),
        (SERVICE, {"spec": {"clusterIP": "fd00::1", "clusterIPs": ["fd00::1", "fd00::2"]}}, "spec.clusterIPs"),
        (SERVICE, {"spec": {"clusterIP": "fd00::1", "ipFamilies": ["IPv4"]}}, "spec.clusterIPs[0]"),
        (SERVICE, {"spec": {"ipFamilyPolicy": "BothStacks"}}, "spec.ipFamilyPolicy"),
        (ENDPOINT_SLICE, {"addressType": "FQDN"}, "addressType"),
        (ENDPOINT_SLICE, {"endpoints": [{"addresses": ["fd00::1"]}]}, "endpoints[0].addresses[0]"),
        *(
            (ENDPOINTS, {"subsets": [{"addresses": [{"ip": one}]}]}, "subsets[0].addresses[0].ip")
            for one in (*SPECIAL_IPV6, "127.0.0.1", "169.254.0.1", "web", "fd00::/64", "")
        ),
        *(
            (ENDPOINT_SLICE, {"addressType": "IPv6", "endpoints": [{"addresses": [one]}]}, "endpoints[0].addresses[0]")
            for one in (*SPECIAL_IPV6, "192.0.2.7")
        ),
    ],
)
def test_addresses_that_cannot_be_served_are_refused(kind, change, field):
    obj = samples.created(samples.merged(samples.sample(kind), change))
    assert [cause.field for cause in validate_create(kind, obj)] == [field]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"spec": {"type": "Mesh"}}, "spec.type"),
        ({"spec": {"type": "LoadBalancer", "healthCheckNodePort": 30001}}, "spec.healthCheckNodePort"),
        (
            {"spec": {"type": "NodePort", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30001}},
            "spec.healthCheckNodePort",
        ),
        ({"spec": {"ports": [{"port": 80, "protocol": "DCCP"}]}}, "spec.ports[0].protocol"),
        ({"spec": {"externalIPs": ["127.0.0.1"]}}, "spec.externalIPs[0]"),
        *(
            ({"spec": {"externalIPs": [one]}}, "spec.externalIPs[0]")
            for one in ("::1", "::", "fe80::1", "fe80::1%eth0", "ff02::1", "::ffff:192.0.2.9", "2001:db8::/64", "web")
        ),
        ({"spec": {"type": "ClusterIP", "ports": [{"port": 80, "nodePort": 30080}]}}, "spec.ports[0].nodePort"),
        (
            {
                "spec": {
                    "type": "NodePort",
                    "ports": [
                        {"name": "a", "port": 80, "nodePort": 30080},
                        {"name": "b", "port": 81, "nodePort": 30080},
                    ],
                }
            },
            "spec.ports[1].nodePort",
        ),
    ],
)
def test_what_is_not_served_is_refused(change, field):
    assert [cause.field for cause in validate_create(SERVICE, service(change))] == [field]


def test_endpoints_have_addresses_of_either_family():
    addresses = [{"ip": "192.0.2.7"}, {"ip": "2001:db8::7"}, {"ip": "FD00::0:7"}]
    both = samples.created(samples.merged(samples.sample(ENDPOINTS), {"subsets": [{"addresses": addresses}]}))
    assert validate_create(ENDPOINTS, both) == []
    own = {"metadata": {"name": "kubernetes", "namespace": "default"}, "subsets": [{"addresses": [{"ip": "::1"}]}]}
    assert validate_create(ENDPOINTS, samples.created(samples.merged(samples.sample(ENDPOINTS), own))) == []


def test_what_load_balancers_act_on_is_taken():
    declared = {"type": "LoadBalancer", "loadBalancerIP": "192.0.2.9", "loadBalancerSourceRanges": ["192.0.2.0/24"]}
    assert warnings(SERVICE, service({"spec": declared})) == []
    assert validate_create(SERVICE, service({"spec": declared})) == []
    second = {"loadBalancerIP": "2001:db8::9", "loadBalancerSourceRanges": ["2001:db8::/32", " 192.0.2.0/24 "]}
    assert validate_create(SERVICE, service({"spec": {**declared, **second}})) == []
    for address in ("127.0.0.1", "fe80::1", "::ffff:192.0.2.9"):
        (refused,) = validate_create(SERVICE, service({"spec": {**declared, "loadBalancerIP": address}}))
        assert refused.field == "spec.loadBalancerIP"
    for given in ("2001:db8::1", "fe80::%eth0/64", "2001:db8::/200"):
        (refused,) = validate_create(SERVICE, service({"spec": {**declared, "loadBalancerSourceRanges": [given]}}))
        assert refused.field == "spec.loadBalancerSourceRanges[0]"


def test_nothing_is_told_about_an_ordinary_service():
    assert warnings(SERVICE, service({"spec": {"selector": {"app": "web"}, "type": "NodePort"}})) == []


def test_what_only_the_former_type_had_goes_with_it():
    old = service({"spec": {"type": "NodePort", "clusterIP": "100.0.0.2", "clusterIPs": ["100.0.0.2"]}})
    old["spec"]["ports"][0]["nodePort"] = 30080
    inside = samples.merged(old, {"spec": {"type": "ClusterIP"}})
    prepare_update(SERVICE, inside, old)
    assert "nodePort" not in inside["spec"]["ports"][0]
    assert "externalTrafficPolicy" not in inside["spec"]
    assert inside["spec"]["clusterIP"] == "100.0.0.2"
    outside = samples.merged(old, {"spec": {"type": "ExternalName", "externalName": "example.org"}})
    prepare_update(SERVICE, outside, old)
    assert "clusterIP" not in outside["spec"]


@pytest.mark.parametrize("address", ["100.0.0.2", "None"])
def test_the_plural_follows_the_singular(address):
    old = service({"spec": {"clusterIP": address}})
    assert old["spec"]["clusterIPs"] == [address]
    left_out = samples.merged(old, {"spec": {"clusterIPs": None}})
    prepare_update(SERVICE, left_out, old)
    assert left_out == old
    before = samples.merged(old, {"spec": {"clusterIPs": None}})  # as headless services were once stored
    again = samples.merged(before, {})
    prepare_update(SERVICE, again, before)
    assert again["spec"]["clusterIPs"] == [address]
    assert validate_update(SERVICE, again, before) == []


@pytest.mark.parametrize("change", [{}, {"clusterIP": ""}, {"clusterIP": None}, {"clusterIPs": None}])
@pytest.mark.parametrize("address", ["100.0.0.2", "None"])
def test_an_external_name_leaves_no_address_behind(address, change):
    old = service({"spec": {"clusterIP": address}})
    new = samples.merged(old, {"spec": {"type": "ExternalName", "externalName": "example.org", **change}})
    prepare_update(SERVICE, new, old)
    assert not new["spec"].get("clusterIP")
    assert not {"clusterIPs", "ipFamilies", "ipFamilyPolicy"} & set(new["spec"])
    assert validate_update(SERVICE, new, old) == []


def test_a_slice_has_at_most_1000_endpoints():
    endpoints = [{"addresses": [f"10.0.{i // 250}.{i % 250 + 1}"]} for i in range(1001)]
    obj = samples.created(samples.merged(samples.sample(ENDPOINT_SLICE), {"endpoints": endpoints}))
    assert list(map(str, validate_create(ENDPOINT_SLICE, obj))) == [
        "endpoints: Too many: 1001: must have at most 1000 items"
    ]
