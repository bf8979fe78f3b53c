"""Defaults of pods, and of templates that pods are made from. Source: kubernetes ``pkg/apis/core/v1/defaults.go``."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from minik8s_modules.api import quantities
from minik8s_modules.api.objects import JsonObject, all_containers, every_container
from minik8s_modules.api.pods.resources import pod_level, with_default_requests

DEFAULT_MODE = 420  # 0644, of files of configMap and secret volumes
TOKEN_S = 3600  # of projected service-account tokens
_VOLUME_SOURCES_WITH_MODE = ("configMap", "secret", "projected", "downwardAPI")


def set_missing(target: JsonObject, **values: object) -> None:
    """Set, in place, each field that is absent."""
    for field, value in values.items():
        target.setdefault(field, value)


def set_nonempty(target: JsonObject, **values: object) -> None:
    """Set, in place, each field that is absent, null or empty."""
    for field, value in values.items():
        if target.get(field) in {None, ""}:
            target[field] = value


def pod(pod: JsonObject) -> None:
    """Fill in, in place, the defaults of a pod."""
    pod_template(pod)
    spec = pod["spec"]
    account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = account
    _own_resources(pod)


def pod_template(pod: JsonObject) -> None:
    """Fill in, in place, the defaults of a pod, or of a template that pods are made from."""
    spec = pod.setdefault("spec", {})
    set_nonempty(spec, restartPolicy="Always", dnsPolicy="ClusterFirst", schedulerName="default-scheduler")
    set_missing(spec, terminationGracePeriodSeconds=30, securityContext={})
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    for side in ("limits", "requests"):
        canonical_amounts((spec.get("resources") or {}).get(side))
    for _, _, container in every_container(pod):
        _container(container, host_network=bool(spec.get("hostNetwork")))
    for volume in spec.get("volumes") or []:
        _volume_source(volume)


def _container(container: JsonObject, *, host_network: bool) -> None:
    set_nonempty(
        container,
        imagePullPolicy=pull_policy(container.get("image", "")),
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
    )
    for port in container.get("ports") or []:
        set_nonempty(port, protocol="TCP")
        if host_network:
            set_missing(port, hostPort=port.get("containerPort"))
    for variable in container.get("env") or []:
        _variable_source(variable.get("valueFrom") or {})
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        _probe(container.get(probe))
    _resources(container.setdefault("resources", {}))


def pull_policy(image: str) -> str:
    """Return Always for an image whose tag is, or defaults to, latest; a digest pins it."""
    last = image.rpartition("/")[2]
    if "@" in last:
        return "IfNotPresent"
    return "Always" if last.partition(":")[2] in {"", "latest"} else "IfNotPresent"


def _variable_source(source: JsonObject) -> None:
    if "fieldRef" in source:
        set_nonempty(source["fieldRef"], apiVersion="v1")
    if "resourceFieldRef" in source:
        set_nonempty(source["resourceFieldRef"], divisor="0")


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
        set_nonempty(probe["httpGet"], path="/", scheme="HTTP")
    if "grpc" in probe:
        set_missing(probe["grpc"], service="")


def canonical_amounts(amounts: JsonObject | None) -> None:
    """Write, in place, quantities as Kubernetes writes them, so that equal ones are equal texts."""
    for resource, amount in (amounts or {}).items():
        if amounts is not None and quantities.is_quantity(amount):
            amounts[resource] = quantities.canonical_milli(amount)


def _resources(resources: JsonObject) -> None:
    for side in ("limits", "requests"):
        canonical_amounts(resources.get(side))
    for resource, amount in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(resource, amount)


def _own_resources(pod: JsonObject) -> None:
    """Fill in the pod's own requests; of a template they stay open, as they follow from its containers."""
    declared = pod["spec"].get("resources") or {}
    if all(quantities.is_quantity(amount) for amount in _compute_amounts(pod)) and declared.get("limits"):
        pod["spec"]["resources"] = with_default_requests(pod)


def implied_requests(pod: JsonObject, given: Collection[str]) -> JsonObject:
    """Return the pod's own requests that it got by default: all but those that were ``given``."""
    found = pod_level(pod).get("requests") or {}
    return {resource: amount for resource, amount in found.items() if resource not in given}


def raise_implied(pod: JsonObject, implied: JsonObject) -> bool:
    """Raise, in place, the pod's own requests that were ``implied`` to what its containers ask for by now.

    Returns whether that changed any.

    Admission gives containers requests, and pods more containers. Upstream refuses the pod then, for its containers
    ask for more than it. A request that is no longer what was implied is somebody's own, and stays.
    """
    requests = pod_level(pod).get("requests") or {}
    same = {resource for resource, amount in implied.items() if requests.get(resource) == amount}
    if not same or not all(quantities.is_quantity(amount) for amount in _compute_amounts(pod)):
        return False
    own = {**pod_level(pod), "requests": {name: requests[name] for name in requests if name not in same}}
    asked = with_default_requests({**pod, "spec": {**pod["spec"], "resources": own}})["requests"]
    raised = {
        resource: asked[resource]
        for resource in same.intersection(asked)
        if quantities.parse(asked[resource]) > quantities.parse(requests[resource])
    }
    requests.update(raised)
    return bool(raised)


def _compute_amounts(pod: JsonObject) -> Iterator[Any]:
    """Yield what must be quantities to be added up; what is none is refused by validation afterwards."""
    for each in (pod["spec"], *(container for _, _, container in all_containers(pod))):
        for side in ("limits", "requests"):
            yield from ((each.get("resources") or {}).get(side) or {}).values()


def claim_spec(spec: JsonObject) -> None:
    """Fill in, in place, the defaults of the spec of a PersistentVolumeClaim."""
    set_nonempty(spec, volumeMode="Filesystem")
    _data_source(spec)
    for side in ("requests", "limits"):
        canonical_amounts((spec.get("resources") or {}).get(side))


def _data_source(spec: JsonObject) -> None:
    """Say both fields where one says what a volume begins with (``NormalizeDataSources``)."""
    source, ref = spec.get("dataSource"), spec.get("dataSourceRef")
    if source and not ref:
        spec["dataSourceRef"] = dict(source)
    elif ref and not source and not ref.get("namespace"):
        spec["dataSource"] = dict(ref)


def _volume_source(volume: JsonObject) -> None:
    if not any(field != "name" for field in volume):
        volume["emptyDir"] = {}
    for source in _VOLUME_SOURCES_WITH_MODE:
        if source in volume:
            set_missing(volume[source], defaultMode=DEFAULT_MODE)
    for source in (volume, *((volume.get("projected") or {}).get("sources") or [])):
        for item in (source.get("downwardAPI") or {}).get("items") or []:
            _variable_source(item)
        if source.get("serviceAccountToken") is not None:
            set_missing(source["serviceAccountToken"], expirationSeconds=TOKEN_S)
    if "hostPath" in volume:
        set_missing(volume["hostPath"], type="")
    template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if template is not None:
        claim_spec(template.setdefault("spec", {}))
    limit = (volume.get("emptyDir") or {}).get("sizeLimit")
    if limit is not None and quantities.is_quantity(limit):
        volume["emptyDir"]["sizeLimit"] = quantities.canonical(limit)
