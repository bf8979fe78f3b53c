"""The pressure of each pod's resources (PSI), as version 2 of cgroups tells it; {} where there is only version 1.

A pod's cgroup is at one of three places, which a node has alike for all of its pods. Three files a pod are read each
third time, which is half a minute. Over ssh a file takes three round trips, one after the other: a hundred pods take
900, which is 18 s where one takes 20 ms, and the node's next sample is late by that. Other questions to the node pass
between two files, and heartbeats have a channel of their own (``links.SshLink.beat``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.gateway.errors import FileRefused
from minik8s_modules.gateway.metrics import PRESSURES, PodPressure, pressure_of
from minik8s_modules.module_utils.minik8s.core.memory_events import ROOT, path_of
from minik8s_modules.module_utils.minik8s.pods.huge_pages import UNIFIED
from minik8s_modules.module_utils.minik8s.pods.pod_cgroup import parent_of, slice_of

log = logging.getLogger(__name__)
EVERY = 3
PAUSE = 20
"""Readings of pods, before a node without such files is asked again."""
_PLACES: tuple[Callable[[str, str], str], ...] = (
    lambda node, uid: ROOT + path_of(slice_of(node, uid)),
    lambda node, uid: ROOT + parent_of(node, uid),
    lambda node, uid: f"{ROOT}/{UNIFIED}{parent_of(node, uid)}",
)


class PodPressures:
    """What the pods of one node told last; used by one thread. ``read`` returns a file's content, as a Link's does."""

    def __init__(self, node: str, read: Callable[[str], bytes]) -> None:
        self._node = node
        self._read = read
        self._place: Callable[[str, str], str] | None = None
        self._number = self._pause = 0
        self._last: dict[str, PodPressure] = {}

    def of(self, uids: Collection[str], at_s: float) -> Mapping[str, PodPressure]:
        """Return what the pods told last, by UID.

        Raises:
            NodeUnreachable: the node could not be asked.
        """
        due, self._number = self._number % EVERY == 0, self._number + 1
        if due and uids and self._knows_place(uids):
            told = {uid: self._told(self._place, uid) for uid in uids}
            self._last = {uid: PodPressure(at_s, found) for uid, found in told.items() if found}
            self._place = self._place if self._last else None  # Docker may have been given another driver
        return {uid: found for uid, found in self._last.items() if uid in uids}

    def _knows_place(self, uids: Collection[str]) -> bool:
        """Find where the pods' cgroups are, by the first one that is there."""
        if self._place is None and self._pause == 0:
            self._place = next((place for place in _PLACES if any(self._told(place, uid) for uid in uids)), None)
            self._pause = PAUSE if self._place is None else 0
            if self._place is None:
                log.info("%s: tells no pressure of its pods, as version 1 of cgroups does not", self._node)
        self._pause = max(0, self._pause - 1)
        return self._place is not None

    def _told(self, place: Callable[[str, str], str] | None, uid: str) -> Mapping[str, JsonObject]:
        """Return what a pod's cgroup tells, {} of one that is not there, or no more."""
        if place is None:
            return {}
        folder = place(self._node, uid)
        try:
            return {name: pressure_of(self._read(f"{folder}/{name}.pressure")) for name in PRESSURES}
        except FileRefused:
            return {}
        except (KeyError, ValueError) as error:
            log.warning("%s: pressure of the pod %s cannot be read: %r", self._node, uid, error)
            return {}
