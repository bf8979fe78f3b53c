"""EndpointSlices and Endpoints: every file of tests/cases/decide_slices is a history; user's Endpoints are mirrored."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.selectors import from_map
from minik8s_modules.controllers.network.endpoints import decide_endpoints
from minik8s_modules.controllers.network.endpoints_of_pods import has_endpoints, offers
from minik8s_modules.controllers.network.endpointslices import (
    MANAGED_BY,
    MIRRORED,
    SELECTED,
    SERVICE_NAME,
    SliceStep,
    decide_families,
    decide_mirrors,
    decide_slices,
    is_mirrored,
    unknown_targets,
)

CASES = sorted((Path(__file__).parents[3] / "cases" / "decide_slices").glob("*.yml"))
EACH = pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)


def service(fields: JsonObject) -> JsonObject:
    """Return a Service from a case's short form (its spec)."""
    spec = {"clusterIP": "100.0.0.9", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}], **fields}
    return {"metadata": {"name": "web", "namespace": "default", "uid": "u-web", "labels": {"team": "a"}}, "spec": spec}


def pod(fields: JsonObject) -> JsonObject:
    """Return a pod from a case's short form: name, ip, ready, deleting, phase, node, labels, ports."""
    metadata: JsonObject = {"name": fields["name"], "namespace": "default", "uid": f"u-{fields['name']}"}
    metadata["labels"] = fields.get("labels", {"app": "web"})
    if fields.get("deleting"):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    ports = [{"name": name, "containerPort": number} for name, number in (fields.get("ports") or {}).items()]
    ready = "True" if fields.get("ready", True) else "False"
    status = {"phase": fields.get("phase", "Running"), "conditions": [{"type": "Ready", "status": ready}]}
    if fields.get("ip"):
        status["podIP"] = fields["ip"]
        status["podIPs"] = [{"ip": fields[name]} for name in ("ip", "ipv6") if fields.get(name)]
    spec = {"nodeName": fields.get("node", "n1"), "containers": [{"name": "c", "ports": ports}]}
    return {"metadata": metadata, "spec": {**spec, **fields.get("spec", {})}, "status": status}


def after(slices: list[JsonObject], steps: list[SliceStep]) -> list[JsonObject]:
    """Return the slices after the steps; new ones are named in order."""
    kept = {objects.name(one): one for one in slices}
    for number, step in enumerate(steps):
        if step.action == "create":
            name = f"new-{number}-{len(kept)}"
            kept[name] = {**step.obj, "metadata": {**step.obj["metadata"], "name": name, "uid": name}}
        elif step.action == "update":
            kept[objects.name(step.obj)] = step.obj
        else:
            del kept[objects.name(step.obj)]
    return list(kept.values())


def short(one: JsonObject) -> str:
    """Return a slice as a case tells it: its ports, and each address with what is not as usual."""
    ports = ",".join(f"{each['name']}={each['port']}/{each['protocol']}" for each in one["ports"])
    words = []
    for endpoint in one["endpoints"]:
        result = endpoint["conditions"]
        state = "" if result["ready"] else "-serving" if result["serving"] else "-unready"
        words.append(endpoint["addresses"][0] + state + ("-ending" if result["terminating"] else ""))
    return f"{ports} {' '.join(words)}".strip()


@EACH
def test_decide_slices(path: Path) -> None:
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    declared, slices = service(case.get("service", {"selector": {"app": "web"}})), list[JsonObject]()
    for step in case["steps"]:
        pods = [pod(each) for each in step["pods"]]
        pods += [pod({"name": f"many-{n}", "ip": f"10.0.{n // 200}.{n % 200 + 1}"}) for n in range(step.get("many", 0))]
        chosen = [each for each in pods if from_map(declared["spec"].get("selector")).matches(objects.labels(each))]
        declared["spec"] |= {"ipFamilies": step["families"]} if "families" in step else {}
        steps = decide_families(declared, chosen, lambda _: "", slices)
        assert [each.action for each in steps] == step["does"]
        slices = after(slices, steps)
        if "slices" in step:
            assert sorted(map(short, slices)) == sorted(step["slices"])
        if "sizes" in step:
            assert sorted(len(one["endpoints"]) for one in slices) == step["sizes"]
        again = decide_families(declared, chosen, lambda _: "", slices)
        assert again == []


