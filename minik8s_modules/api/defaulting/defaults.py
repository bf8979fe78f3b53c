"""Defaulting: what Kubernetes fills in before validation, kind by kind.

``apply_defaults`` works in place and is idempotent. It first drops unknown fields and nulls as typed decoding does
(``schema.prune``). Source of the values: kubernetes ``pkg/apis/core/v1/defaults.go`` and its siblings of the other
groups, and the ServiceAccount admission plugin for ``serviceAccountName``. ``enableServiceLinks`` is left unset: its
default would promise variables that no container gets. A Service's clusterIP is allocated by the API server, not here.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

from minik8s_modules.api import quantities
from minik8s_modules.api.access import rbac
from minik8s_modules.api.custom import definitions
from minik8s_modules.api.defaulting import defaults_policies, defaults_workloads
from minik8s_modules.api.defaulting.defaults_pod import pod, set_missing, set_nonempty
from minik8s_modules.api.kind import Declaration
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject, metadata, name
from minik8s_modules.api.schema import structural


def apply_defaults(kind: Kind, obj: JsonObject, fresh: JsonObject | None = None) -> None:
    """Fill in, in place, every default of the kind; call it on objects whose ``structural.type_errors`` are none.

    ``fresh``: its fields that are not as they are stored; None where that is not known.
    """
    if kind.custom is not None:
        fill_custom(kind, kind.custom, obj)
        return
    structural.prune(kind, obj, fresh)
    obj["apiVersion"], obj["kind"] = kind.api_version, kind.kind
    metadata(obj)
    fill = _BY_KIND.get(kind.id)
    if fill is not None:
        fill(obj)


def fill_custom(kind: Kind, declared: Declaration, obj: JsonObject) -> None:
    """Prune and default, in place, an object of a custom kind; its metadata is of the type all objects share."""
    obj["apiVersion"], obj["kind"] = kind.api_version, kind.kind
    structural.prune_metadata(metadata(obj))
    declared.fill(obj)


def _service(service: JsonObject) -> None:
    spec = service.setdefault("spec", {})
    set_nonempty(spec, sessionAffinity="None", type="ClusterIP")
    if spec["sessionAffinity"] == "ClientIP":
        client = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        set_missing(client, timeoutSeconds=10800)
    elif spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)  # as SetDefaults_Service: nothing would act on it
    for port in spec.get("ports") or []:
        set_nonempty(port, protocol="TCP")
        if port.get("targetPort") in {None, 0, ""} and "port" in port:
            port["targetPort"] = port["port"]
    if spec["type"] != "ExternalName":
        set_nonempty(spec, internalTrafficPolicy="Cluster")
    if spec["type"] in {"NodePort", "LoadBalancer"}:
        set_nonempty(spec, externalTrafficPolicy="Cluster")
    if spec["type"] == "LoadBalancer":
        set_missing(spec, allocateLoadBalancerNodePorts=True)


def _endpoints(endpoints: JsonObject) -> None:
    for subset in endpoints.get("subsets") or []:
        for port in subset.get("ports") or []:
            set_nonempty(port, protocol="TCP")


def _endpoint_slice(endpoint_slice: JsonObject) -> None:
    set_missing(endpoint_slice, endpoints=[])
    for port in endpoint_slice.get("ports") or []:
        set_missing(port, name="")
        set_nonempty(port, protocol="TCP")


def _node(node: JsonObject) -> None:
    declared = node.setdefault("spec", {})
    if declared.get("podCIDR") and not declared.get("podCIDRs"):
        declared["podCIDRs"] = [declared["podCIDR"]]
    elif declared.get("podCIDRs") and not declared.get("podCIDR"):
        declared["podCIDR"] = declared["podCIDRs"][0]
    status = node.get("status") or {}
    for side in ("capacity", "allocatable"):
        amounts = status.get(side) or {}
        amounts.update(
            {
                key: quantities.canonical_milli(amount)
                for key, amount in amounts.items()
                if quantities.is_quantity(amount)
            }
        )
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])


def _namespace(namespace: JsonObject) -> None:
    if name(namespace):
        metadata(namespace).setdefault("labels", {})["kubernetes.io/metadata.name"] = name(namespace)


def _secret(secret: JsonObject) -> None:
    set_nonempty(secret, type="Opaque")
    plain = secret.pop("stringData", None)
    if plain:
        data = secret.setdefault("data", {})
        data.update({key: base64.b64encode(value.encode()).decode() for key, value in plain.items()})


def _event(event: JsonObject) -> None:
    set_missing(event, involvedObject={}, source={})


def _access_review(review: JsonObject) -> None:
    review.setdefault("spec", {})


def _binding(binding: JsonObject) -> None:
    set_nonempty(binding.setdefault("roleRef", {}), apiGroup=rbac.GROUP)
    for subject in binding.get("subjects") or []:
        if subject.get("kind") in {"User", "Group"}:
            set_nonempty(subject, apiGroup=rbac.GROUP)


_BY_KIND: dict[tuple[str, str], Callable[[JsonObject], None]] = {
    **defaults_workloads.BY_KIND,
    **defaults_policies.BY_KIND,
    ("", "Pod"): pod,
    ("", "Service"): _service,
    ("", "Endpoints"): _endpoints,
    ("discovery.k8s.io", "EndpointSlice"): _endpoint_slice,
    ("", "Node"): _node,
    ("", "Namespace"): _namespace,
    ("", "Secret"): _secret,
    ("", "Event"): _event,
    ("authorization.k8s.io", "SelfSubjectAccessReview"): _access_review,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): definitions.fill,
    (rbac.GROUP, "RoleBinding"): _binding,
    (rbac.GROUP, "ClusterRoleBinding"): _binding,
}
