"""Where requests go: every file of tests/cases/decide_mapping is one namespace and what comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.network.url_patterns import pattern_fault
from minik8s_modules.mesh.mapping import MOST, Declared, Mapped, decide_mapping, mapping_spec, pod_weights
from tests.unit.mesh.namespaces import IPS, declared

CASES = sorted((Path(__file__).parents[2] / "cases" / "decide_mapping").glob("*.yml"))


def entry(said: dict[str, Any]) -> dict[str, Any]:
    """Return an entry of a case as one of a SidecarMapping."""
    pods = said["to"] if isinstance(said["to"], list) else [said["to"]]
    share: dict[str, Any] = {field: said[field] for field in ("weight", "url", "headers") if field in said}
    return {**share, "endpoints": [{"ip": IPS[pod], "targetPort": 8080} for pod in pods]}


def reasons(mapped: Mapped) -> dict[str, list[str]]:
    return {
        name: [
            verdict.refused[0] if verdict.refused else "Accepted",
            verdict.broken[0] if verdict.broken else "ResolvedRefs",
        ]
        for name, verdict in mapped.verdicts.items()
    }


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem.replace("-", " "))
def test_decide_mapping(path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    mapped = decide_mapping(declared(case))
    said = {place: [entry(one) for one in entries] for place, entries in case["says"].items()}
    assert mapping_spec(mapped) == said
    assert reasons(mapped) == case["verdicts"]
    assert [each.batch for each in mapped.withholdings] == case.get("withholds", [])


def test_the_order_of_objects_decides_nothing() -> None:
    for path in CASES:
        found = declared(yaml.safe_load(path.read_text()))
        turned = Declared(*([*each][::-1] for each in found[:5]))  # type: ignore[arg-type]
        one, other = decide_mapping(found), decide_mapping(turned)
        assert (mapping_spec(one), one.verdicts) == (mapping_spec(other), other.verdicts), path


def test_names_and_addresses_of_the_other_family_are_nobody_to_send_requests_to() -> None:
    found = declared({"services": [{"name": "web", "ports": [80]}], "pods": {"web": ["a"]}})
    (pods,) = found.slices
    others = [
        {**pods, "addressType": kind, "endpoints": [{"addresses": [address]}]}
        for kind, address in (("FQDN", "db.example.com"), ("IPv6", "fd00::1"))
    ]
    assert decide_mapping(found._replace(slices=[*others, pods])) == decide_mapping(found)


def test_pods_of_a_port_that_is_udp_as_well_are_those_of_tcp() -> None:
    split = {"name": "x", "serviceRef": "dns", "port": 53, "subsets": [{"name": "v1", "weight": 1}]}
    case = {"services": [{"name": "dns", "ports": [53]}], "pods": {"dns": ["a"]}, "subsets": {"v1": ["a"]}}
    found = declared({**case, "virtual": [split]})
    ports = [{"name": "udp", "port": 53, "protocol": "UDP"}, {"port": 53}]
    both = {**found.services[0], "spec": {**found.services[0]["spec"], "ports": ports}}
    mapped = decide_mapping(found._replace(services=[both]))
    assert mapped.verdicts["x"].broken is None
    assert mapped.ports["100.0.0.1:53"].branches[0].endpoints


@pytest.mark.parametrize(
    ("weights", "sizes"),
    [([1, 2], [2, 1]), ([5, 1, 3], [1, 4, 2]), ([10**9, 10**9], [3, 50]), ([2**31 - 1, 1], [1, 1])],
)
def test_a_subset_has_its_share_whatever_its_size(weights: list[int], sizes: list[int]) -> None:
    found = pod_weights(weights, sizes)
    total = sum(weight * size for weight, size in zip(found, sizes, strict=True))
    assert 0 < total <= MOST
    for one, weight, size in zip(found, weights, sizes, strict=True):
        assert one * size / total == pytest.approx(weight / sum(weights), abs=0.001)


def test_an_empty_subset_counts_for_nothing() -> None:
    assert pod_weights([5, 1], [0, 2]) == [0, 1]
    assert pod_weights([0, 0], [1, 2]) == [0, 0]


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("^/next/[0-9]+$", ""),
        ("", ""),
        ("(", "RE2"),
        ("(?=a)b", "RE2"),
        ("(a{1,1000}){1,1000}", "RE2"),
        (r"\Qabc", "RE2"),  # what is put after it would be part of the quotation
        (r"\pL{200}", "too large"),
        ("x{1000}", "at most 1000 instructions"),
        ("\ud800", "RE2"),
    ],
)
def test_a_pattern_is_re2s_and_not_too_large(pattern: str, fault: str) -> None:
    found = pattern_fault(pattern)
    assert fault in found if fault else not found


def test_every_case_is_of_one_namespace() -> None:
    for path in CASES:
        found = declared(yaml.safe_load(path.read_text()))
        assert {objects.namespace(obj) for group in found[:5] for obj in group} == {"shop"}
