"""Whose connections sidecars would take, and by TLS or not, if labels of Namespaces and Pods changed. Pure.

Told of Pods that are there and can speak TLS. One that would be made has a sidecar that can, or has not, by the same
labels: that is shown with the Pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import NAMESPACE, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import STRICT, Peer, can_speak, peer
from minik8s_modules.reconcile.feeds.plan_subjects import Note, of
from minik8s_modules.reconcile.planning.questions import Question
from minik8s_modules.reconcile.planning.simulation import is_gone

_Labels = Mapping[str, Mapping[str, str]]


def mode_notes(question: Question, before: _Labels, after: _Labels, pods: Iterable[JsonObject]) -> Iterator[Note]:
    """Yield what changes, by namespace; ``before`` and ``after`` are labels of Namespaces."""
    labelled = {
        objects.key(each.object): each.object
        for each in question.operations
        if each.object.get("kind") == POD.kind and not is_gone(each)
    }
    found: dict[str, dict[str, list[str]]] = {}
    for pod in pods:
        space = objects.namespace(pod)
        if not can_speak(objects.spec(pod)) or not (space in before or space in after):
            continue
        then = {**pod, "metadata": objects.metadata(labelled.get(objects.key(pod), pod))}
        change = _change(peer(pod, before.get(space, {})), peer(then, after.get(space, {})))
        if change:
            found.setdefault(space, {}).setdefault(change, []).append(objects.name(pod))
    for space, changes in sorted(found.items()):
        for change, names in sorted(changes.items()):
            whose = f"{len(names)} sidecar{'s' if len(names) != 1 else ''} of namespace {space}"
            yield Note(f"{whose} would {change}: {', '.join(sorted(names))}", (of(NAMESPACE, space), of(POD, space)))


def _change(old: Peer | None, new: Peer | None) -> str:
    if old is None or new is None or old == new:
        return ""
    parts = []
    if old.mode != new.mode:
        strict = new.mode == STRICT
        parts.append("take connections of sidecars with mutual TLS alone" if strict else "take connections of anybody")
    if old.is_called_by_tls != new.is_called_by_tls:
        parts.append(f"be called {'with' if new.is_called_by_tls else 'without'} TLS")
    return " and ".join(parts)
