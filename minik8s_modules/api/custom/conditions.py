"""What the status of a CustomResourceDefinition says: which names it has, whether it is served, whether it goes.

Pure: a definition, its neighbours of the same group and what every server serves go in, a status comes out. Source:
apiextensions-apiserver ``pkg/controller/{status,establish,nonstructuralschema,apiapproval,finalizer}``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from minik8s_modules.api.custom import FINALIZER, approval, definitions
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.objects import JsonObject, is_deleting, metadata, name, spec, status

_SINGLE = (("plural", "PluralConflict"), ("singular", "SingularConflict"))
_KINDS = (("kind", "KindConflict"), ("listKind", "ListKindConflict"))
Step = Literal["delete", "finish", "wait"]


class Taken(NamedTuple):
    """Names that others of a group have: of resources, and of kinds."""

    resources: frozenset[str]
    kinds: frozenset[str]


def taken(definition: JsonObject, others: Iterable[JsonObject], built_in: Iterable[Kind]) -> Taken:
    """Return the names that ``definition`` may not have."""
    group = spec(definition).get("group")
    resources: set[str] = set()
    kinds: set[str] = set()
    for kind in built_in:
        if kind.group == group:
            resources.update((kind.plural, kind.singular_name, *kind.short_names))
            kinds.update((kind.kind, kind.list_kind))
    for other in others:
        if spec(other).get("group") == group and name(other) != name(definition):
            names = status(other).get("acceptedNames") or {}
            resources.update((names.get("plural", ""), names.get("singular", ""), *(names.get("shortNames") or ())))
            kinds.update((names.get("kind", ""), names.get("listKind", "")))
    return Taken(frozenset(resources - {""}), frozenset(kinds - {""}))


def decide(definition: JsonObject, having: Taken, now: str, *, served: bool) -> JsonObject:
    """Return the status of a definition; the one it has, where nothing changes.

    Args:
        definition: the object.
        having: names of others.
        now: RFC 3339, for conditions that change.
        served: whether every API server serves it as it is.
    """
    present = status(definition)
    names, conflict = _accepted(definition, having)
    wanted = [_names_condition(conflict)]
    approved = approval.condition(definition)
    if approved is not None:
        wanted.append(("KubernetesAPIApprovalPolicyConformant", *approved))
    established = _established(definition, accepted=conflict is None, served=served)
    if established is not None:
        wanted.append(established)
    conditions = [*(present.get("conditions") or [])]
    for each in wanted:
        conditions = with_condition(conditions, each, now)
    if names == present.get("acceptedNames") and conditions == present.get("conditions"):
        return present
    return {**present, "acceptedNames": names, "conditions": conditions}


def _accepted(definition: JsonObject, having: Taken) -> tuple[JsonObject, tuple[str, str] | None]:
    """Return the names a definition has now, and the reason and message of a conflict."""
    wanted, present = spec(definition).get("names") or {}, status(definition).get("acceptedNames") or {}
    names = dict(present)
    conflict = _take(_SINGLE, wanted, names, having.resources)
    short = wanted.get("shortNames") or []
    clashing = [each for each in short if each not in (present.get("shortNames") or []) and each in having.resources]
    if clashing:
        messages = [f'"{each}" is already in use' for each in clashing]
        conflict = ("ShortNamesConflict", messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]")
    else:
        names["shortNames"] = short
    conflict = _take(_KINDS, wanted, names, having.kinds) or conflict
    names["categories"] = wanted.get("categories") or []
    return {field: value for field, value in names.items() if value}, conflict


def _take(
    fields: Iterable[tuple[str, str]], wanted: JsonObject, names: JsonObject, used: frozenset[str]
) -> tuple[str, str] | None:
    """Put each wanted name that is free into ``names``; return the last conflict, as Kubernetes tells it."""
    conflict = None
    for field, reason in fields:
        value = wanted.get(field) or ""
        if value != names.get(field) and value in used:
            conflict = (reason, f'"{value}" is already in use')
        else:
            names[field] = value
    return conflict


def _names_condition(conflict: tuple[str, str] | None) -> tuple[str, str, str, str]:
    return ("NamesAccepted", "False", *conflict) if conflict else (
        "NamesAccepted", "True", "NoConflicts", "no conflicts found"
    )  # fmt: skip


def _established(definition: JsonObject, *, accepted: bool, served: bool) -> tuple[str, str, str, str] | None:
    """Return the condition ``Established``; None leaves it as it is: once true it stays."""
    if definitions.is_true(definition, "Established"):
        return None
    if not accepted:
        return "Established", "False", "NotAccepted", "not all names are accepted"
    if served and definitions.is_true(definition, "NamesAccepted"):
        return "Established", "True", "InitialNamesAccepted", "the initial names have been accepted"
    return "Established", "False", "Installing", "the initial names have been accepted"


def with_condition(conditions: Sequence[JsonObject], wanted: tuple[str, str, str, str], now: str) -> list[JsonObject]:
    """Return the conditions with one set; its transition time changes only with its status."""
    kind, state, reason, message = wanted
    made = {"lastTransitionTime": now, "message": message, "reason": reason, "status": state, "type": kind}
    found = []
    for each in conditions:
        if each.get("type") == kind:
            if each.get("status") == state:
                made["lastTransitionTime"] = each.get("lastTransitionTime") or now
            found.append(made)
        else:
            found.append(each)
    return found if made in found else [*found, made]


def is_served(definition: JsonObject) -> bool:
    """Return whether API servers serve the definition's kind: from when it has its names, until it is gone."""
    return definitions.is_true(definition, "NamesAccepted") or definitions.is_true(definition, "Established")


# --- the end --------------------------------------------------------------------------------------


def marked(definition: JsonObject, now: str) -> JsonObject:
    """Return a definition whose deletion begins: held by our finalizer, and saying so."""
    meta = metadata(definition)
    held = meta.get("finalizers") or []
    text = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
    return {
        **definition,
        "metadata": {**meta, "finalizers": held if FINALIZER in held else [*held, FINALIZER]},
        "status": _terminating(definition, "True", "InstanceDeletionPending", text, now),
    }


def _terminating(definition: JsonObject, state: str, reason: str, message: str, now: str) -> JsonObject:
    conditions = status(definition).get("conditions") or []
    wanted = ("Terminating", state, reason, message)
    return {**status(definition), "conditions": with_condition(conditions, wanted, now)}


def is_ending(definition: JsonObject) -> bool:
    """Return whether the definition waits for its objects to go."""
    held = metadata(definition).get("finalizers") or []
    return is_deleting(definition) and FINALIZER in held


def decide_end(objects: Sequence[JsonObject]) -> Step:
    """Return the next step of a definition that is ending, whose objects are ``objects``."""
    if not objects:
        return "finish"
    return "wait" if all(map(is_deleting, objects)) else "delete"


def deleting_status(definition: JsonObject, now: str) -> JsonObject:
    """Return the status while the objects are being deleted."""
    text = "CustomResource deletion is in progress"
    return _terminating(definition, "True", "InstanceDeletionInProgress", text, now)


def finished(definition: JsonObject, now: str) -> JsonObject:
    """Return a definition without objects, let go by us."""
    meta = metadata(definition)
    left = [each for each in meta.get("finalizers") or [] if each != FINALIZER]
    return {
        **definition,
        "metadata": {**meta, "finalizers": left},
        "status": _terminating(definition, "False", "InstanceDeletionCompleted", "removed all instances", now),
    }
