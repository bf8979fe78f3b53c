"""Pulls asked of the gateway: which are under way, and what their ends mean for a node."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.events.pod_events import PodEvents
from minik8s_modules.reconcile.loop.gateway_link import Gateway
from minik8s_modules.reconcile.loop.nodestate import NodeState
from minik8s_modules.reconcile.storage.pull_secrets import Credential, pull_key


class _Asked(NamedTuple):
    uid: str
    image: str
    key: str


class Pulls:
    """One pull per image, credentials and node at a time; one caller at a time."""

    def __init__(self, gateway: Gateway, event_writer: PodEvents) -> None:
        self._gateway = gateway
        self._event_writer = event_writer
        self._under_way: dict[str, _Asked] = {}

    def ask(self, state: NodeState, uid: str, image: str, pull_id: str, given: tuple[Credential, ...] = ()) -> None:
        """Have ``image`` pulled for a pod unless it is already; without a gateway the loop asks again later."""
        key = pull_key(image, given)
        known = state.pulls.get(key)
        if known is None or not known.active:
            auth = [one.auth() for one in given] or None
            if not self._gateway.send({"op": "pull", "id": pull_id, "node": state.name, "image": image, "auth": auth}):
                return
            self._under_way[pull_id] = _Asked(uid, image, key)
            state.on_pull_asked(key)
        self._event_writer.image(uid, image, "Pulling", f'Pulling image "{image}"')

    def on_pulled(self, state: NodeState, message: JsonObject, now: datetime) -> set[str]:
        """Take over the end of a pull; return the UIDs of the pods that use the image."""
        asked = self._under_way.pop(str(message["id"]), None)
        if asked is None:
            return set()
        image = asked.image
        ok = bool(message["ok"])
        reason, text = str(message["reason"]), str(message["message"])
        state.on_pulled(image, key=asked.key, ok=ok, reason=reason, message=text, now=now)
        if ok:
            for uid in state.decisions:
                if self._event_writer.uses(uid, image):
                    self._event_writer.image(uid, image, "Pulled", f'Successfully pulled image "{image}"')
        # every pod uses the pause image, so all look again
        return set(state.decisions)

    def forget(self, state: NodeState, uid: str) -> bool:
        """Break off what was asked for a pod that is gone and no other pod names; return whether anything was.

        A registry that accepts and stalls would else hold the gateway's slots for that node for ever.
        """
        unused = [
            (pull_id, asked.key)
            for pull_id, asked in self._under_way.items()
            if asked.uid == uid and not any(self._event_writer.uses(other, asked.image) for other in state.decisions)
        ]
        for pull_id, key in unused:
            del self._under_way[pull_id]
            self._gateway.send({"op": "cancel", "id": pull_id})
            state.on_pull_dropped(key)
        return bool(unused)

    def lost(self) -> None:
        """Forget all: their ends will never be told."""
        self._under_way.clear()
