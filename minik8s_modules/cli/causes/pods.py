"""Why a pod does not run as declared; the cause nearest to the fault comes first.

A node that is gone or not ready makes all else old news. Then: a scheduler that does not serve the pod, a container
that waits or has died, what a probe said, conditions, Warning events.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import PurePosixPath

from minik8s_modules.api import objects
from minik8s_modules.api.defaulting.dialect import ANNOTATION, ORIGINAL
from minik8s_modules.api.kinds import (
    CONFIG_MAP,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    REPLICA_SET,
    SECRET,
    SERVICE_ACCOUNT,
)
from minik8s_modules.api.nodes.node_affinity import matches_node
from minik8s_modules.api.nodes.taints import untolerated
from minik8s_modules.api.nodes.virtual_nodes import is_virtual
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.pod_references import references
from minik8s_modules.api.pods.resizes import IN_PROGRESS, PENDING
from minik8s_modules.api.pods.sidecars import IMAGE
from minik8s_modules.api.pods.slurm import UNAVAILABLE as SLURM_UNAVAILABLE
from minik8s_modules.api.quantities import parse
from minik8s_modules.cli.causes.faults import Fault, deletion, kubectl, moment, unrecovered, why
from minik8s_modules.cli.causes.sidecar_causes import (
    INSTALL,
    MESH,
    waits_for_sidecar,
    without_mutual_tls,
    without_sidecar,
)
from minik8s_modules.cli.causes.storage.attaching import volume_holds
from minik8s_modules.cli.causes.storage.claims import held_alone, unbound
from minik8s_modules.cli.causes.surroundings import Around
from minik8s_modules.scheduler.profiles.configuration import POLICIES

ON_THE_WAY = {"ContainerCreating", "PodInitializing"}
"""A container that waits for these is simply on its way."""
SCHEDULER = "default-scheduler"
PATIENCE = timedelta(seconds=30)
"""How long a pod may go without a word of the scheduler, or outlive its grace period."""
_BOUND: JsonObject = {"status": {"phase": "Bound"}}
_PASSES = frozenset({"FailedToReconcile", "Reconciled"})
_KILLED = {137, 143}
_SHELLS = {"ash", "bash", "dash", "sh", "zsh"}
_REFERENCED = {one.plural: one for one in (CONFIG_MAP, SECRET, SERVICE_ACCOUNT, PERSISTENT_VOLUME_CLAIM)}


def pod_faults(pod: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield why a pod is not as it should be, the nearest cause first."""
    yield from _node(pod, around)
    yield from _stuck(pod, around)
    yield from _unserved(pod)
    yield from held_alone(pod, around)
    yield from _missing(pod, around)
    yield from volume_holds(pod, around)
    yield from _containers(pod, around)
    yield from waits_for_sidecar(pod)
    yield from _ended(pod)
    events = around.events(pod)
    yield from unrecovered(events, around.now)
    yield from _probes(pod, events)
    yield from _unattended(pod, around)
    yield from _conditions(pod, around)
    yield from without_sidecar(pod, around)
    yield from without_mutual_tls(pod, around)
    warnings = [event for event in events if event.get("type") == "Warning"]
    if warnings and objects.status(pod).get("phase") in ("Pending", "Failed", "Unknown"):
        text = f"{warnings[-1].get('reason', '')}: {warnings[-1].get('message', '')}"
        yield Fault(text, kubectl(objects.namespace(pod), "describe", "pod", objects.name(pod)))


def pod_cause(pod: JsonObject, around: Around) -> str:
    """Return in one line why a pod that something else stands on does not run, "" for nothing; reads its node alone."""
    for fault in (*_node(pod, around), *_stuck(pod, around), *_unserved(pod)):
        return fault.cause
    return status_cause(pod)


def status_cause(pod: JsonObject) -> str:
    """Return in one line what a pod's status alone says is wrong, "" for nothing."""
    for fault in (*_containers(pod), *_ended(pod)):
        return fault.cause
    return next((_message(condition) for condition in _bad_conditions(pod)), "")


