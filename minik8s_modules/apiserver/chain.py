"""Admission: what is done to a write, and asked of it, besides its own kind's rules. ``PLUGINS`` is the order.

A plugin changes the new object (``mutate``, before validation) or refuses it (``validate``, after). Writes the server
makes for itself carry no asker and pass no plugin. What comes before all of them is NamespaceLifecycle (admission.py),
which holds for the server's own writes, too. Order and meaning follow kube-apiserver's
``--enable-admission-plugins`` (pkg/kubeapiserver/options/plugins.go).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from minik8s_modules.api.kinds import (
    CERTIFICATE_SIGNING_REQUEST,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    DNS,
    INGRESS,
    NAMESPACE,
    POD,
    ROLE,
    ROLE_BINDING,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver import (
    certificate_admission,
    escalation,
    node_access,
    pod_admission,
    route_admission,
    runtime_classes,
)
from minik8s_modules.apiserver.backend import Backend
from minik8s_modules.apiserver.incoming import Options
from minik8s_modules.apiserver.target import Target
from minik8s_modules.apiserver.write import Operation, Write


class Plugin(NamedTuple):
    """One member of the chain: which writes it sees, by (group, kind), and what it does."""

    name: str
    phase: Literal["mutate", "validate"]
    operations: tuple[Operation, ...]
    kinds: tuple[tuple[str, str], ...]
    act: Callable[[Write], None]


_ALL: tuple[Operation, ...] = ("create", "update", "delete")
_CREATE: tuple[Operation, ...] = ("create",)
_CREATE_UPDATE: tuple[Operation, ...] = ("create", "update")
_PODS, _WORKLOADS = (
    (POD.id,),
    (
        *(("apps", kind) for kind in ("Deployment", "ReplicaSet", "DaemonSet", "StatefulSet")),
        ("batch", "Job"),
        ("batch", "CronJob"),
    ),
)
_CLAIMS = (("", "PersistentVolumeClaim"),)
_SIGNING = (CERTIFICATE_SIGNING_REQUEST.id,)
_NODES_OWN = tuple(kind.id for kind in node_access.KINDS)

PLUGINS: tuple[Plugin, ...] = (
    Plugin("LimitRanger", "mutate", _CREATE, _PODS, pod_admission.fill_limits),
    Plugin("ServiceAccount", "mutate", _CREATE, _PODS, pod_admission.account),
    Plugin("DefaultTolerationSeconds", "mutate", _CREATE_UPDATE, _PODS, pod_admission.tolerate_for_a_while),
    Plugin("Priority", "mutate", _CREATE_UPDATE, _PODS, pod_admission.priority),
    Plugin("RuntimeClass", "mutate", _CREATE_UPDATE, _PODS, runtime_classes.runtime_class),
    Plugin("CertificateRequester", "mutate", _CREATE, _SIGNING, certificate_admission.requester),
    Plugin("LimitRanger", "validate", _CREATE, _PODS, pod_admission.check_limits),
    Plugin("LimitRanger", "validate", _CREATE_UPDATE, _CLAIMS, pod_admission.check_limits),
    Plugin("NodeRestriction", "validate", _ALL, _NODES_OWN, node_access.restrict),
    Plugin("PodSecurity", "validate", _CREATE_UPDATE, _PODS, pod_admission.pod_security),
    Plugin("PodSecurity", "validate", _CREATE_UPDATE, _WORKLOADS, pod_admission.template_security),
    Plugin("PodSecurity", "validate", _CREATE_UPDATE, (NAMESPACE.id,), pod_admission.namespace_security),
    Plugin("CertificateSubjectRestriction", "validate", _CREATE, _SIGNING, certificate_admission.subject),
    Plugin("CertificateApproval", "validate", ("update",), _SIGNING, certificate_admission.approval),
    Plugin("RoleEscalation", "validate", _CREATE_UPDATE, (ROLE.id, CLUSTER_ROLE.id), escalation.check_role),
    Plugin(
        "BindEscalation",
        "validate",
        _CREATE_UPDATE,
        (ROLE_BINDING.id, CLUSTER_ROLE_BINDING.id),
        escalation.check_binding,
    ),
    Plugin("HostConflict", "validate", _CREATE_UPDATE, (DNS.id, INGRESS.id), route_admission.refuse_taken_places),
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
    """Let the plugins of ``phase`` see a write; whatever they raise is the client's answer."""
    if options.asker is None:
        return
    write = Write(backend, operation, target, obj, old, options, options.asker)
    for plugin in PLUGINS:
        if plugin.phase == phase and operation in plugin.operations and target.kind.id in plugin.kinds:
            plugin.act(write)
