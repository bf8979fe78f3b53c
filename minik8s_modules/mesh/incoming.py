"""What comes in to one sidecar's Pod: the listeners that it is to have, and whether it has them. Of one stream."""

from __future__ import annotations

from collections.abc import Callable, Set

from minik8s_modules.mesh.authorizations.guards import Guard
from minik8s_modules.mesh.catalogue import Configuration
from minik8s_modules.mesh.identities.securing import INBOUND, INBOUND_IPV6
from minik8s_modules.mesh.identity import Listening, Sidecar
from minik8s_modules.mesh.messages import Message, inbound_message
from minik8s_modules.mesh.resources import LISTENER
from minik8s_modules.mesh.subscriptions import Subscription

Guarded = Callable[[Sidecar, Guard | None, str | None], None]
"""Told of a sidecar what it enforces, None for nothing; or what it refuses to, with its words."""
NAMES = frozenset((LISTENER, name) for name in (INBOUND, INBOUND_IPV6))
"""The listeners, each with its type."""
_MOST_SENT = 1000
"""As many responses may be without an answer, and their listeners known."""


def nobody(_sidecar: Sidecar, _guard: Guard | None, _refusal: str | None) -> None:
    """Take what a sidecar enforces, and tell nobody."""


class Incoming(Listening):
    """See the top of this file."""

    def __init__(self, sidecar: Sidecar, guarded: Guarded) -> None:
        super().__init__(sidecar)
        self._guarded = guarded
        self._messages: list[Message] = []
        self._guard: Guard | None = None
        self._sent: dict[str, Guard | None] = {}

    def messages(self, configuration: Configuration) -> list[Message]:
        """Return the listeners."""
        listening = self.told(configuration.peers)
        self._guard = self.guard(configuration.peers, configuration.policies) if listening else None
        self._messages = [inbound_message(mode, ipv6, self._guard) for mode, ipv6 in listening]
        return self._messages

    def sent(self, nonce: str) -> None:
        """Note what the listeners enforce that are sent with ``nonce``: others may be decided before its answer."""
        self._sent[nonce] = self._guard
        if len(self._sent) > _MOST_SENT:
            del self._sent[next(iter(self._sent))]

    def answered(self, nonce: str) -> Guard | None:
        """Return what listeners that were sent with ``nonce`` enforce, and forget it."""
        return self._sent.pop(nonce, None)

    def refused(self, message: str, guard: Guard | None) -> None:
        """Say that the sidecar refuses listeners that enforce ``guard``."""
        self._guarded(self.sidecar, guard, message)

    def ended(self) -> None:
        """Say nothing of the sidecar any more: its Pod's last stream has ended, and it may tell another pilot."""
        self._guarded(self.sidecar, None, None)

    def look(self, listeners: Subscription | None, open_: Set[tuple[str, str]]) -> None:
        """Say what the sidecar enforces if it has taken all of it; ``open_`` is what it has not taken, or not yet."""
        if listeners is None or not self._messages or NAMES & open_:
            return
        if all(listeners.has(each.name, each.version) for each in self._messages):
            self._guarded(self.sidecar, self._guard, None)
