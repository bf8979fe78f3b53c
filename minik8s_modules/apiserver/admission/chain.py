"""Admission: what is done to a write, and asked of it, besides its own kind's rules. ``PLUGINS`` is the order.

A plugin changes the new object (``mutate``, before validation) or refuses it (``validate``, after). Writes the server
makes for itself carry no requester and pass no plugin. Webhooks come after the plugins of their phase. What comes
before all of them is NamespaceLifecycle (admission.py), which holds for the server's own writes, too. Order and meaning
follow kube-apiserver's ``--enable-admission-plugins`` (pkg/kubeapiserver/options/plugins.go).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Literal, NamedTuple

from minik8s_modules.api.defaulting.conversion import stored_kind
from minik8s_modules.api.kinds import (
    CERTIFICATE_SIGNING_REQUEST,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    DNS,
    INGRESS,
    NAMESPACE,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    ROLE,
    ROLE_BINDING,
    ROLLING_UPDATE,
    SERVICE,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.access import carriers, escalation, node_access
from minik8s_modules.apiserver.admission import (
    certificate_admission,
    pod_admission,
    route_admission,
    runtime_classes,
    service_admission,
    sidecar_injection,
    steering_admission,
    storage_admission,
    webhook_admission,
)
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.http.write import Operation, Write


class Plugin(NamedTuple):
    """One member of the chain.

    Attributes:
        name: as kube-apiserver has it.
        phase: whether it changes the object, or refuses it.
        operations: which writes it sees.
        kinds: (group, kind) of the objects it sees, as they are stored; None for all.
        subresources: through which of the object's subresources it sees writes; "" is the object itself, None means
            all. It has no default: what is left out is left out on purpose (test_chain.py).
        act: what it does.
    """

    name: str
    phase: Literal["mutate", "validate"]
    operations: tuple[Operation, ...]
    kinds: tuple[tuple[str, str], ...] | None
    subresources: tuple[str, ...] | None
    act: Callable[[Write], None]

    def sees(self, phase: str, operation: Operation, kind: tuple[str, str], subresource: str) -> bool:
        """Return whether a write is the plugin's business; ``kind`` is the (group, kind) of what is stored."""
        if phase != self.phase or operation not in self.operations:
            return False
        return (self.kinds is None or kind in self.kinds) and (
            self.subresources is None or subresource in self.subresources
        )


_ALL: tuple[Operation, ...] = ("create", "update", "delete")
_CREATE: tuple[Operation, ...] = ("create",)
_UPDATE: tuple[Operation, ...] = ("update",)
_CREATE_UPDATE: tuple[Operation, ...] = ("create", "update")
_PODS, _WORKLOADS = (
    (POD.id,),
    (
        *(("apps", kind) for kind in ("Deployment", "ReplicaSet", "DaemonSet", "StatefulSet")),
        ("", "ReplicationController"),
        ("", "PodTemplate"),
        ("batch", "Job"),
        ("batch", "CronJob"),
        ROLLING_UPDATE.id,
    ),
)
_CLAIMS, _STORAGE = (PERSISTENT_VOLUME_CLAIM.id,), (PERSISTENT_VOLUME_CLAIM.id, PERSISTENT_VOLUME.id)
_SIGNING = (CERTIFICATE_SIGNING_REQUEST.id,)
_NODES_OWN = tuple(kind.id for kind in node_access.KINDS)
_ROLES, _BINDINGS = (ROLE.id, CLUSTER_ROLE.id), (ROLE_BINDING.id, CLUSTER_ROLE_BINDING.id)
_HOSTS = (DNS.id, INGRESS.id)
_ITSELF, _DECISIONS = ("",), ("approval", "status")
_CONTAINERS = ("", "ephemeralcontainers")
"""Through which a pod comes to its containers."""
_RESIZE = ("resize",)

