"""``rollout`` of RollingUpdates, which kubectl's does not know: watch one, pause it, go on, abort it, undo it."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.field_selectors import exactly
from minik8s_modules.api.kinds import ROLLING_UPDATE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.options import Subparsers, add, add_namespace
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.informer import Informer

TYPES = frozenset({ROLLING_UPDATE.plural, ROLLING_UPDATE.singular_name, *ROLLING_UPDATE.short_names})
_STATES = {"pause": "Paused", "resume": "Running", "abort": "Aborted", "undo": "Undone"}
_ENDS = {"Running": "Finished"}
"""The phase that a state leads to, where it is called otherwise."""


def declare(commands: Subparsers) -> None:
    """Declare rollout."""
    parser = add(
        commands, "rollout", rollout, "watch, pause, resume, abort or undo a RollingUpdate; of workloads: kubectl's",
        usage="rollout (status | pause | resume | abort | undo) rollingupdate/NAME",
        examples="""
        minik8s rollout status ru/to-v3     until it has ended; exits with 1 unless it is finished
        minik8s rollout pause ru/to-v3      end the batch at work and begin no other
        minik8s rollout abort ru/to-v3      begin no other, and make the Pods of this one as they were
        minik8s rollout undo ru/to-v3       make all Pods as they were, batch by batch""",
    )  # fmt: skip
    parser.add_argument("action", choices=("status", *_STATES))
    parser.add_argument("target", nargs="+", metavar="rollingupdate/NAME")
    parser.add_argument("-w", "--watch", choices=("true", "false"), nargs="?", const="true", default="true",
                        help="of status: follow it to its end (default: true)")  # fmt: skip
    add_namespace(parser)


def rollout(client: ApiClient, given: argparse.Namespace) -> int:
    """Do it; return 1 where an update that is watched does not end as it was first asked for."""
    name = _name(given.target)
    if given.action == "status":
        return _Watch(client, given.namespace, name).follow(to_the_end=given.watch == "true")
    state = _STATES[given.action]
    client.patch(ROLLING_UPDATE, name, given.namespace, {"spec": {"state": state}})
    print(f"rollingupdate/{name}: {state} was requested; minik8s rollout status ru/{name} shows how far it is")
    return 0


def _name(words: Sequence[str]) -> str:
    kind, slash, name = words[0].partition("/")
    if not slash and len(words) == 2:  # noqa: PLR2004 - TYPE NAME
        name = words[1]
    if kind.lower() not in TYPES or not name or len(words) > 2 - bool(slash):
        raise UsageError(f"{' '.join(words)}: name one RollingUpdate, as rollingupdate/NAME")
    return name


def progress_line(update: JsonObject) -> str:
    """Return how far an update is, in a line."""
    status = objects.status(update)
    why = objects.condition(update, "Progressing") or {}
    words = [str(status.get("phase")), f"{status.get('updated') or 0} of {status.get('total') or 0} Pods updated"]
    if why.get("message"):
        words.append(f"{why.get('reason')}: {why['message']}")
    return ", ".join(words)


class _Watch:
    def __init__(self, client: ApiClient, namespace: str, name: str) -> None:
        self._first = client.get(ROLLING_UPDATE, name, namespace)
        self._namespace, self._name, self._changed = namespace, name, threading.Event()
        self._informer = Informer(client, ROLLING_UPDATE, namespace, field_selector=exactly(metadata__name=name))
        self._informer.add_handler(lambda _old, _new: self._changed.set())

    def follow(self, *, to_the_end: bool) -> int:
        """Print each change, up to the end if that is wanted; return the exit code."""
        update: JsonObject | None = self._first
        before = ""
        self._informer.start()
        try:
            while update is not None:
                line = progress_line(update)
                if line != before:
                    sys.stdout.write(f"{line}\n")
                    sys.stdout.flush()
                before = line
                if not to_the_end or self._has_ended(update):
                    return int(to_the_end and objects.status(update).get("phase") != "Finished")
                self._changed.wait()
                self._changed.clear()
                update = self._informer.get(self._namespace, self._name)
        finally:
            self._informer.stop()
        sys.stdout.write(f"rollingupdate/{self._name} was deleted\n")
        return 1

    @staticmethod
    def _has_ended(update: JsonObject) -> bool:
        state = str(objects.spec(update).get("state") or "Running")
        return bool(objects.status(update).get("phase") == _ENDS.get(state, state))
