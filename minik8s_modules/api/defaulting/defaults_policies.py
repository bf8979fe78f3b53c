"""Defaults of autoscalers, limits, volumes, networking, classes and webhooks.

Source: kubernetes ``pkg/apis/{autoscaling,core,networking,storage,scheduling,admissionregistration}/.../defaults.go``.
"""

from __future__ import annotations

from collections.abc import Callable

from minik8s_modules.api.defaulting.defaults_pod import canonical_amounts, set_missing, set_nonempty
from minik8s_modules.api.kinds import (
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_ADMISSION_POLICY,
    VALIDATING_ADMISSION_POLICY_BINDING,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from minik8s_modules.api.objects import JsonObject

DEFAULT_UTILIZATION = 80  # percent of the CPU requested
_SCALE_UP: JsonObject = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
_SCALE_DOWN: JsonObject = {
    "selectPolicy": "Max",
    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
}


def cpu_metric(utilization: int) -> JsonObject:
    """Return the autoscaling/v2 metric that holds the CPU at a percentage of what is requested."""
    target = {"type": "Utilization", "averageUtilization": utilization}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _autoscaler(autoscaler: JsonObject) -> None:
    spec: JsonObject = autoscaler.setdefault("spec", {})
    set_missing(spec, minReplicas=1)
    if autoscaler.get("apiVersion") == "autoscaling/v1":
        return
    if not spec.get("metrics"):
        spec["metrics"] = [cpu_metric(DEFAULT_UTILIZATION)]
    behavior = spec.get("behavior")
    for side, rules in (("scaleUp", _SCALE_UP), ("scaleDown", _SCALE_DOWN)):
        if behavior is not None:
            set_missing(behavior.setdefault(side, {}), **rules)


def _limit_range(limit_range: JsonObject) -> None:
    for item in limit_range.setdefault("spec", {}).setdefault("limits", []):
        for field in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
            canonical_amounts(item.get(field))
        if item.get("type") == "Container":
            _container_limits(item)


def _container_limits(item: JsonObject) -> None:
    """A missing default is the maximum; a missing default request the default, else the minimum."""
    for target, source in (("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")):
        for name, amount in (item.get(source) or {}).items():
            item.setdefault(target, {}).setdefault(name, amount)


def _quota(quota: JsonObject) -> None:
    canonical_amounts(quota.setdefault("spec", {}).get("hard"))


def _volume(volume: JsonObject) -> None:
    spec: JsonObject = volume.setdefault("spec", {})
    set_nonempty(spec, persistentVolumeReclaimPolicy="Retain", volumeMode="Filesystem")
    set_nonempty(volume.setdefault("status", {}), phase="Pending")
    canonical_amounts(spec.get("capacity"))
    if "hostPath" in spec:
        set_missing(spec["hostPath"], type="")


def _network_policy(policy: JsonObject) -> None:
    spec: JsonObject = policy.setdefault("spec", {})
    set_missing(spec, podSelector={})
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]
    for rule in (*(spec.get("ingress") or []), *(spec.get("egress") or [])):
        for port in rule.get("ports") or []:
            set_nonempty(port, protocol="TCP")


def _storage_class(storage_class: JsonObject) -> None:
    set_nonempty(storage_class, reclaimPolicy="Delete", volumeBindingMode="Immediate")


def _csi_driver(driver: JsonObject) -> None:
    spec: JsonObject = driver.setdefault("spec", {})
    set_missing(spec, attachRequired=True, podInfoOnMount=False, storageCapacity=False)
    set_missing(spec, requiresRepublish=False, seLinuxMount=False)
    set_nonempty(spec, fsGroupPolicy="ReadWriteOnceWithFSType")
    spec["volumeLifecycleModes"] = spec.get("volumeLifecycleModes") or ["Persistent"]


def _priority_class(priority_class: JsonObject) -> None:
    set_nonempty(priority_class, preemptionPolicy="PreemptLowerPriority")
    set_missing(priority_class, value=0)


def _webhooks(configuration: JsonObject) -> None:
    for hook in configuration.get("webhooks") or []:
        set_missing(hook, failurePolicy="Fail", matchPolicy="Equivalent", timeoutSeconds=10)
        set_missing(hook, namespaceSelector={}, objectSelector={})
        if configuration["kind"] == MUTATING_WEBHOOK_CONFIGURATION.kind:
            set_missing(hook, reinvocationPolicy="Never")
        for rule in hook.get("rules") or []:
            set_missing(rule, scope="*")
        service = (hook.get("clientConfig") or {}).get("service")
        if service is not None:
            set_missing(service, port=443)


def _admission_policy(policy: JsonObject) -> None:
    spec: JsonObject = policy.setdefault("spec", {})
    set_missing(spec, failurePolicy="Fail")
    _match_resources(spec.get("matchConstraints"))


def _policy_binding(binding: JsonObject) -> None:
    _match_resources(binding.setdefault("spec", {}).get("matchResources"))


def _match_resources(constraints: JsonObject | None) -> None:
    if constraints is None:
        return
    set_missing(constraints, matchPolicy="Equivalent", namespaceSelector={}, objectSelector={})
    for field in ("resourceRules", "excludeResourceRules"):
        for rule in constraints.get(field) or []:
            set_missing(rule, scope="*")


def _api_service(api_service: JsonObject) -> None:
    service = api_service.setdefault("spec", {}).get("service")
    if service is not None:
        set_missing(service, port=443)


def _only_spec(obj: JsonObject) -> None:
    obj.setdefault("spec", {})


def _legacy_autoscaler(autoscaler: JsonObject) -> None:
    set_missing(autoscaler.setdefault("spec", {}), minReplicas=1, scaleWindowSeconds=15)


BY_KIND: dict[tuple[str, str], Callable[[JsonObject], None]] = {
    ("autoscaling", "HorizontalPodAutoscaler"): _autoscaler,
    ("", "HorizontalPodAutoscaler"): _legacy_autoscaler,
    ("", "LimitRange"): _limit_range,
    ("", "ResourceQuota"): _quota,
    ("", "PersistentVolume"): _volume,
    ("networking.k8s.io", "NetworkPolicy"): _network_policy,
    ("networking.k8s.io", "Ingress"): _only_spec,
    ("networking.k8s.io", "IngressClass"): _only_spec,
    ("storage.k8s.io", "StorageClass"): _storage_class,
    ("storage.k8s.io", "CSIDriver"): _csi_driver,
    ("scheduling.k8s.io", "PriorityClass"): _priority_class,
    MUTATING_WEBHOOK_CONFIGURATION.id: _webhooks,
    VALIDATING_WEBHOOK_CONFIGURATION.id: _webhooks,
    VALIDATING_ADMISSION_POLICY.id: _admission_policy,
    VALIDATING_ADMISSION_POLICY_BINDING.id: _policy_binding,
    ("apiregistration.k8s.io", "APIService"): _api_service,
    ("policy", "PodDisruptionBudget"): _only_spec,
    ("certificates.k8s.io", "CertificateSigningRequest"): _only_spec,
}
