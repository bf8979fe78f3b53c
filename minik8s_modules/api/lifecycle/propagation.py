"""What becomes of dependents when their owner is deleted: a policy of the request, kept as a finalizer of the owner.

``orphan`` and ``foregroundDeletion`` hold the owner until the garbage collector (controllers/cleanup/garbage.py) has
done what they ask; without either the owner goes at once and its dependents follow. Source: apiserver
``registry/generic/registry/store.go`` (``deletionFinalizersForGarbageCollection``).
"""

from __future__ import annotations

from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject, finalizers

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
_POLICIES = {"Orphan": ORPHAN, "Foreground": FOREGROUND, "Background": ""}


def with_policy(kind: Kind, obj: JsonObject, options: JsonObject) -> JsonObject:
    """Return ``obj`` with the finalizer that DeleteOptions ask for; the same object when it has it already.

    Options that say nothing leave what an earlier deletion asked for. Events own nothing.
    """
    asked = _asked(options)
    if asked is None or kind.kind == "Event":
        return obj
    known = finalizers(obj)
    wanted = [each for each in known if each not in {ORPHAN, FOREGROUND} or each == asked]
    if asked and asked not in wanted:
        wanted.append(asked)
    if wanted == known:
        return obj
    meta = {field: value for field, value in obj["metadata"].items() if field != "finalizers"}
    return {**obj, "metadata": {**meta, **({"finalizers": wanted} if wanted else {})}}


def _asked(options: JsonObject) -> str | None:
    """Return the finalizer asked for, "" for none of them, None when the options do not say."""
    if options.get("orphanDependents") is not None:
        return ORPHAN if options["orphanDependents"] else ""
    policy = options.get("propagationPolicy")
    return _POLICIES[policy] if policy else None