PLUGINS: tuple[Plugin, ...] = (
    Plugin("SidecarInjection", "mutate", _CREATE, _PODS, _ITSELF, sidecar_injection.inject_sidecar),
    Plugin("LimitRanger", "mutate", _CREATE, _PODS, _ITSELF, pod_admission.fill_limits),
    Plugin("ServiceAccount", "mutate", _CREATE, _PODS, _ITSELF, pod_admission.account),
    Plugin("DefaultTolerationSeconds", "mutate", _CREATE_UPDATE, _PODS, _ITSELF, pod_admission.tolerate_for_a_while),
    Plugin("Priority", "mutate", _CREATE_UPDATE, _PODS, _ITSELF, pod_admission.priority),
    Plugin("DefaultStorageClass", "mutate", _CREATE, _CLAIMS, _ITSELF, storage_admission.default_class),
    Plugin("StorageObjectInUseProtection", "mutate", _CREATE, _STORAGE, _ITSELF, storage_admission.protect),
    Plugin("RuntimeClass", "mutate", _CREATE_UPDATE, _PODS, ("", "binding"), runtime_classes.runtime_class),
    Plugin("VirtualNodes", "mutate", _CREATE_UPDATE, (NODE.id,), None, carriers.note_carrier),
    Plugin("CertificateRequester", "mutate", _CREATE, _SIGNING, _ITSELF, certificate_admission.requester),
    Plugin("Steering", "validate", _CREATE_UPDATE, None, None, steering_admission.check_setters),
    Plugin("HostPorts", "validate", _CREATE, _PODS, _ITSELF, pod_admission.keep_name_server),
    Plugin("HostPorts", "validate", _CREATE, _PODS, _ITSELF, pod_admission.tell_health_checks),
    Plugin("LimitRanger", "validate", _CREATE, _PODS, _ITSELF, pod_admission.check_limits),
    Plugin("LimitRanger", "validate", _UPDATE, _PODS, _RESIZE, pod_admission.check_limits),
    Plugin("LimitRanger", "validate", _CREATE_UPDATE, _CLAIMS, _ITSELF, pod_admission.check_limits),
    Plugin("PersistentVolumeClaimResize", "validate", _UPDATE, _CLAIMS, _ITSELF, storage_admission.check_growth),
    Plugin("NodeRestriction", "validate", _ALL, _NODES_OWN, None, node_access.restrict),
    Plugin("VirtualNodes", "validate", _UPDATE, (CONFIG_MAP.id,), _ITSELF, carriers.check_results),
    Plugin("PodSecurity", "validate", _CREATE_UPDATE, _PODS, _CONTAINERS, pod_admission.pod_security),
    Plugin("PodSecurity", "validate", _CREATE_UPDATE, _WORKLOADS, _ITSELF, pod_admission.template_security),
    Plugin(
        "PodSecurity",
        "validate",
        _CREATE_UPDATE,
        (NAMESPACE.id,),
        ("", "finalize"),
        pod_admission.namespace_security,
    ),
    Plugin("CertificateSubjectRestriction", "validate", _CREATE, _SIGNING, _ITSELF, certificate_admission.subject),
    Plugin("CertificateApproval", "validate", _UPDATE, _SIGNING, _DECISIONS, certificate_admission.approval),
    Plugin("RoleEscalation", "validate", _CREATE_UPDATE, _ROLES, _ITSELF, escalation.check_role),
    Plugin("BindEscalation", "validate", _CREATE_UPDATE, _BINDINGS, _ITSELF, escalation.check_binding),
    Plugin("HostConflict", "validate", _CREATE_UPDATE, _HOSTS, _ITSELF, route_admission.refuse_taken_places),
    Plugin("IngressAnnotations", "validate", _CREATE_UPDATE, (INGRESS.id,), _ITSELF, route_admission.tell_unheeded),
    Plugin(
        "DenyServiceExternalIPs",
        "validate",
        _CREATE_UPDATE,
        (SERVICE.id,),
        _ITSELF,
        service_admission.deny_external_ips,
    ),
    Plugin("ServiceExists", "validate", _CREATE_UPDATE, (DNS.id,), _ITSELF, route_admission.refuse_missing_services),
)


def run(
    phase: Literal["mutate", "validate"],
    backend: Backend,
    operation: Operation,
    target: Target,
    obj: JsonObject | None,
    old: JsonObject | None,
    options: Options,
) -> None:
    """Let the plugins of ``phase``, then its webhooks, see a write; whatever they raise is the client's answer."""
    if options.requester is None:
        return
    write = Write(backend, operation, target, obj, old, options, options.requester)
    acts = _acts(phase, operation, stored_kind(target.kind).id, target.subresource)

    def act() -> None:
        for one in acts:
            one(write)

    act()
    if phase == "mutate":
        webhook_admission.mutate(write, act)
    else:
        webhook_admission.validate(write)


@lru_cache(maxsize=1024)
def _acts(
    phase: str, operation: Operation, kind: tuple[str, str], subresource: str
) -> tuple[Callable[[Write], None], ...]:
    return tuple(plugin.act for plugin in PLUGINS if plugin.sees(phase, operation, kind, subresource))
