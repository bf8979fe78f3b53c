"""APIServices: which are the server's own, which priorities those have, and what a condition says; pure.

Every group and version that this server answers itself has a *local* APIService, without a service. It bears a label:
``onstart`` for built-in groups, ``true`` for those of CustomResourceDefinitions. Sources: kube-aggregator
``pkg/controllers/autoregister``, ``pkg/controlplane/apiserver/aggregator.go``, ``crdregistration_controller.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from minik8s_modules.api.objects import JsonObject, metadata, spec, status

MANAGED = "kube-aggregator.kubernetes.io/automanaged"
ON_START, ALWAYS = "onstart", "true"
REPLACEABLE = frozenset({"metrics.k8s.io"})
"""Built-in groups that an APIService with a service may take over, because programs for that are usual."""

_CUSTOM = (1000, 100)
_OWN = (15000, 15)
_GROUPS: Mapping[str, int] = {
    "": 18000, "apps": 17800, "events.k8s.io": 17750, "authentication.k8s.io": 17700, "authorization.k8s.io": 17600,
    "autoscaling": 17500, "batch": 17400, "certificates.k8s.io": 17300, "networking.k8s.io": 17200, "policy": 17100,
    "rbac.authorization.k8s.io": 17000, "storage.k8s.io": 16800, "apiextensions.k8s.io": 16700,
    "admissionregistration.k8s.io": 16700, "scheduling.k8s.io": 16600, "coordination.k8s.io": 16500,
    "node.k8s.io": 16300, "discovery.k8s.io": 16200, "apiregistration.k8s.io": 18000, "metrics.k8s.io": 100,
}  # fmt: skip
_VERSIONS: Mapping[tuple[str, str], int] = {
    ("", "v1"): 1, ("autoscaling", "v2"): 30, ("metrics.k8s.io", "v1beta1"): 100,
}  # fmt: skip


class Remote(NamedTuple):
    """Who answers a group and version in this server's stead; ``authority`` is base64 of PEM, "" for the system's."""

    group: str
    version: str
    priorities: tuple[int, int]
    namespace: str
    service: str
    port: int
    authority: str
    blind: bool
    available: bool
    uid: str

    @property
    def name(self) -> str:
        """Return the name of the APIService."""
        return f"{self.version}.{self.group}"

    @property
    def path(self) -> str:
        """Return where its resources are listed."""
        return f"/apis/{self.group}/{self.version}"


def local(group: str, version: str, *, custom: bool) -> JsonObject:
    """Return the APIService of a group and version that this server answers."""
    group_priority, version_priority = _CUSTOM if custom else (_GROUPS.get(group, _OWN[0]), _OWN[1])
    return {
        "metadata": {"name": f"{version}.{group}", "labels": {MANAGED: ALWAYS if custom else ON_START}},
        "spec": {
            "group": group,
            "version": version,
            "groupPriorityMinimum": group_priority,
            "versionPriority": _VERSIONS.get((group, version), version_priority),
        },
    }


def managed(api_service: JsonObject) -> str:
    """Return how the server keeps the object: ON_START, ALWAYS, or "" where it does not."""
    found = (metadata(api_service).get("labels") or {}).get(MANAGED)
    return found if found in {ON_START, ALWAYS} else ""


def is_managed(api_service: JsonObject) -> bool:
    """Return whether the server keeps the object as it is."""
    return bool(managed(api_service))


def available(api_service: JsonObject) -> JsonObject:
    """Return the condition ``Available``; its status is Unknown where there is none."""
    for each in status(api_service).get("conditions") or []:
        if each.get("type") == "Available":
            return dict(each)
    return {"type": "Available", "status": "Unknown"}


def remote(api_service: JsonObject) -> Remote | None:
    """Return who answers in the server's stead, None for a local APIService."""
    declared = spec(api_service)
    service = declared.get("service")
    if not service:
        return None
    return Remote(
        declared.get("group") or "",
        declared["version"],
        (declared["groupPriorityMinimum"], declared["versionPriority"]),
        service["namespace"],
        service["name"],
        service.get("port") or 443,
        declared.get("caBundle") or "",
        bool(declared.get("insecureSkipTLSVerify")),
        available(api_service)["status"] == "True",
        metadata(api_service).get("uid") or "",
    )


class Availability(NamedTuple):
    """What is known of an APIService's availability; ``status`` is True or False."""

    status: str
    reason: str
    message: str


LOCAL = Availability("True", "Local", "Local APIServices are always available")
PASSED = Availability("True", "Passed", "all checks passed")


def first_status(api_service: JsonObject, now: str) -> JsonObject:
    """Return the status of a new object: a local one is available at once."""
    return {} if spec(api_service).get("service") else with_condition({}, LOCAL, now)


def with_condition(status: JsonObject, found: Availability, now: str) -> JsonObject:
    """Return ``status`` with the condition ``Available`` as found; its time changes only with its status."""
    conditions: list[JsonObject] = status.get("conditions") or []
    others = [each for each in conditions if each.get("type") != "Available"]
    before = next((each for each in conditions if each.get("type") == "Available"), {})
    since = before.get("lastTransitionTime") if before.get("status") == found.status else None
    condition = {"type": "Available", **found._asdict(), "lastTransitionTime": since or now}
    return {**status, "conditions": [*others, condition]}
