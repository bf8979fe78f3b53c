"""What ``pluginConfig`` may say to the plugins in tree (kube-scheduler config v1, apis/config/validation)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from minik8s_modules.api.nodes.node_affinity import REQUIRED
from minik8s_modules.scheduler.framework.terms import PREFERRED
from minik8s_modules.scheduler.profiles.located import Located

_MOST = 2**31 - 1
Check = Callable[[Located], Any]
_KINDS = {"apiVersion": "kubescheduler.config.k8s.io/v1"}


def arguments_of(plugin: str, args: Located) -> Mapping[str, Any]:
    """Return the arguments of a plugin in tree. Raises ConfigurationError."""
    checks = _CHECKS.get(plugin, {})
    found: dict[str, Any] = {}
    for name, value in args.mapping(("apiVersion", "kind", *checks)):
        if name == "apiVersion":
            value.text(_KINDS["apiVersion"])
        elif name == "kind":
            value.text(f"{plugin}Args")
        else:
            checks[name](value)
            found[name] = value.value
    if plugin in _TOGETHER:
        _TOGETHER[plugin](args)
    return found


def _texts(value: Located) -> None:
    for one in value.items():
        one.text()


def _groups(value: Located) -> None:
    for one in value.items():
        if "/" in one.text():
            raise one.wrong("the name of a group has no slash")


def _resources(value: Located, most: int = 100) -> None:
    for one in value.items():
        fields = dict(one.mapping(("name", "weight")))
        one.at("name").text()
        if "weight" in fields:
            fields["weight"].number(1, most)


def _strategy(value: Located) -> None:
    fields = dict(value.mapping(("type", "resources", "requestedToCapacityRatio")))
    kind = value.at("type").text("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
    if "resources" in fields:
        _resources(fields["resources"])
    if kind == "RequestedToCapacityRatio":
        ratio = value.at("requestedToCapacityRatio")
        list(ratio.mapping(("shape",)))
        _shape(ratio.at("shape"))


def _shape(value: Located) -> None:
    points = value.items()
    if not points:
        raise value.wrong("it must have at least one point")
    before = -1
    for one in points:
        list(one.mapping(("utilization", "score")))
        one.at("score").number(0, 10)
        at = one.at("utilization").number(0, 100)
        if at <= before:
            raise one.at("utilization").wrong(f"points must be in order; {at} comes after {before}")
        before = at


def _constraints(value: Located) -> None:
    for one in value.items():
        fields = ("maxSkew", "topologyKey", "whenUnsatisfiable")
        list(one.mapping((*fields, "minDomains", "nodeAffinityPolicy", "nodeTaintsPolicy")))
        one.at("maxSkew").number(1, _MOST)
        one.at("topologyKey").text()
        one.at("whenUnsatisfiable").text("DoNotSchedule", "ScheduleAnyway")


def _affinity(value: Located) -> None:
    for name, one in value.mapping((REQUIRED, PREFERRED)):
        if name == REQUIRED:
            list(one.mapping(("nodeSelectorTerms",)))
            for term in one.at("nodeSelectorTerms").items():
                _term(term)
        else:
            for preferred in one.items():
                list(preferred.mapping(("weight", "preference")))
                preferred.at("weight").number(1, 100)
                _term(preferred.at("preference"))


def _term(value: Located) -> None:
    for _, listed in value.mapping(("matchExpressions", "matchFields")):
        for one in listed.items():
            list(one.mapping(("key", "operator", "values")))
            one.at("key").text()
            one.at("operator").text("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
            _texts(one.at("values"))


def _no_candidates(args: Located) -> None:
    value = args.value or {}
    if value.get("minCandidateNodesPercentage") == 0 and value.get("minCandidateNodesAbsolute") == 0:
        raise args.wrong("minCandidateNodesPercentage and minCandidateNodesAbsolute cannot both be 0")


def _listed_defaults(args: Located) -> None:
    value = args.value or {}
    if (value.get("defaultingType") or "System") == "System" and value.get("defaultConstraints"):
        raise args.at("defaultConstraints").wrong("they count only with defaultingType List")


_CHECKS: Mapping[str, Mapping[str, Check]] = {
    "DefaultPreemption": {
        "minCandidateNodesPercentage": lambda value: value.number(0, 100),
        "minCandidateNodesAbsolute": lambda value: value.number(0, _MOST),
    },
    "InterPodAffinity": {
        "hardPodAffinityWeight": lambda value: value.number(0, 100),
        "ignorePreferredTermsOfExistingPods": Located.flag,
    },
    "NodeAffinity": {"addedAffinity": _affinity},
    "NodeResourcesFit": {"ignoredResources": _texts, "ignoredResourceGroups": _groups, "scoringStrategy": _strategy},
    "NodeResourcesBalancedAllocation": {"resources": lambda value: _resources(value, 1)},
    "PodTopologySpread": {
        "defaultConstraints": _constraints,
        "defaultingType": lambda value: value.text("System", "List"),
    },
    "VolumeBinding": {"bindTimeoutSeconds": lambda value: value.number(0, _MOST)},
}
_TOGETHER: Mapping[str, Callable[[Located], None]] = {
    "DefaultPreemption": _no_candidates,
    "PodTopologySpread": _listed_defaults,
}
