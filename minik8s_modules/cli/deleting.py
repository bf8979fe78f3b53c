"""``delete``: by file, by name or by selector, and the wait until what was deleted is gone."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound, StatusError
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli import output, reading
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.reading import Place
from minik8s_modules.cli.resources import name_of
from minik8s_modules.client.api import ApiClient

POLL_S, SLOWER_S, TELL_AFTER_S = 0.1, 1.0, 2.0
CASCADES = {"background": "Background", "foreground": "Foreground", "orphan": "Orphan"}


def delete(client: ApiClient, options: argparse.Namespace) -> int:
    """Delete what words, files or selectors name, and wait until it is gone unless told not to."""
    grace_s = _grace_s(options)
    wanted, failed, gone = _wanted(client, options), False, []
    for place in wanted:
        kind, namespace, name = place
        try:
            obj = reading.fetch(client, place, options)[0]
            kind = obj[0]
            client.delete(kind, name, namespace, grace_s=grace_s, propagation=CASCADES[options.cascade])
        except NotFound as error:
            failed = failed or not options.ignore_not_found
            if not options.ignore_not_found:
                output.fail(error)
            continue
        except StatusError as error:
            failed = True
            output.fail(error)
            continue
        gone.append((Place(kind, namespace, name), objects.uid(obj[1])))
        how = " force deleted" if options.force else " deleted"
        told = f'{name_of(kind, "").removesuffix("/")} "{name}"{how}'
        print(name_of(kind, name) if options.output == "name" else told, flush=True)
    if not wanted:
        print("No resources found")
    if options.wait and not options.force:
        failed = not wait_gone(client, gone, options.timeout) or failed
    return int(failed)


def _grace_s(options: argparse.Namespace) -> int | None:
    if options.now and options.grace_period is not None:
        raise UsageError("--now is a grace period of 1 s; give either it or --grace-period")
    if options.force:
        output.warn("what is deleted by force may go on running on its node until that is told")
        return int(options.grace_period or 0)
    return 1 if options.now else options.grace_period


def _wanted(client: ApiClient, options: argparse.Namespace) -> list[Place]:
    found = list(reading.places(client, options))
    whole = [place for place in found if not place.name]
    if not whole:
        return found
    if not (options.all or options.selector or options.field_selector):
        where = whole[0].kind
        if options.filename:
            raise UsageError(f"{where.kind} name not found; delete needs metadata.name")
        raise UsageError(
            f"name what to delete, as in `minik8s delete {where.singular_name} web`, or give -l SELECTOR or --all "
            "(in the original's form: -p NAMESPACE -n NAME)"
        )
    return [inner for place in found for inner in _listed(client, place, options)]


def _listed(client: ApiClient, place: Place, options: argparse.Namespace) -> Iterator[Place]:
    if place.name:
        yield place
        return
    for kind, obj in reading.fetch(client, place, options):
        yield Place(kind, objects.namespace(obj), objects.name(obj))


def wait_gone(
    client: ApiClient,
    deleted: list[tuple[Place, str]],
    timeout_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Wait until none of the objects (each with its uid) is there any more, telling what is waited for.

    Returns whether that was so within ``timeout_s`` (0: for ever).
    """
    began, progress = clock(), output.Progress()
    for place, uid in deleted:
        while (obj := _still_there(client, place, uid)) is not None:
            passed_s = clock() - began
            if timeout_s and passed_s > timeout_s:
                progress.clear()
                output.fail(f"timed out after {timeout_s:g} s: {name_of(place.kind, place.name)} {_held_by(obj)}")
                return False
            if passed_s > TELL_AFTER_S:
                progress.tell(f"{name_of(place.kind, place.name)} {_held_by(obj)} ({passed_s:.0f} s)")
            time.sleep(POLL_S if passed_s < TELL_AFTER_S else SLOWER_S)
    progress.clear()
    return True


def _still_there(client: ApiClient, place: Place, uid: str) -> JsonObject | None:
    try:
        obj = client.get(place.kind, place.name, place.namespace)
    except NotFound:
        return None
    return obj if not uid or objects.uid(obj) == uid else None


def _held_by(obj: JsonObject) -> str:
    """Return what an object that is being deleted waits for."""
    if held := objects.finalizers(obj):
        return f"waits for its finalizers {', '.join(held)}"
    if obj.get("kind") == "Namespace":
        told = [c.get("message", "") for c in objects.status(obj).get("conditions") or [] if c.get("status") == "True"]
        return told[0] if told else "waits until all that is in it has gone"
    grace_s = obj["metadata"].get("deletionGracePeriodSeconds")
    return f"has {grace_s} s to end" if grace_s else "is going"