def _node(pod: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield what is wrong with the node of a pod: what its status says is then as old as that."""
    name = objects.spec(pod).get("nodeName")
    if not name or objects.status(pod).get("phase") in ("Succeeded", "Failed"):
        return
    node = around.get(NODE, name)
    if node is None:
        if around.lacks(NODE, name):
            yield Fault(f"node {name} does not exist", "kubectl get nodes")
        return
    ready = objects.condition(node, "Ready") or {}
    if ready.get("status") != "True":
        text = f"node {name} is not ready: {ready.get('message') or 'it has not reported yet'}"
        yield Fault(text, why(NODE, name))
    away = objects.condition(node, SLURM_UNAVAILABLE) or {}
    if away.get("status") == "True":
        text = f"Slurm has given node {name} no answer since {away.get('lastTransitionTime')}: {away.get('message')}"
        yield Fault(text, why(NODE, name))


def _unattended(pod: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield why nothing is done on the node of a pod that waits for it, although the node answers."""
    name = objects.spec(pod).get("nodeName")
    node = around.get(NODE, name) if name and objects.status(pod).get("phase") in (None, "Pending") else None
    passes = [one for one in around.events(node) if one.get("reason") in _PASSES] if node else []
    for fault in unrecovered(passes, around.now):
        yield Fault(f"node {name} is not attended: {fault.cause}", why(NODE, str(name)))


def _stuck(pod: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield why a pod that was deleted is still there; its deletionTimestamp is the end of its grace period."""
    if not objects.is_deleting(pod):
        return
    yield from deletion(pod)
    end = moment(objects.deletion_timestamp(pod))
    if end is not None and around.now - end > PATIENCE:
        late = int((around.now - end).total_seconds())
        where = f" on node {objects.spec(pod)['nodeName']}" if objects.spec(pod).get("nodeName") else ""
        text = f"it should have been gone {late} s ago, at the end of its grace period, and has not ended{where}"
        node = around.get(NODE, name) if (name := str(objects.spec(pod).get("nodeName") or "")) else None
        yield Fault(text, why(NODE, name) if node is not None and is_virtual(node) else f"minik8s drift {name}".strip())


def _unserved(pod: JsonObject) -> Iterator[Fault]:
    name = objects.spec(pod).get("schedulerName") or SCHEDULER
    heard = objects.condition(pod, "PodScheduled") is not None
    if name not in (SCHEDULER, *POLICIES) and not heard and not objects.spec(pod).get("nodeName"):
        usual = ", ".join((SCHEDULER, *POLICIES))
        text = f"it waits for a scheduler named {name}, which has not processed it; minik8s itself has {usual}"
        yield Fault(text, _edit(pod))


def _missing(pod: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield what a pod that waits on its node names and its namespace does not have."""
    if objects.status(pod).get("phase") != "Pending" or not objects.spec(pod).get("nodeName"):
        return
    namespace = objects.namespace(pod)
    for wanted in sorted(references(pod)):
        kind = _REFERENCED[wanted.plural]
        if (
            kind is not SERVICE_ACCOUNT
            and not _is_optional(pod, wanted.name)
            and around.lacks(kind, wanted.name, namespace)
        ):
            waiting = next((f"; {fault.cause}" for fault in _containers(pod)), "")
            message = f"there is no {kind.kind} {wanted.name} in namespace {namespace}{waiting}"
            yield Fault(message, kubectl(namespace, "get", kind.plural))
        elif kind is PERSISTENT_VOLUME_CLAIM and (
            unbound_reason := unbound(around.get(kind, wanted.name, namespace) or _BOUND, around)
        ):
            yield Fault(
                f"it waits for PersistentVolumeClaim {wanted.name}: {unbound_reason}", why(kind, wanted.name, namespace)
            )


def _is_optional(pod: JsonObject, name: str) -> bool:
    """Return whether some mention of a ConfigMap or Secret says that it may be missing."""
    found: list[object] = [objects.spec(pod)]
    while found:
        one = found.pop()
        if isinstance(one, dict):
            if one.get("optional") and name in (one.get("name"), one.get("secretName")):
                return True
            found += one.values()
        elif isinstance(one, list):
            found += one
    return False


def _containers(pod: JsonObject, around: Around | None = None) -> Iterator[Fault]:
    """Yield what is wrong with a pod's containers; with ``around`` also what they and their probes said last."""
    status = objects.status(pod)
    for entry in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        state = entry.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
        if waiting.get("message") or waiting.get("reason", "ContainerCreating") not in ON_THE_WAY:
            yield _waiting(pod, entry, around)
        elif ended.get("exitCode"):
            logs = kubectl(objects.namespace(pod), "logs", objects.name(pod), "-c", entry["name"])
            yield Fault(f"container {entry['name']}: {_ending(ended)}", logs)


def _waiting(pod: JsonObject, entry: JsonObject, around: Around | None) -> Fault:
    waiting = entry["state"]["waiting"]
    reason, text = waiting.get("reason", ""), f"{waiting.get('reason', '')}: {waiting.get('message', '')}"
    before = (entry.get("lastState") or {}).get("terminated") or {}
    if "exitCode" in before:
        text = f"{text} ({_ending(before)})"
    then = _lead(pod, entry["name"], reason, before)
    if "Image" in reason and _image(pod, entry["name"]) == IMAGE:
        text, then = f"{text}; nodes have this image in clusters with a mesh. {MESH}", INSTALL
    if around and "exitCode" in before and not before.get("message") and before.get("reason") != "OOMKilled":
        probe = _probe_that_killed(pod, entry["name"], before, around)
        line = around.last_line(pod, entry["name"])
        text += f"; {probe}" if probe else ""
        text += f"; its last line: {line}" if line else ""
    if _lacks_terminal(pod, entry["name"], before):
        text += (
            "; a shell without a terminal ends at once: give the container tty and stdin, or, if the manifest is one "
            "of the original MiniK8s, label its namespace and make the pod again"
        )
    return Fault(f"container {entry['name']}: {text}", then)


def _image(pod: JsonObject, container: str) -> str:
    found = (str(one.get("image")) for _, _, one in objects.all_containers(pod) if one["name"] == container)
    return next(found, "").removeprefix("docker.io/")


def _lacks_terminal(pod: JsonObject, container: str, before: JsonObject) -> bool:
    """Return whether a container ended well because it was given nothing to do; in the original it has a terminal."""
    found = next((one for _, _, one in objects.all_containers(pod) if one["name"] == container), {})
    words = [*(found.get("command") or []), *(found.get("args") or [])]
    idle = not words or (len(words) == 1 and PurePosixPath(words[0]).name in _SHELLS)
    given = found.get("tty") or found.get("stdin") or ANNOTATION in objects.annotations(pod)
    return before.get("exitCode") == 0 and idle and not given and objects.controller_of(pod) is None


def _lead(pod: JsonObject, container: str, reason: str, before: JsonObject) -> str:
    """Return the command that leads on from a container that waits."""
    namespace, name = objects.namespace(pod), objects.name(pod)
    if before.get("reason") == "OOMKilled":
        return _more_memory(pod, container)
    if _lacks_terminal(pod, container, before):
        return kubectl("", "label", "namespace", namespace, f"{ANNOTATION}={ORIGINAL}")
    if before.get("reason") == "StartError" or "Image" in reason:
        return _edit(pod)
    if "exitCode" in before:
        return kubectl(namespace, "logs", name, "-c", container, "--previous")
    return kubectl(namespace, "describe", "pod", name)


def _ending(ended: JsonObject) -> str:
    """Return how a container ended, as in ``OOMKilled: it exited with 137``."""
    how = ended.get("message") or f"it exited with {ended['exitCode']}"
    return f"{ended.get('reason', 'Error')}: {how}"


def _probe_that_killed(pod: JsonObject, container: str, before: JsonObject, around: Around) -> str:
    """Return what a liveness probe or a hook said last of a container that was killed."""
    if before.get("exitCode") not in _KILLED:
        return ""
    return next((fault.cause for fault in _reported_by_node(pod, around.events(pod), container)), "")


def _more_memory(pod: JsonObject, container: str) -> str:
    """Return the command that doubles the limit of memory."""
    limits = (objects.dig(one, "resources", "limits", "memory") for _, _, one in objects.all_containers(pod)
              if one["name"] == container)  # fmt: skip
    limit = next((one for one in limits if one), None)
    if limit is None:
        return kubectl(objects.namespace(pod), "top", "pod", objects.name(pod), "--containers")
    wanted = f"--limits=memory={2 * int(parse(limit)) // 2**20}Mi"
    return kubectl(objects.namespace(pod), "set", "resources", _maker(pod), "-c", container, wanted)


def _maker(pod: JsonObject) -> str:
    """Return ``TYPE/NAME`` of what holds a pod's template; a Deployment's from the name that it gives ReplicaSets."""
    owner = objects.controller_of(pod)
    if owner is None:
        return f"pod/{objects.name(pod)}"
    name, suffix = str(owner.get("name")), objects.labels(pod).get("pod-template-hash")
    if owner.get("kind") == REPLICA_SET.kind and suffix and name.endswith(f"-{suffix}"):
        return f"deployment/{name.removesuffix(f'-{suffix}')}"
    return f"{str(owner.get('kind')).lower()}/{name}"


def _edit(pod: JsonObject) -> str:
    return kubectl(objects.namespace(pod), "edit", _maker(pod))


def _ended(pod: JsonObject) -> Iterator[Fault]:
    status = objects.status(pod)
    if status.get("phase") == "Failed" and status.get("reason"):
        text = f"{status['reason']}: {status.get('message') or 'the pod has failed'}"
        node = objects.spec(pod).get("nodeName")
        lead = why(NODE, node) if node else kubectl(objects.namespace(pod), "describe", "pod", objects.name(pod))
        yield Fault(text, lead)


def _reported_by_node(pod: JsonObject, events: list[JsonObject], container: str = "") -> Iterator[Fault]:
    """Yield what probes and hooks of a pod said last, the newest first."""
    namespace, name = objects.namespace(pod), objects.name(pod)
    for event in reversed(events):
        field = str(objects.dig(event, "involvedObject", "fieldPath") or "")
        if event.get("reason") in ("Unhealthy", "FailedPostStartHook") and (not container or container in field):
            text = " ".join(str(event.get("message")).split())
            which = field.partition("{")[2].rstrip("}")
            logs = ("logs", name, *(("-c", which) if which else ()))
            yield Fault(f"container {which}: {text}" if which else text, kubectl(namespace, *logs))


def _probes(pod: JsonObject, events: list[JsonObject]) -> Iterator[Fault]:
    """Yield what a probe said of a pod that runs and is not ready."""
    ready = objects.condition(pod, "Ready") or {}
    if objects.status(pod).get("phase") == "Running" and ready.get("status") == "False":
        yield from _reported_by_node(pod, events)


def _bad_conditions(pod: JsonObject) -> Iterator[JsonObject]:
    """Yield the conditions that are not true and say why."""
    for condition in objects.status(pod).get("conditions") or []:
        if condition.get("status") != "True" and condition.get("message"):
            yield condition


def _message(condition: JsonObject) -> str:
    return f"{condition['type']}: {condition.get('reason', '')}: {condition['message']}"


def _conditions(pod: JsonObject, around: Around) -> Iterator[Fault]:
    for condition in _bad_conditions(pod):
        if condition["type"] == "PodScheduled":
            yield Fault(_message(condition), _of_nodes(pod, around))
        elif condition.get("reason") == "NetworkNotReady":
            yield Fault(_message(condition), f"minik8s drift {objects.spec(pod).get('nodeName') or ''}".strip())
        else:
            yield Fault(_message(condition), kubectl(objects.namespace(pod), "describe", "pod", objects.name(pod)))
    for condition in filter(None, (objects.condition(pod, kind) for kind in (PENDING, IN_PROGRESS))):
        if condition.get("message"):
            node = objects.spec(pod).get("nodeName") or ""
            yield Fault(_message(condition), f"kubectl describe node {node}".strip())
    spec, since = objects.spec(pod), moment(objects.metadata(pod).get("creationTimestamp"))
    unheard = objects.condition(pod, "PodScheduled") is None and not spec.get("nodeName")
    if unheard and since is not None and around.now - since > PATIENCE:
        yield Fault("no scheduler has processed it: is minik8s-scheduler running?", "kubectl -n kube-system get leases")


def _of_nodes(pod: JsonObject, around: Around) -> str:
    """Return the command that shows what keeps a pod from all nodes: taints, labels, ports, or room."""
    nodes = around.all(NODE)
    wanted = [one for one in nodes if matches_node(pod, one)]
    if nodes and not wanted:
        return "kubectl get nodes --show-labels"
    if nodes and all(untolerated(pod, one, {"NoSchedule", "NoExecute"}) for one in wanted):
        return "kubectl get nodes -o custom-columns=NAME:.metadata.name,TAINTS:.spec.taints"
    ports = _host_ports(pod)
    holders = (one for one in around.all(POD) if objects.spec(one).get("nodeName") and _host_ports(one) & ports)
    holder = next(holders, None) if ports else None
    if holder is not None:
        return kubectl(objects.namespace(holder), "get", "pod", objects.name(holder), "-o", "wide")
    return "kubectl describe nodes" if nodes else "kubectl get nodes"


def _host_ports(pod: JsonObject) -> set[tuple[str, int]]:
    ports = (port for _, _, one in objects.all_containers(pod) for port in one.get("ports") or [])
    return {(str(port.get("protocol") or "TCP"), port["hostPort"]) for port in ports if port.get("hostPort")}
