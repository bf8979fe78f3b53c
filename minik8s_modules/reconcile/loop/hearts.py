"""Has the gateway listen closely to the nodes that announce addresses, and takes down when one falls silent.

Nodes that are silent are listened to as well: they announce nothing any more, and would never be found back otherwise.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from minik8s_modules.api import objects
from minik8s_modules.api.network.surroundings import SILENT
from minik8s_modules.api.objects import JsonObject


class Hearts:
    """Any thread may call it.

    Args:
        send: gives the gateway a message; False while there is none.
        tell: is told (node, whether it is silent).
        own: the Nodes of this shard.
    """

    def __init__(
        self,
        send: Callable[[JsonObject], bool],
        tell: Callable[[str, bool], None],
        own: Callable[[], Iterable[JsonObject]],
    ) -> None:
        self._send, self._tell, self._own = send, tell, own
        self._lock = threading.Lock()
        self._announcers: frozenset[str] = frozenset()
        self._asked: frozenset[str] = frozenset()

    def attend(self, announcers: frozenset[str]) -> None:
        """Listen to these nodes from now on, as far as they are the shard's."""
        with self._lock:
            self._announcers = announcers
            self._ask()

    def on_up(self, up: bool) -> None:  # noqa: FBT001 - the link's callback
        """Ask a gateway that is back, which knows of nothing."""
        with self._lock:
            self._asked = frozenset()
            if up:
                self._ask()

    def on_beat(self, message: JsonObject) -> bool:
        """Take over what the gateway tells; return whether it was about this."""
        if message.get("op") != "beat":
            return False
        self._tell(str(message.get("node") or ""), bool(message.get("silent")))
        return True

    def _ask(self) -> None:
        own = [*self._own()]
        silent = {objects.name(node) for node in own if _is_silent(node)}
        wanted = frozenset(objects.name(node) for node in own) & (self._announcers | silent)
        for name in wanted - self._asked:
            if self._send({"op": "heart", "node": name, "on": True}):
                self._asked |= {name}
        for name in self._asked - wanted:
            self._send({"op": "heart", "node": name, "on": False})
            self._asked -= {name}


def _is_silent(node: JsonObject) -> bool:
    return (objects.condition(node, SILENT) or {}).get("status") == "True"
