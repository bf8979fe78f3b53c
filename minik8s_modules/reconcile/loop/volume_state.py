"""What is known of the drivers' volumes on one node: who asks for them, which may be mounted, how large they are."""

from __future__ import annotations

from collections.abc import Iterable

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.storage.attachments import unique_name
from minik8s_modules.module_utils.minik8s.core.paths import CSI_KIND
from minik8s_modules.reconcile.values.values import Entries


class VolumeState:
    """Of one node; not thread-safe."""

    def __init__(self) -> None:
        self.used: dict[str, frozenset[str]] = {}
        """The attached volumes that pods ask for, by the pods' UIDs."""
        self.sizes: dict[str, dict[str, int]] = {}
        """Bytes that drivers have made of volumes, by the pods' UIDs and the volumes' names."""
        self._noted: frozenset[str] | None = None
        """The attached volumes that may be mounted, None while the node has not said."""

    def take(self, result: JsonObject | None) -> set[str]:
        """Take over a result of the section ``volumes``, None for a bad one; return the UIDs of pods it is news for."""
        in_use = (result or {}).get("in_use")
        self._noted = frozenset(in_use) if in_use is not None else None
        news = set()
        for key, seen in ((result or {}).get("status") or {}).items():
            uid, _, name = key.partition("/")
            size_bytes = seen.get("size_bytes") if isinstance(seen, dict) else None
            if isinstance(size_bytes, int) and self.sizes.get(uid, {}).get(name) != size_bytes:
                self.sizes.setdefault(uid, {})[name] = size_bytes
                news.add(uid)
        return news

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self.used.pop(uid, None)
        self.sizes.pop(uid, None)

    def in_use(self, entries: Iterable[Entries], listed: frozenset[str], *, settled: bool) -> frozenset[str]:
        """Return the attached volumes that the node may have mounted by now, or soon.

        ``entries`` are of the section ``volumes``, decided, sent or confirmed. Of the ``listed`` ones one goes only
        when nobody asks for it and the node, asked after that (``settled``), has it no more.
        """
        found = frozenset[str]().union(*self.used.values(), *map(attached_volumes, entries))
        return found | (self._noted if settled and self._noted is not None else listed)


def attached_volumes(entries: Entries) -> frozenset[str]:
    """Return what Nodes call the attached volumes among entries of the section ``volumes``."""
    mine = (one for one in entries.values() if one.get("kind") == CSI_KIND and "publish_context" in one)
    return frozenset(unique_name(str(one["driver"]), str(one["handle"])) for one in mine)
