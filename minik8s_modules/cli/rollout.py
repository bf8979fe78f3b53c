"""``minik8s rollout``: status, history, undo, pause, resume and restart of workloads.

Pausing, undoing and restarting are changes of the object that a client makes, as kubectl's; controllers do the rest.
``status`` follows three watches and draws the rollout anew at each change, as lines on a terminal, else in kubectl's
words whenever they change.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from minik8s_modules.api import objects
from minik8s_modules.api.field_selectors import exactly
from minik8s_modules.api.kinds import (
    CONTROLLER_REVISION,
    DAEMON_SET,
    DEPLOYMENT,
    NODE,
    POD,
    REPLICA_SET,
    STATEFUL_SET,
    Kind,
)
from minik8s_modules.api.merging.apply import LAST_APPLIED
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.cli import describing, output
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.options import Subparsers, add, add_filename, add_manager, add_namespace, add_words
from minik8s_modules.cli.output import as_yaml
from minik8s_modules.cli.reading import Place, places
from minik8s_modules.cli.resources import name_of
from minik8s_modules.cli.rollout_picture import REVISION, Verdict, picture, revision_of, verdict
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.informer import Informer

HASH_LABEL = "pod-template-hash"
CHANGE_CAUSE = "kubernetes.io/change-cause"
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
_ROLLED = (DEPLOYMENT, DAEMON_SET, STATEFUL_SET)
_FRAME_S = 0.1
_OPAQUE = frozenset({LAST_APPLIED, REVISION, "deployment.kubernetes.io/revision-history",
                     "deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas"})  # fmt: skip


def declare(commands: Subparsers) -> None:
    """Declare rollout and what goes below it."""
    parser = add(commands, "rollout", lambda *_: 0, "follow, undo, pause, resume or restart a rollout",
                 usage="rollout (status | history | undo | pause | resume | restart) TYPE/NAME",
                 examples="""
                 minik8s rollout status deploy/web              draw it until it is done
                 minik8s rollout history deploy/web             its revisions
                 minik8s rollout undo deploy/web --to-revision 3
                 minik8s rollout restart deploy/web             replace all pods""")  # fmt: skip
    inner = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", prog="minik8s rollout")
    for name, command, summary in (
        ("status", status, "draw a rollout until it is done"),
        ("history", history, "print the revisions, or the template of one"),
        ("undo", undo, "go back to the revision before, or to another"),
        ("pause", pause, "let changes of the template wait"),
        ("resume", resume, "roll what has waited"),
        ("restart", restart, "replace all pods, by the rules of a rollout"),
    ):
        each = add(inner, name, command, summary, usage=f"rollout {name} [options] (TYPE NAME | TYPE/NAME ...)")
        add_words(each, "TYPE/NAME")
        add_namespace(each)
        add_filename(each, required=False)
        each.set_defaults(selector="", field_selector="")
        _options(name, each)


def _options(name: str, parser: argparse.ArgumentParser) -> None:
    if name == "status":
        parser.add_argument("--timeout", type=float, default=0.0, metavar="SECONDS", help="give up after (0: never)")
        parser.add_argument("--no-watch", dest="watch", action="store_false", help="tell how far it is, and end")
        return
    if name == "history":
        parser.add_argument("--revision", type=int, default=0, metavar="N", help="print the template of this one")
        return
    if name == "undo":
        parser.add_argument("--to-revision", type=int, default=0, metavar="N", help="default: the one before")
    add_manager(parser)


def _each(client: ApiClient, options: argparse.Namespace, kinds: Sequence[Kind]) -> list[tuple[Place, JsonObject]]:
    """Return the named objects, which are of ``kinds``."""
    found = []
    for place in places(client, options):
        if not place.name:
            raise UsageError("name what is meant, as in `minik8s rollout status deployment/web`")
        if place.kind not in kinds:
            allowed = ", ".join(kind.plural for kind in kinds)
            raise UsageError(f"{place.kind.plural} cannot do that; what can: {allowed}")
        found.append((place, client.get(place.kind, place.name, place.namespace)))
    return found


# --- changes --------------------------------------------------------------------------------------


def _patch(client: ApiClient, place: Place, body: JsonObject, options: argparse.Namespace, done: str) -> None:
    client.patch(place.kind, place.name, place.namespace, body, field_manager=options.field_manager)
    print(f"{name_of(place.kind, place.name)} {done}")


def pause(client: ApiClient, options: argparse.Namespace) -> int:
    """Pause deployments."""
    return _set_paused(client, options, "paused", paused=True)


def resume(client: ApiClient, options: argparse.Namespace) -> int:
    """Resume deployments."""
    return _set_paused(client, options, "resumed", paused=False)


def _set_paused(client: ApiClient, options: argparse.Namespace, done: str, *, paused: bool) -> int:
    failed = False
    for place, obj in _each(client, options, (DEPLOYMENT,)):
        if bool(objects.spec(obj).get("paused")) == paused:
            output.fail(f"{name_of(place.kind, place.name)} is {'already' if paused else 'not'} paused")
            failed = True
            continue
        _patch(client, place, {"spec": {"paused": True if paused else None}}, options, done)
    return int(failed)


def restart(client: ApiClient, options: argparse.Namespace) -> int:
    """Change an annotation of the template, so that every pod is another one."""
    for place, obj in _each(client, options, _ROLLED):
        if objects.spec(obj).get("paused"):
            raise UsageError(f"{name_of(place.kind, place.name)} is paused; resume it first")
        annotations = {RESTARTED_AT: rfc3339(datetime.now(UTC))}
        body = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
        _patch(client, place, body, options, "restarted")
    return 0


def undo(client: ApiClient, options: argparse.Namespace) -> int:
    """Give workloads the template of an earlier revision."""
    for place, obj in _each(client, options, _ROLLED):
        if objects.spec(obj).get("paused"):
            raise UsageError(f"{name_of(place.kind, place.name)} is paused; resume it first, then undo")
        chosen = chosen_revision(revisions(client, obj), options.to_revision)
        template = bare_template(chosen)
        if template == bare_template({"spec": objects.spec(obj)}):
            print(f"{name_of(place.kind, place.name)} skipped rollback (current template already matches)")
            continue
        own = {key: value for key, value in objects.annotations(chosen).items() if key not in _OPAQUE}
        kept = {key: value for key, value in objects.annotations(obj).items() if key in _OPAQUE}
        body = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": objects.resource_version(obj)},
            {"op": "replace", "path": "/spec/template", "value": template},
            {"op": "add", "path": "/metadata/annotations", "value": {**kept, **own}},
        ]
        client.patch(
            place.kind, place.name, place.namespace, body, patch_type="json", field_manager=options.field_manager
        )
        print(f"{name_of(place.kind, place.name)} rolled back to revision {number_of(chosen)}")
    return 0


def revisions(client: ApiClient, workload: JsonObject) -> list[JsonObject]:
    """Return what keeps a workload's revisions, the oldest first: replica sets, or ControllerRevisions."""
    kind = REPLICA_SET if workload.get("kind") == DEPLOYMENT.kind else CONTROLLER_REVISION
    found = client.list(kind, objects.namespace(workload)).items
    return sorted((each for each in found if _is_controlled(each, workload)), key=number_of)


