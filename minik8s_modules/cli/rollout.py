"""``rollout status`` on a terminal: a picture of the rollout above kubectl's words.

kubectl decides when it is over, and how it ended; three watches draw it again at each change meanwhile. Where nobody
watches (no terminal), and for every other ``rollout``, it is kubectl's alone.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.field_selectors import exactly
from minik8s_modules.api.kinds import DAEMON_SET, DEPLOYMENT, POD, REPLICA_SET, STATEFUL_SET, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli import kubectl
from minik8s_modules.cli.causes.pods import status_cause
from minik8s_modules.cli.connection import client_for
from minik8s_modules.cli.original import translating
from minik8s_modules.cli.output import Paint
from minik8s_modules.cli.rollout_picture import picture
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.informer import Informer

_ROLLED: dict[str, Kind] = {kind.kind: kind for kind in (DEPLOYMENT, DAEMON_SET, STATEFUL_SET)}
_FRAME_S = 0.1


def is_drawn(argv: Sequence[str]) -> bool:
    """Return whether the command is a ``rollout status`` that somebody watches."""
    words = list(translating.scan(argv))
    asked = [word.text for word in words if not word.option][:2] == ["rollout", "status"]
    apart = {"-", "-h", "--help", "--watch=false"} & set(argv)
    return asked and not apart and sys.stdout.isatty() and translating.own_connection(argv)


def status(argv: Sequence[str]) -> int:
    """Draw a rollout until kubectl says that it is over; return kubectl's exit code. Several are kubectl's to tell."""
    argv = kubectl.translated(argv)
    found, _, _ = kubectl.read(translating.as_get(argv, 2))
    kind = _ROLLED.get(str(found[0].get("kind"))) if len(found) == 1 else None
    if kind is None:
        kubectl.hand_over(argv)
    return _Drawing(client_for(argv), kind, found[0]).until_over(argv)


class _Drawing:
    """One rollout, watched and drawn over the lines before."""

    def __init__(self, client: ApiClient, kind: Kind, obj: JsonObject) -> None:
        self._kind, self._namespace, self._name = kind, objects.namespace(obj), objects.name(obj)
        self._changed, self._over = threading.Event(), threading.Event()
        labels = objects.dig(obj, "spec", "selector", "matchLabels") or {}
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        self._own = Informer(client, kind, self._namespace, field_selector=exactly(metadata__name=self._name))
        self._sets = Informer(client, REPLICA_SET, self._namespace, label_selector=selector)
        self._pods = Informer(client, POD, self._namespace, label_selector=selector)
        self._drawn = 0

    def until_over(self, argv: Sequence[str]) -> int:
        """Draw until kubectl ends; print its last word and return its exit code."""
        process = kubectl.start(argv)
        outputs: list[str] = []

        def hear() -> None:
            outputs.extend(process.communicate())
            self._over.set()
            self._changed.set()

        threading.Thread(target=hear, daemon=True).start()
        informers = (self._own, self._sets, self._pods)
        for informer in informers:
            informer.add_handler(lambda _old, _new: self._changed.set())
            informer.start()
        try:
            self._draw_changes()
        finally:
            for informer in informers:
                informer.stop()
        self._draw(troubles=process.returncode != 0)
        sys.stdout.write("".join(outputs[0].splitlines(keepends=True)[-1:]))
        sys.stderr.write(outputs[1])
        return process.returncode

    def _draw_changes(self) -> None:
        while not self._over.is_set():
            self._changed.clear()
            self._draw(troubles=True)
            self._changed.wait(3600.0)
            time.sleep(_FRAME_S)  # many changes, one frame

    def _draw(self, *, troubles: bool) -> None:
        obj = self._own.get(self._namespace, self._name)
        if obj is None:
            return
        sets = [each for each in self._sets.list() if _controller(each) == objects.uid(obj)]
        width = shutil.get_terminal_size().columns - 1
        lines = picture(self._kind, obj, sets, self._troubles() if troubles else [], Paint(), width)
        back = f"\x1b[{self._drawn}A\r\x1b[J" if self._drawn else ""
        sys.stdout.write(back + "".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
        self._drawn = len(lines)

    def _troubles(self) -> list[str]:
        # a node's health is for `minik8s why`; asking for it at every frame would cost a request a pod
        pods = sorted(self._pods.list(), key=objects.name)
        found = [(objects.name(pod), status_cause(pod)) for pod in pods]
        return [f"pod {name}: {cause}" for name, cause in found if cause]


def _controller(obj: JsonObject) -> str:
    return str((objects.controller_of(obj) or {}).get("uid"))
