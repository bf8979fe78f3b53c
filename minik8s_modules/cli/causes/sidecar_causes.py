"""Why a Pod has no sidecar, or none that answers, or takes anybody's connections where labels ask for mutual TLS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import LEASE, NAMESPACE
from minik8s_modules.api.network.gateway_api import GATEWAY_NAME
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods import mutual_tls, sidecars
from minik8s_modules.api.pods.mirror_pods import is_mirror
from minik8s_modules.api.pods.mutual_tls import unguarded
from minik8s_modules.api.pods.sidecar_images import sidecar_of
from minik8s_modules.api.pods.sidecars import DISABLED, INJECT, injection
from minik8s_modules.cli.causes.faults import Fault, kubectl
from minik8s_modules.cli.causes.surroundings import Around

MESH = "Set minik8s_mesh: true in the cluster's inventory and run its playbook"
INSTALL = "ansible-playbook -i inventory/mine playbooks/site.yml"


def waits_for_sidecar(pod: JsonObject) -> Iterator[Fault]:
    """Yield that the containers of a pod wait for a sidecar that runs and does not answer."""
    name = sidecar_of(objects.spec(pod))
    for entry in objects.status(pod).get("initContainerStatuses") or []:
        if entry.get("name") == name and "running" in (entry.get("state") or {}) and not entry.get("started"):
            message = f"its containers wait for the sidecar {name}, which runs and does not answer yet"
            yield Fault(message, kubectl(objects.namespace(pod), "logs", objects.name(pod), "-c", name))


def without_sidecar(pod: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield that a pod has no sidecar although its label, or its namespace's, asks for one."""
    space, called = objects.namespace(pod), objects.name(pod)
    decided = injection(pod, objects.labels(around.get(NAMESPACE, space) or {}))
    if is_mirror(pod) or decided == (None, "", False):
        return
    asks = "it" if decided.own else f"its Namespace {space}"
    if decided.obstacle:
        why_not, lead = decided.obstacle, kubectl(space, "label", "pod", called, "--overwrite", f"{INJECT}={DISABLED}")
    elif around.aside().lacks(LEASE, "minik8s-pilot", "kube-system"):  # who may not read it is told of both
        why_not, lead = f"the cluster has no mesh. {MESH}, then make the pod again", INSTALL
    else:
        why_not = "it was made before that was so, or the cluster has no mesh (minik8s_mesh)"
        lead = kubectl(space, "delete", "pod", called)
    yield Fault(f"{asks} asks for a sidecar, and it has none: {why_not}", lead)


def without_mutual_tls(pod: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield that a pod takes connections of anybody although labels ask for mutual TLS; a Gateway's is there for it."""
    space = around.get(NAMESPACE, objects.namespace(pod))
    if space is None or is_mirror(pod) or GATEWAY_NAME in objects.labels(pod):
        return
    if cause := unguarded(pod, objects.labels(space)):
        yield Fault(cause, _mutual_tls_lead(pod, objects.labels(space)))


def _mutual_tls_lead(pod: JsonObject, labels: Mapping[str, str]) -> str:
    """Return what gives a pod mutual TLS; where one made again would not have it either, what says that it has none."""
    space, called, spec = objects.namespace(pod), objects.name(pod), objects.spec(pod)
    if labels.get(mutual_tls.MTLS) not in mutual_tls.MODES:
        return kubectl("", "label", "namespace", space, f"{mutual_tls.MTLS}={mutual_tls.PERMISSIVE}")
    is_asked = (objects.labels(pod).get(INJECT) or labels.get(INJECT)) == sidecars.ENABLED
    if is_asked and (sidecar_of(spec) or not sidecars.sidecar_obstacle(spec)):
        return kubectl(space, "delete", "pod", called)
    return kubectl(space, "label", "pod", called, "--overwrite", f"{mutual_tls.MTLS}={mutual_tls.DISABLED}")