def number_of(kept: JsonObject) -> int:
    """Return the number of a revision: a ControllerRevision's own, or the annotation of a replica set."""
    return int(kept["revision"]) if "revision" in kept else revision_of(kept)


def _is_controlled(obj: JsonObject, owner: JsonObject) -> bool:
    return (objects.controller_of(obj) or {}).get("uid") == objects.uid(owner)


def chosen_revision(sets: Sequence[JsonObject], number: int) -> JsonObject:
    """Return what keeps revision ``number``, or the one before the latest for 0.

    Raises:
        UsageError: there is none.
    """
    if number == 0:
        if len(sets) < 2:  # noqa: PLR2004 - the latest and one before it
            raise UsageError("there is no revision before this one")
        return sets[-2]
    for each in sets:
        if number_of(each) == number:
            return each
    known = ", ".join(str(number_of(each)) for each in sets) or "none"
    raise UsageError(f"there is no revision {number}; there are: {known}")


def bare_template(workload: JsonObject) -> JsonObject:
    """Return the template of a workload, or of what keeps its revision, without what tells the revision."""
    kept = objects.dig(workload, "data", "spec", "template") or objects.spec(workload).get("template") or {}
    template = {key: value for key, value in kept.items() if key != "$patch"}
    meta = dict(template.get("metadata") or {})
    meta["labels"] = {key: value for key, value in (meta.get("labels") or {}).items() if key != HASH_LABEL}
    return {**template, "metadata": meta}


