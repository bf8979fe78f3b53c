"""The IP families of a Service: what it asks for, as far as the cluster has them.

Services have addresses of IPv6 where the cluster has a range for them. A Service without a cluster IP, whose name
stands for its Pods' addresses, needs only Pods that have some. Source: kubernetes
``pkg/registry/core/service/storage/alloc.go`` (``initIPFamilyFields``), texts included.
"""

from __future__ import annotations

from collections.abc import Sequence

from minik8s_modules.api import cause
from minik8s_modules.api.errors import Cause, Invalid
from minik8s_modules.api.kinds import SERVICE
from minik8s_modules.api.network.surroundings import family_of
from minik8s_modules.api.objects import JsonObject, name, spec

IPV4, IPV6 = "IPv4", "IPv6"
HEADLESS = "None"
SINGLE, PREFER, REQUIRE = "SingleStack", "PreferDualStack", "RequireDualStack"
_FIELD = "spec.ipFamilyPolicy"
_STABLE = ("type", "ipFamilyPolicy", "clusterIPs")


def settle_families(service: JsonObject, old: JsonObject | None, *, configured: Sequence[str]) -> None:
    """Write into the Service, in place, which families it has, of those that the cluster has for it.

    Raises:
        Invalid: it asks for what it cannot have.
    """
    declared, before = service.setdefault("spec", {}), spec(old) if old is not None else {}
    if declared.get("type") == "ExternalName" or _prefers_as_before(declared, before):
        return
    headless = declared.get("clusterIP") == HEADLESS
    by_hand = headless and not declared.get("selector")
    if not declared.get("ipFamilyPolicy"):
        declared["ipFamilyPolicy"] = REQUIRE if by_hand else SINGLE
    causes = [*_contradictions(declared), *_inferred(declared, configured)]
    families: list[str] = declared.get("ipFamilies") or []
    if not by_hand:  # who names the addresses himself may name those of both families
        causes += _lacking(declared, families, configured)
    if causes and not _is_as_before(declared, before):
        raise Invalid(SERVICE, name(service), causes)
    declared["ipFamilies"] = families = families or (before["ipFamilies"] if causes else [*configured[:1]])
    possible = (IPV4, IPV6) if by_hand else configured
    if declared["ipFamilyPolicy"] != SINGLE and len(families) == 1:
        declared["ipFamilies"] = families + [one for one in possible if one not in families]
    if causes := _from_outside(declared):
        raise Invalid(SERVICE, name(service), causes)


def _from_outside(declared: JsonObject) -> list[Cause]:
    """Return why a Service cannot be reached at its external addresses: each needs the Service to be of its family."""
    text = "is of {0}, of which the Service has no address; add {0} (ipFamilyPolicy: RequireDualStack)"
    return [
        cause.invalid(f"spec.externalIPs[{index}]", address, text.format(family_of(address)))
        for index, address in enumerate(declared.get("externalIPs") or [])
        if family_of(address) not in declared["ipFamilies"]
    ]


def _prefers_as_before(after: JsonObject, before: JsonObject) -> bool:
    """Return whether a Service that prefers both is left as it is, though the cluster has changed meanwhile."""
    addressed = after.get("type") != "ExternalName" and after.get("clusterIP") not in {None, "", HEADLESS}
    prefers = after.get("ipFamilyPolicy") == PREFER and bool(after.get("ipFamilies"))
    return addressed and prefers and _is_as_before(after, before)


def _is_as_before(after: JsonObject, before: JsonObject) -> bool:
    """Return whether an update changes nothing of families: what the cluster has lost meanwhile is no reason to refuse.

    Else a Service of a range that is gone could get no other labels, and not lose the finalizer that it waits for.
    """
    same = all((after.get(field) or None) == (before.get(field) or None) for field in _STABLE)
    return bool(before.get("ipFamilies")) and same and after.get("ipFamilies") in (None, [], before["ipFamilies"])


def _contradictions(declared: JsonObject) -> list[Cause]:
    if declared["ipFamilyPolicy"] != SINGLE:
        return []
    given = {"cluster IPs": declared.get("clusterIPs"), "IP families": declared.get("ipFamilies")}
    text = "must be 'RequireDualStack' or 'PreferDualStack' when multiple {} are specified"
    return [cause.invalid(_FIELD, SINGLE, text.format(what)) for what, found in given.items() if len(found or []) > 1]


def _inferred(declared: JsonObject, configured: Sequence[str]) -> list[Cause]:
    """Complete the families by those of the addresses."""
    families, causes = [*(declared.get("ipFamilies") or [])], []
    addresses = declared.get("clusterIPs") or []
    for index, address in enumerate(addresses if addresses[:1] != [HEADLESS] else []):
        family = family_of(address)
        if index < len(families):
            continue
        if family not in configured:
            text = f"{family} is not configured on this cluster"
            causes.append(cause.invalid(f"spec.clusterIPs[{index}]", addresses, text))
        families.append(family)
    declared["ipFamilies"] = families
    return causes


def _lacking(declared: JsonObject, families: Sequence[str], configured: Sequence[str]) -> list[Cause]:
    causes = []
    if declared["ipFamilyPolicy"] == REQUIRE and len(configured) == 1:
        causes.append(cause.invalid(_FIELD, REQUIRE, "this cluster is not configured for dual-stack services"))
    text = "not configured on this cluster"
    wrong = ((index, one) for index, one in enumerate(families) if one not in configured)
    return causes + [cause.invalid(f"spec.ipFamilies[{index}]", one, text) for index, one in wrong]
