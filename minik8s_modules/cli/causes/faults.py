"""What ``why`` tells of an object: a cause in words, and the command that leads on, written for a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.custom import FINALIZER
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import KINDS
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import parse_rfc3339


class Fault(NamedTuple):
    """Why something is not as it should be; ``next``: the command to run next, to mend it or to see more."""

    cause: str
    next: str = ""


def kubectl(namespace: str, *words: str) -> str:
    """Return a command line of kubectl, quoted for a shell; ``namespace`` "" for kinds of the whole cluster."""
    return shlex.join(["kubectl", *(["-n", namespace] if namespace else []), *words])


def why(kind: Kind, name: str, namespace: str = "") -> str:
    """Return the command that asks for the cause of another object."""
    return shlex.join(["minik8s", "why", *(["-n", namespace] if namespace else []), f"{kind.singular_name}/{name}"])


def resource(obj: JsonObject) -> str:
    """Return ``TYPE/NAME`` as kubectl takes it."""
    kind = kind_of(obj)
    return f"{kind.singular_name if kind else str(obj.get('kind')).lower()}/{objects.name(obj)}"


def kind_of(obj: JsonObject) -> Kind | None:
    """Return the kind of an object, None where it is none that is known here."""
    return KINDS.by_api_version(str(obj.get("apiVersion") or ""), str(obj.get("kind") or ""))


def moment(text: object) -> datetime | None:
    """Return a time of an object, None where there is none or it cannot be read."""
    try:
        return parse_rfc3339(str(text)) if text else None
    except ValueError:
        return None


RECOVERED: Mapping[str, str] = {
    "FailedToUpdateServiceRules": "ServiceRulesUpdated",
    "FailedToUpdateNames": "NamesUpdated",
    "FailedToUpdatePaths": "PathsUpdated",
    "FailedToMakeFolder": "FolderMade",
    "DriftFound": "DriftHealed",
    "FailedToReconcile": "Reconciled",
}
"""Events of what a node could not do, and the one that says it is over."""


FADING = timedelta(minutes=10)
"""How long drift that was not put right counts, as no Event says that a later pass did; and how long a pass that failed
does, which is told every five minutes while it lasts: a reconciler that has started since does not know of it."""
_FADES = frozenset({"DriftFound", "FailedToReconcile"})


def unrecovered(events: Sequence[JsonObject], now: datetime) -> Iterator[Fault]:
    """Yield what nodes could not do and have not done since; ``events`` oldest first."""
    for failed, over in RECOVERED.items():
        last = {_about(event): event for event in events if event.get("reason") in (failed, over)}
        for event in last.values():
            at = moment(event.get("lastTimestamp") or event.get("eventTime"))
            over_long_ago = failed in _FADES and at is not None and now - at > FADING
            if event.get("reason") == failed and not over_long_ago:
                yield Fault(f"{failed}: {' '.join(str(event.get('message')).split())}", "minik8s drift")


def _about(event: JsonObject) -> str:
    """Return what part of a node an Event about drift is of: what is healed in one section is not in another.

    Its message begins with it: ``node NODE: SECTION: …``, of a Node ``SECTION: …`` (reconcile/loop/drift_events.py).
    """
    if event.get("reason") not in ("DriftFound", "DriftHealed"):
        return ""
    words = str(event.get("message")).split(": ")
    return ": ".join(words[: 2 if words[0].startswith("node ") else 1])


def deletion(obj: JsonObject) -> Iterator[Fault]:
    """Yield what keeps an object that is to be deleted."""
    held = [
        *objects.finalizers(obj),
        *(objects.spec(obj).get("finalizers") or [] if obj["kind"] == "Namespace" else []),
    ]
    if not objects.is_deleting(obj) or not held or obj["kind"] == "Namespace":
        return
    since = f"it was deleted at {objects.deletion_timestamp(obj)}"
    if set(held) <= {"foregroundDeletion", "orphan"}:
        yield Fault(
            f"{since} and waits for the garbage collector: {', '.join(held)}", "kubectl -n kube-system get leases"
        )
        return
    if set(held) == {FINALIZER}:
        message = f"{since} and goes when all objects of its kind have gone"
        yield Fault(message, kubectl("", "get", objects.name(obj), "-A"))
        return
    message = (
        f"{since} and is kept by its finalizers until the controllers that set them remove them: {', '.join(held)}"
    )
    remedy = ("patch", resource(obj), "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    yield Fault(f"{message} (by hand only if no controller will)", kubectl(objects.namespace(obj), *remedy))