def history(client: ApiClient, options: argparse.Namespace) -> int:
    """Print the revisions of workloads, or one template."""
    for place, obj in _each(client, options, _ROLLED):
        sets = revisions(client, obj)
        print(name_of(place.kind, place.name))
        if options.revision:
            print(as_yaml(bare_template(chosen_revision(sets, options.revision))))
            continue
        rows = [[str(number_of(each)), objects.annotations(each).get(CHANGE_CAUSE, "<none>")] for each in sets]
        print(output.aligned(["REVISION", "CHANGE-CAUSE"], rows))
    return 0


# --- status ---------------------------------------------------------------------------------------


def status(client: ApiClient, options: argparse.Namespace) -> int:
    """Follow rollouts until they are done; returns 1 when one failed, or was not done in time."""
    failed = False
    for place, obj in _each(client, options, _ROLLED):
        if not options.watch:
            told = verdict(place.kind, obj)
            print(told.text)
        else:
            told = _Following(client, place, obj).until_done(options.timeout)
        failed = failed or told.failed
    return int(failed)


class _Following:
    """One rollout, watched and drawn."""

    def __init__(self, client: ApiClient, place: Place, obj: JsonObject) -> None:
        self._client, self._place = client, place
        self._changed = threading.Event()
        kind, namespace, name = place
        labels = objects.spec(obj).get("selector", {}).get("matchLabels") or {}
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        self._own = Informer(client, kind, namespace, field_selector=exactly(metadata__name=name))
        self._sets = Informer(client, REPLICA_SET, namespace, label_selector=selector)
        self._pods = Informer(client, POD, namespace, label_selector=selector)
        self._screen = _Screen()

    def until_done(self, timeout_s: float) -> Verdict:
        """Return the last verdict; it failed when ``timeout_s`` passed before."""
        informers = (self._own, self._sets, self._pods)
        for informer in informers:
            informer.add_handler(lambda _old, _new: self._changed.set())
            informer.start()
        try:
            return self._follow(time.monotonic() + timeout_s if timeout_s else float("inf"))
        finally:
            for informer in informers:
                informer.stop()

    def _follow(self, deadline: float) -> Verdict:
        self._own.wait_synced(min(30.0, max(deadline - time.monotonic(), 0.0)))
        while True:
            self._changed.clear()
            told = self._look()
            if told.done:
                self._screen.end(told.text, failed=told.failed)
                return told
            left = deadline - time.monotonic()
            if left <= 0:
                told = Verdict("timed out waiting for the rollout", done=True, failed=True)
                self._screen.end(told.text, failed=True)
                return told
            self._changed.wait(min(left, 3600.0))
            time.sleep(_FRAME_S)  # many changes, one frame

    def _look(self) -> Verdict:
        kind, namespace, name = self._place
        obj = self._own.get(namespace, name)
        if obj is None:
            return Verdict(f"{name_of(kind, name)} is gone", done=True, failed=True)
        sets = [each for each in self._sets.list() if _is_controlled(each, obj)]
        told = verdict(kind, obj)
        width = shutil.get_terminal_size().columns - 1
        troubles = [] if told.done else self._troubles()
        self._screen.show(lambda paint: picture(kind, obj, sets, troubles, paint, width), told)
        return told

    def _troubles(self) -> list[str]:
        pods = sorted(self._pods.list(), key=objects.name)
        causes = [(objects.name(pod), describing.find_cause(pod, (), self._node)) for pod in pods]
        return [f"pod {name}: {cause}" for name, cause in causes if cause]

    def _node(self, name: str) -> JsonObject:
        # a node's health is for `minik8s why`; asking for it at every frame would cost a request a pod
        return {"kind": NODE.kind, "metadata": {"name": name}, "status": {"conditions": [_READY]}}


_READY = {"type": "Ready", "status": "True"}


class _Screen:
    """Draws lines over the ones before on a terminal; elsewhere prints what changed."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty()
        self._drawn = 0
        self._last = ""

    def show(self, lines_of: Callable[[output.Paint], list[str]], told: Verdict) -> None:
        """Show the picture, or the words when they are others than before."""
        if self._live:
            self._draw(lines_of(output.Paint()))
        elif not told.done and told.text != self._last:
            print(told.text, flush=True)
            self._last = told.text

    def end(self, text: str, *, failed: bool) -> None:
        """Print the last word."""
        if failed:
            output.fail(text)
        else:
            print(text, flush=True)

    def _draw(self, lines: Sequence[str]) -> None:
        back = f"\x1b[{self._drawn}A\r\x1b[J" if self._drawn else ""
        sys.stdout.write(back + "".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
        self._drawn = len(lines)
