"""Which check knows why an object of a kind is not as it should be; and the verdict on one object.

Every kind that is served stands in one of the tables, or ``why`` says that it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from minik8s_modules.api import kinds, objects
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.network.authorization import AUTHORIZATION_POLICY
from minik8s_modules.api.network.gateway_api import GATEWAY_KINDS
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.causes import (
    access,
    autoscalers,
    custom,
    gateway_causes,
    mesh_causes,
    nodes,
    pods,
    route_causes,
    service_endpoints,
    workloads,
)
from minik8s_modules.cli.causes.faults import Fault, deletion, kind_of
from minik8s_modules.cli.causes.storage import attaching, claims
from minik8s_modules.cli.causes.surroundings import Around

Check = Callable[[JsonObject, Around], Iterator[Fault]]

CHECKS: Mapping[Kind, Check] = {
    kinds.POD: pods.pod_faults,
    kinds.NODE: nodes.node_faults,
    kinds.NAMESPACE: nodes.namespace_faults,
    kinds.SECRET: access.secret_faults,
    kinds.SERVICE_ACCOUNT: access.account_faults,
    kinds.PERSISTENT_VOLUME: claims.volume_faults,
    kinds.PERSISTENT_VOLUME_CLAIM: claims.claim_faults,
    kinds.VOLUME_ATTACHMENT: attaching.attachment_faults,
    kinds.SERVICE: service_endpoints.service_faults,
    kinds.ENDPOINTS: service_endpoints.slice_faults,
    kinds.ENDPOINT_SLICE: service_endpoints.slice_faults,
    kinds.LEASE: nodes.lease_faults,
    kinds.POD_ADDRESS: nodes.address_faults,
    kinds.POD_CIDR: nodes.range_faults,
    kinds.HOST_GRANT: access.grant_faults,
    kinds.ROLE_BINDING: access.binding_faults,
    kinds.CLUSTER_ROLE_BINDING: access.binding_faults,
    kinds.CERTIFICATE_SIGNING_REQUEST: access.request_faults,
    kinds.REPLICATION_CONTROLLER: workloads.workload_faults,
    kinds.REPLICA_SET: workloads.workload_faults,
    kinds.LEGACY_REPLICA_SET: workloads.workload_faults,
    kinds.DEPLOYMENT: workloads.workload_faults,
    kinds.STATEFUL_SET: workloads.workload_faults,
    kinds.DAEMON_SET: workloads.workload_faults,
    kinds.JOB: workloads.workload_faults,
    kinds.LEGACY_JOB: workloads.original_job_faults,
    kinds.CRON_JOB: workloads.cron_faults,
    kinds.HORIZONTAL_POD_AUTOSCALER: autoscalers.autoscaler_faults,
    kinds.LEGACY_AUTOSCALER: autoscalers.original_faults,
    kinds.POD_DISRUPTION_BUDGET: workloads.budget_faults,
    kinds.RESOURCE_QUOTA: workloads.quota_faults,
    kinds.INGRESS: route_causes.route_faults,
    kinds.DNS: route_causes.route_faults,
    kinds.VIRTUAL_SERVICE: mesh_causes.virtual_service_faults,
    kinds.SUBSET: mesh_causes.subset_faults,
    kinds.ROLLING_UPDATE: mesh_causes.rolling_update_faults,
    kinds.INGRESS_CLASS: route_causes.class_faults,
    kinds.MUTATING_WEBHOOK_CONFIGURATION: custom.webhook_faults,
    kinds.VALIDATING_WEBHOOK_CONFIGURATION: custom.webhook_faults,
    kinds.CUSTOM_RESOURCE_DEFINITION: custom.definition_faults,
    kinds.API_SERVICE: custom.api_service_faults,
}

CUSTOM: Mapping[tuple[str, str], Check] = {
    (GATEWAY_KINDS.gateways.group, GATEWAY_KINDS.gateways.kind): gateway_causes.gateway_faults,
    (GATEWAY_KINDS.routes.group, GATEWAY_KINDS.routes.kind): gateway_causes.route_faults,
    (AUTHORIZATION_POLICY.group, AUTHORIZATION_POLICY.kind): mesh_causes.policy_faults,
}
"""Custom kinds, by group, that are known here all the same."""

DATA = frozenset(
    {
        kinds.CONFIG_MAP, kinds.EVENT, kinds.EVENTS_EVENT, kinds.LIMIT_RANGE, kinds.CONTROLLER_REVISION, kinds.ROLE,
        kinds.CLUSTER_ROLE, kinds.POD_TEMPLATE, kinds.NODE_METRICS, kinds.POD_METRICS,
        kinds.VALIDATING_ADMISSION_POLICY, kinds.VALIDATING_ADMISSION_POLICY_BINDING, kinds.CSI_DRIVER, kinds.CSI_NODE,
    }
)  # fmt: skip
"""Kinds that others read: alone nothing can be wrong with them, but that their deletion waits."""

_SEVERAL = frozenset(
    {
        kinds.INGRESS, kinds.DNS, kinds.HOST_GRANT, kinds.ROLE_BINDING, kinds.CLUSTER_ROLE_BINDING,
        kinds.MUTATING_WEBHOOK_CONFIGURATION, kinds.VALIDATING_WEBHOOK_CONFIGURATION,
    }
)  # fmt: skip
"""Kinds whose parts fail one by one; of all others the nearest cause is told."""
_OWN_DELETION = frozenset({pods.pod_faults, claims.volume_faults, attaching.attachment_faults})
"""Checks that tell themselves what keeps an object that is to be deleted."""
FINE = "as it should be"


class Verdict(NamedTuple):
    """What is known of an object: its faults, else ``otherwise``; ``certain``: all that matters was checked."""

    faults: tuple[Fault, ...]
    otherwise: str
    certain: bool

    @property
    def cause(self) -> str:
        """Return the faults in one line, "" for none."""
        return "; ".join(fault.cause for fault in self.faults)


def judge(obj: JsonObject, around: Around) -> Verdict:
    """Return what is known of an object."""
    kind = kind_of(obj)
    told = CUSTOM.get((str(obj.get("apiVersion") or "").partition("/")[0], str(obj.get("kind"))))
    known = CHECKS.get(kind) if kind is not None else told or custom.extended_faults
    faults = tuple(islice(_faults(obj, known, around), None if kind in _SEVERAL or told is not None else 1))
    notes = [] if faults or kind is None else list(_not_acted_on(kind, obj, around))
    # an object of which nothing is acted on is of no use; of others a part is
    useless = [fault for path, fault in notes if "." not in path or objects.status(obj).get("phase") == "Pending"]
    faults = faults or tuple(useless[:1])
    if around.unread:
        text = f"nothing was found, but not all could be read: {', '.join(sorted(around.unread))}"
        return Verdict(faults, text, certain=False)
    if told is not None:
        return Verdict(faults, FINE, certain=True)
    if kind is None or (known is None and kind not in DATA):
        return Verdict(faults, "" if faults else custom.not_checked(obj, around), certain=False)
    return Verdict(faults, ", but ".join([FINE, *(fault.cause for _, fault in notes)]), certain=True)


def _faults(obj: JsonObject, known: Check | None, around: Around) -> Iterable[Fault]:
    if known not in _OWN_DELETION:
        yield from deletion(obj)
    if known is not None:
        yield from known(obj, around)


def _not_acted_on(kind: Kind, obj: JsonObject, around: Around) -> Iterator[tuple[str, Fault]]:
    """Yield the fields of an object that are stored and not acted on: the first of those with one reason, in words."""
    if kind is kinds.INGRESS:
        yield from route_causes.unheeded(obj, around)
    from minik8s_modules.api.schema import coverage  # noqa: PLC0415 - 15 ms, once nothing nearer is wrong

    found: dict[str, list[str]] = {}
    for path, rule in coverage.findings(kind, obj):
        if rule.treatment == "warned":
            found.setdefault(rule.reason, []).append(path)
    for reason, paths in found.items():
        text = f"{', '.join(paths)} {'are' if paths[1:] else 'is'} not acted on: {reason}"
        yield paths[0], Fault(text, _explain(kind, paths[0]))


def _explain(kind: Kind, path: str) -> str:
    return f"kubectl explain {kind.plural}.{path.partition('[')[0]}"


def scope_of(found: Iterable[JsonObject]) -> str | None:
    """Return the scope to read around objects: None for one, their namespace, or "" for several."""
    several = list(found)
    namespaces = {objects.namespace(one) for one in several}
    if len(several) <= 1:
        return None
    return namespaces.pop() if len(namespaces) == 1 else ""
