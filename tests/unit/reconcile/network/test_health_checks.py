"""Health checks of Services: what each node answers load balancers."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.names.ingress_entries import (
    check_entry,
    file_of,
    key_of,
    text_of,
)
from minik8s_modules.reconcile.network.health_checks import (
    checks_on,
    health_check,
    imagined_checks,
    with_checks,
)

KEY = "_health/default/web"


def service(**spec: Any) -> JsonObject:
    declared = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30090, **spec}
    return {"metadata": {"name": "web", "namespace": "default"}, "spec": declared}


def endpoints(*told: tuple[str, str, bool], family: str = "IPv4") -> JsonObject:
    """Return a slice of (uid, node, ready)."""
    return {
        "addressType": family,
        "endpoints": [
            {
                "addresses": [f"{family}-{uid}"],
                "nodeName": node,
                "conditions": {"ready": ready, "serving": True, "terminating": not ready},
                "targetRef": {"kind": "Pod", "uid": uid},
            }
            for uid, node, ready in told
        ],
    }


def on(node: str, *slices: JsonObject, leaving: tuple[str, ...] = (), **spec: Any) -> JsonObject | None:
    check = health_check(service(**spec), slices, leaving)
    return None if check is None else dict(check.on(node))


def test_a_node_counts_its_own_ready_pods_once():
    both = [endpoints(("a", "n1", True), ("b", "n1", True), ("c", "n2", True), family=one) for one in ("IPv4", "IPv6")]
    assert on("n1", *both) == {"port": 30090, "endpoints": 2}
    assert on("n2", *both) == {"port": 30090, "endpoints": 1}
    assert on("n3", *both) == {"port": 30090, "endpoints": 0}


def test_pods_that_end_are_not_counted_though_rules_still_lead_to_the_last():
    ends = endpoints(("a", "n1", False))
    assert on("n1", ends) == {"port": 30090, "endpoints": 0}
    assert on("n1", endpoints(("a", "n1", True)), leaving=("a",)) == {"port": 30090, "endpoints": 0}
    kept = on("n1", endpoints(("a", "n1", True)), leaving=("a",), publishNotReadyAddresses=True)
    assert kept == {"port": 30090, "endpoints": 1}


@pytest.mark.parametrize(
    "spec", [{"externalTrafficPolicy": "Cluster"}, {"type": "NodePort"}, {"healthCheckNodePort": 0}]
)
def test_only_local_load_balancers_are_asked_about(spec: JsonObject):
    assert on("n1", endpoints(("a", "n1", True)), **spec) is None


def test_a_service_of_ipv6_is_asked_about_there_too():
    both = on("n1", endpoints(("a", "n1", True)), ipFamilies=["IPv4", "IPv6"])
    assert both == {"port": 30090, "endpoints": 1, "ipv6": True}
    assert "listen 30090;" in text_of(KEY, both)
    assert "listen [::]:30090 ipv6only=on;" in text_of(KEY, both)
    assert "[::]" not in text_of(KEY, both, ipv6=False), "nginx would refuse it where the kernel has no IPv6"
    assert "[::]" not in text_of(KEY, {"port": 30090, "endpoints": 1})
    assert on("n1", ipFamilies=["IPv4"]) == {"port": 30090, "endpoints": 0}


def test_a_node_without_nginx_is_told_of_none():
    check = health_check(service(), [endpoints(("a", "n1", True))])
    assert check is not None
    checks = checks_on("n1", {"default/web": check})
    assert with_checks({}, checks) == {}
    assert with_checks({"_server": {}}, checks) == {"_server": {}, KEY: {"port": 30090, "endpoints": 1}}


def test_a_plan_changes_the_checks_of_its_services_alone():
    before = {"_server": {}, KEY: {"port": 30090, "endpoints": 1}, "_health/default/other": {"port": 1, "endpoints": 0}}
    hosts: JsonObject = {"_server": {}, "a.test": {}}
    kept = imagined_checks(hosts, before, {}, {}, "n1")
    assert kept == {**hosts, **{key: before[key] for key in before if key.startswith("_health/")}}
    moved = imagined_checks(hosts, before, {"default/web": service()}, {"default/web": []}, "n1")
    assert moved == {**kept, KEY: {"port": 30090, "endpoints": 0}}
    gone = imagined_checks(hosts, before, {"default/web": None}, {}, "n1")
    assert gone == {key: entry for key, entry in kept.items() if key != KEY}


def test_a_file_says_what_it_is_of():
    text = text_of(KEY, {"port": 30090, "endpoints": 2})
    assert 'return 200 \'{"service":{"namespace":"default","name":"web"},"localEndpoints":2,' in text
    assert "return 503 " in text_of(KEY, {"port": 30090, "endpoints": 0})
    assert (file_of(KEY), key_of(file_of(KEY))) == ("hosts/_health.default.web.conf", KEY)
    assert key_of(file_of("*.a.test")) == "*.a.test"


@pytest.mark.parametrize(
    ("key", "entry"),
    [
        ("_health/default", {"port": 30090, "endpoints": 0}),
        ("_health/../etc", {"port": 30090, "endpoints": 0}),
        ("_health/a/b/c", {"port": 30090, "endpoints": 0}),
        ("_health/a/b;}", {"port": 30090, "endpoints": 0}),
        (KEY, {"port": 0, "endpoints": 0}),
        (KEY, {"port": 30090, "endpoints": -1}),
        (KEY, {"port": "30090", "endpoints": 0}),
        (KEY, {"port": 30090}),
        (KEY, {"port": 30090, "endpoints": 0, "ipv6": "yes"}),
        (KEY, {"config": "", "secrets": {}}),
    ],
)
def test_what_cannot_be_a_check_is_refused(key: str, entry: JsonObject):
    with pytest.raises(KeyFault):
        check_entry(key, entry)
