"""Whose connections sidecars would take, and by TLS or not, if labels of Namespaces and Pods changed. Pure.

Told of Pods that are there, stay, and can speak TLS. One that would be made has a sidecar that can, or has not, by the
same labels: that is shown with the Pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import NAMESPACE, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import STRICT, Peer, can_speak, peer
from minik8s_modules.reconcile.feeds.plan_subjects import Note, of
from minik8s_modules.reconcile.planning.questions import Operation, Question
from minik8s_modules.reconcile.planning.simulation import is_gone

_Labels = Mapping[str, Mapping[str, str]]


def mode_notes(question: Question, before: _Labels, after: _Labels, pods: Iterable[JsonObject]) -> Iterator[Note]:
    """Yield what changes, by namespace; ``before`` and ``after`` are labels of Namespaces."""
    asked = {objects.key(each.object): each for each in question.operations if each.object.get("kind") == POD.kind}
    gone = {objects.name(each.object) for each in question.operations if _is_namespace(each) and is_gone(each)}
    found: dict[str, dict[str, list[str]]] = {}
    for pod in pods:
        space, own = objects.namespace(pod), asked.get(objects.key(pod))
        if (
            space not in after
            or space in gone
            or (own is not None and is_gone(own))
            or not can_speak(objects.spec(pod))
        ):
            continue
        then = {**pod, "metadata": objects.metadata(own.object if own is not None else pod)}
        change = _change(peer(pod, before.get(space, {})), peer(then, after.get(space, {})))
        if change:
            found.setdefault(space, {}).setdefault(change, []).append(objects.name(pod))
    for space, changes in sorted(found.items()):
        for change, names in sorted(changes.items()):
            whose = f"{len(names)} sidecar{'s' if len(names) != 1 else ''} of namespace {space}"
            yield Note(f"{whose} would {change}: {', '.join(sorted(names))}", (of(NAMESPACE, space), of(POD, space)))


def _is_namespace(operation: Operation) -> bool:
    return operation.object.get("kind") == NAMESPACE.kind


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
