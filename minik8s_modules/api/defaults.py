"""Defaulting: what Kubernetes fills in before validation, kind by kind.

``apply_defaults`` works in place and is idempotent. It first drops unknown fields and nulls as typed decoding does
(``schema.prune``). Source of the values: kubernetes ``pkg/apis/core/v1/defaults.go`` and its siblings of the other
groups, and the ServiceAccount admission plugin for ``serviceAccountName``. ``enableServiceLinks`` is left unset: its
default would promise variables that no container gets. A Service's clusterIP is allocated by the API server, not here.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

from minik8s_modules.api import quantities, rbac, schema
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject, all_containers, metadata, name

DEFAULT_MODE = 420  # 0644, of files of configMap and secret volumes
_VOLUME_SOURCES_WITH_MODE = ("configMap", "secret", "projected", "downwardAPI")


def apply_defaults(kind: Kind, obj: JsonObject) -> None:
    """Fill in, in place, every default of the kind; call it on objects whose ``schema.type_errors`` are none."""
    schema.prune(kind, obj)
    obj["apiVersion"], obj["kind"] = kind.api_version, kind.kind
    metadata(obj)
    fill = _BY_KIND.get(kind.id)
    if fill is not None:
        fill(obj)


def _set(target: JsonObject, **values: object) -> None:
    for field, value in values.items():
        target.setdefault(field, value)


def _set_nonempty(target: JsonObject, **values: object) -> None:
    for field, value in values.items():
        if target.get(field) in {None, ""}:
            target[field] = value


def _pod(pod: JsonObject) -> None:
    spec = pod.setdefault("spec", {})
    _set_nonempty(spec, restartPolicy="Always", dnsPolicy="ClusterFirst", schedulerName="default-scheduler")
    _set(spec, terminationGracePeriodSeconds=30, securityContext={})
    account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = account
    for _, _, container in all_containers(pod):
        _container(container, host_network=bool(spec.get("hostNetwork")))
    for volume in spec.get("volumes") or []:
        _volume(volume)


def _container(container: JsonObject, *, host_network: bool) -> None:
    _set_nonempty(
        container,
        imagePullPolicy=_pull_policy(container.get("image", "")),
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
    )
    for port in container.get("ports") or []:
        _set_nonempty(port, protocol="TCP")
        if host_network:
            _set(port, hostPort=port.get("containerPort"))
    for variable in container.get("env") or []:
        _variable_source(variable.get("valueFrom") or {})
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        _probe(container.get(probe))
    _resources(container.setdefault("resources", {}))


def _pull_policy(image: str) -> str:
    """Return Always for an image whose tag is, or defaults to, latest; a digest pins it."""
    last = image.rpartition("/")[2]
    if "@" in last:
        return "IfNotPresent"
    return "Always" if last.partition(":")[2] in {"", "latest"} else "IfNotPresent"


def _variable_source(source: JsonObject) -> None:
    if "fieldRef" in source:
        _set_nonempty(source["fieldRef"], apiVersion="v1")
    if "resourceFieldRef" in source:
        _set_nonempty(source["resourceFieldRef"], divisor="0")


def _probe(probe: JsonObject | None) -> None:
    if probe is None:
        return
    for field, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        probe[field] = probe.get(field) or value
    if "httpGet" in probe:
        _set_nonempty(probe["httpGet"], path="/", scheme="HTTP")
    if "grpc" in probe:
        _set(probe["grpc"], service="")


def _resources(resources: JsonObject) -> None:
    for side in ("limits", "requests"):
        amounts = resources.get(side) or {}
        for resource, amount in amounts.items():
            if quantities.is_quantity(amount):
                amounts[resource] = quantities.canonical_milli(amount)
    for resource, amount in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(resource, amount)


def _volume(volume: JsonObject) -> None:
    if not any(field != "name" for field in volume):
        volume["emptyDir"] = {}
    for source in _VOLUME_SOURCES_WITH_MODE:
        if source in volume:
            _set(volume[source], defaultMode=DEFAULT_MODE)
    if "hostPath" in volume:
        _set(volume["hostPath"], type="")
    limit = (volume.get("emptyDir") or {}).get("sizeLimit")
    if limit is not None and quantities.is_quantity(limit):
        volume["emptyDir"]["sizeLimit"] = quantities.canonical(limit)


def _service(service: JsonObject) -> None:
    spec = service.setdefault("spec", {})
    _set_nonempty(spec, sessionAffinity="None", type="ClusterIP")
    if spec["sessionAffinity"] == "ClientIP":
        client = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        _set(client, timeoutSeconds=10800)
    for port in spec.get("ports") or []:
        _set_nonempty(port, protocol="TCP")
        if port.get("targetPort") in {None, 0, ""}:
            port["targetPort"] = port.get("port")
    if spec["type"] != "ExternalName":
        _set_nonempty(spec, internalTrafficPolicy="Cluster", ipFamilyPolicy="SingleStack")
        _set(spec, ipFamilies=["IPv4"])
    if spec["type"] in {"NodePort", "LoadBalancer"}:
        _set_nonempty(spec, externalTrafficPolicy="Cluster")
    if spec["type"] == "LoadBalancer":
        _set(spec, allocateLoadBalancerNodePorts=True)


def _endpoints(endpoints: JsonObject) -> None:
    for subset in endpoints.get("subsets") or []:
        for port in subset.get("ports") or []:
            _set_nonempty(port, protocol="TCP")


def _endpoint_slice(endpoint_slice: JsonObject) -> None:
    _set(endpoint_slice, endpoints=[])
    for port in endpoint_slice.get("ports") or []:
        _set(port, name="")
        _set_nonempty(port, protocol="TCP")


def _node(node: JsonObject) -> None:
    node.setdefault("spec", {})
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
    _set_nonempty(secret, type="Opaque")
    plain = secret.pop("stringData", None)
    if plain:
        data = secret.setdefault("data", {})
        data.update({key: base64.b64encode(value.encode()).decode() for key, value in plain.items()})


def _event(event: JsonObject) -> None:
    _set(event, involvedObject={}, source={})


def _access_review(review: JsonObject) -> None:
    review.setdefault("spec", {})


def _binding(binding: JsonObject) -> None:
    _set_nonempty(binding.setdefault("roleRef", {}), apiGroup=rbac.GROUP)
    for subject in binding.get("subjects") or []:
        if subject.get("kind") in {"User", "Group"}:
            _set_nonempty(subject, apiGroup=rbac.GROUP)


_BY_KIND: dict[tuple[str, str], Callable[[JsonObject], None]] = {
    ("", "Pod"): _pod,
    ("", "Service"): _service,
    ("", "Endpoints"): _endpoints,
    ("discovery.k8s.io", "EndpointSlice"): _endpoint_slice,
    ("", "Node"): _node,
    ("", "Namespace"): _namespace,
    ("", "Secret"): _secret,
    ("", "Event"): _event,
    ("authorization.k8s.io", "SelfSubjectAccessReview"): _access_review,
    (rbac.GROUP, "RoleBinding"): _binding,
    (rbac.GROUP, "ClusterRoleBinding"): _binding,
}