def test_a_slice_tells_whose_it_is() -> None:
    declared = service({"selector": {"app": "web"}, "clusterIP": "None"})
    (step,) = decide_slices(declared, offers(declared, [pod({"name": "a", "ip": "10.0.0.1"})]), [])
    assert step.obj["metadata"]["generateName"] == "web-"
    assert objects.labels(step.obj) == {
        "team": "a",
        SERVICE_NAME: "web",
        MANAGED_BY: SELECTED,
        "service.kubernetes.io/headless": "",
    }
    assert objects.controller_of(step.obj) == {
        "apiVersion": "v1",
        "kind": "Service",
        "name": "web",
        "uid": "u-web",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    endpoint = step.obj["endpoints"][0]
    assert endpoint["targetRef"] == {"kind": "Pod", "namespace": "default", "name": "a", "uid": "u-a"}
    assert endpoint["nodeName"] == "n1"


def test_ready_endpoints_are_for_their_own_zone() -> None:
    pods = [
        pod({"name": "a", "ip": "10.0.0.1", "node": "n1"}),
        pod({"name": "b", "ip": "10.0.0.2", "node": "n2", "ready": False}),
        pod({"name": "c", "ip": "10.0.0.3", "node": "n3"}),
    ]
    zones = {"n1": "west", "n2": "west"}

    def zoned(**spec: str) -> list[tuple[str, object]]:
        declared = service({"selector": {"app": "web"}, **spec})
        (step,) = decide_slices(declared, offers(declared, pods, lambda node: zones.get(node, "")), [])
        return [(one.get("zone", ""), one.get("hints")) for one in step.obj["endpoints"]]

    assert zoned() == [("west", None), ("west", None), ("", None)]
    hints = {"forZones": [{"name": "west"}]}
    assert zoned(trafficDistribution="PreferClose") == [("west", hints), ("west", None), ("", None)]


def test_an_endpoint_that_two_slices_hold_stays_in_one() -> None:
    declared = service({"selector": {"app": "web"}})
    found = offers(declared, [pod({"name": "a", "ip": "10.0.0.1"})])
    once = after([], decide_slices(declared, found, []))
    twice = [*once, {**once[0], "metadata": {**once[0]["metadata"], "name": "second", "uid": "second"}}]
    assert [step.action for step in decide_slices(declared, found, twice)] == ["delete"]


def test_an_empty_selector_has_no_endpoints() -> None:
    assert not has_endpoints(service({"selector": {}}))
    assert not has_endpoints(service({"selector": {"app": "web"}, "type": "ExternalName"}))


def test_target_ports_that_pods_do_not_have_are_named_with_them() -> None:
    ports = [{"name": "web", "port": 80, "targetPort": "http"}, {"name": "dns", "port": 53, "targetPort": "names"}]
    declared = service({"selector": {"app": "web"}, "ports": ports})
    pods = [
        pod({"name": "a", "ip": "10.0.0.1", "ports": {"http": 8080}}),
        pod({"name": "b", "ip": "10.0.0.2"}),
        pod({"name": "c"}),
    ]
    assert unknown_targets(declared, offers(declared, pods)) == {"names": ["a", "b"], "http": ["b"]}
    assert unknown_targets(service({}), offers(service({}), pods)) == {}


def test_endpoints_tell_ready_and_unready_ones_apart() -> None:
    declared = service({"selector": {"app": "web"}})
    pods = [
        pod({"name": "a", "ip": "10.0.0.1"}),
        pod({"name": "b", "ip": "10.0.0.2", "ready": False}),
        pod({"name": "c", "ip": "10.0.0.3", "deleting": True}),
    ]
    made = decide_endpoints(declared, offers(declared, pods), None)
    assert made is not None
    (subset,) = made["subsets"]
    assert [each["ip"] for each in subset["addresses"]] == ["10.0.0.1"]
    assert [each["ip"] for each in subset["notReadyAddresses"]] == ["10.0.0.2"]
    assert subset["ports"] == [{"protocol": "TCP", "port": 8080}]
    assert decide_endpoints(declared, offers(declared, pods), made) is None


def test_what_a_user_wrote_is_mirrored_by_family() -> None:
    ports = [{"port": 80, "protocol": "TCP"}]
    endpoints = {
        "metadata": {"name": "web", "namespace": "default", "uid": "e"},
        "subsets": [{"addresses": [{"ip": "192.0.2.7"}, {"ip": "2001:db8::7"}], "ports": ports}],
    }
    slices = after([], decide_mirrors(endpoints, []))
    assert [(one["addressType"], short(one)) for one in slices] == [
        ("IPv4", "=80/TCP 192.0.2.7"),
        ("IPv6", "=80/TCP 2001:db8::7"),
    ]
    assert decide_mirrors(endpoints, slices) == []
    left = {**endpoints, "subsets": [{"addresses": [{"ip": "2001:db8::8"}], "ports": ports}]}
    slices = after(slices, decide_mirrors(left, slices))
    assert [(one["addressType"], short(one)) for one in slices] == [("IPv6", "=80/TCP 2001:db8::8")]
    assert decide_mirrors(left, slices) == []


def test_what_a_user_wrote_is_mirrored() -> None:
    external = service({})
    endpoints = {
        "metadata": {"name": "web", "namespace": "default", "uid": "e"},
        "subsets": [
            {
                "addresses": [{"ip": "192.0.2.7"}],
                "notReadyAddresses": [{"ip": "192.0.2.8"}],
                "ports": [{"name": "", "port": 5432, "protocol": "TCP"}],
            }
        ],
    }
    assert is_mirrored(external, endpoints)
    slices = after([], decide_mirrors(endpoints, []))
    assert list(map(short, slices)) == ["=5432/TCP 192.0.2.7 192.0.2.8-unready"]
    assert objects.labels(slices[0])[MANAGED_BY] == MIRRORED
    assert decide_mirrors(endpoints, slices) == []
    assert [step.action for step in decide_mirrors(None, slices)] == ["delete"]
    assert not is_mirrored(service({"selector": {"app": "web"}}), endpoints)
