"""What the gateway was told to probe on one node, and what it found: the shell's memory of probes and hooks.

What is declared of a pod is sent when it differs from what was sent on this connection; after a new connection all
of it is sent again. Results are the gateway's whole knowledge of a pod, each message in the place of the one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.loop.gateway_link import Gateway
from minik8s_modules.reconcile.values.values import CheckResult

_STATES = frozenset({"unknown", "success", "failure"})


def result_of(raw: Mapping[str, Any]) -> CheckResult:
    """Return the checked form of one result.

    Raises:
        ValueError: it is none.
    """
    state = str(raw["state"])
    if state not in _STATES:
        raise ValueError(f"{state!r} is not a state of a check")
    return CheckResult(state, int(raw["streak"]), str(raw["message"]), float(raw["took_s"]))


class Checking:
    """The probes and hooks of one node's pods; one caller at a time."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._sent: dict[str, tuple[str, tuple[JsonObject, ...]]] = {}
        self._results: dict[str, dict[str, CheckResult]] = {}

    def results(self, uid: str) -> Mapping[str, CheckResult]:
        """Return what is known of a pod's checks, by their ids."""
        return self._results.get(uid, {})

    def declare(self, gateway: Gateway, uid: str, sandbox: str, checks: tuple[JsonObject, ...]) -> None:
        """Have the gateway run exactly ``checks`` for the pod; it is told only what differs from the last time."""
        known = self._sent.get(uid, ("", ()))
        if known[1] == checks and (known[0] == sandbox or not checks):
            return
        sent = gateway.send({"op": "probe", "node": self._node, "pod": uid, "sandbox": sandbox, "checks": list(checks)})
        if sent and checks:
            self._sent[uid] = (sandbox, checks)
        elif sent:
            self._sent.pop(uid, None)
            self._results.pop(uid, None)

    def on_checked(self, uid: str, raw: Mapping[str, Mapping[str, Any]]) -> bool:
        """Take the gateway's results of a pod over; return whether they changed anything."""
        found = {str(name): result_of(one) for name, one in raw.items()}
        changed = found != self._results.get(uid, {})
        self._results[uid] = found
        return changed

    def forget(self, gateway: Gateway, uid: str) -> None:
        """Have nothing run for a pod that is gone."""
        self.declare(gateway, uid, "", ())
        self._results.pop(uid, None)

    def lost(self) -> None:
        """The connection is gone: what was sent is to be sent again; results stay until they are told again."""
        self._sent.clear()
