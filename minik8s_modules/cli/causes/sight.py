"""What whoever asks may see of a cluster: all of it, or the namespaces that a question concerns.

Nobody needs rights in all namespaces to follow a request within one. What may not be read is noted, so that an answer
without it can say so.
"""

from __future__ import annotations

from collections.abc import Iterable

from minik8s_modules.api.errors import Forbidden, NotFound
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.client.api import ApiClient


class Sight:
    """Reads of one cluster, each kind once.

    Args:
        client: who asks.
        namespaces: those that are looked at where all may not be listed.
    """

    def __init__(self, client: ApiClient, namespaces: Iterable[str]) -> None:
        self.client = client
        self.unread: dict[str, str] = {}
        """What may not be read, in words, by the plural of its kind."""
        self._namespaces = sorted({*filter(None, namespaces)})
        self._listed: dict[Kind, list[JsonObject]] = {}
        self._seen: dict[Kind, list[str]] = {}

    @property
    def among(self) -> str:
        """What limits the statement that there is no such object; "" where nothing does."""
        return " that you may read" if self.unread else ""

    def hides(self, kind: Kind, namespace: str = "") -> bool:
        """Return whether there may be objects of a kind, or those of a namespace, that may not be read."""
        return kind.plural in self.unread and not (namespace and namespace in self._seen.get(kind, ()))

    def all(self, kind: Kind) -> list[JsonObject]:
        """Return the objects of all namespaces, or of those that may be listed."""
        if kind not in self._listed:
            try:
                self._listed[kind] = self.client.list(kind).items
            except Forbidden:
                self._listed[kind] = self._within(kind)
        return self._listed[kind]

    def _within(self, kind: Kind) -> list[JsonObject]:
        found, seen = list[JsonObject](), self._seen.setdefault(kind, [])
        for namespace in self._namespaces if kind.namespaced else ():
            try:
                found += self.client.list(kind, namespace).items
            except Forbidden:
                continue
            seen.append(namespace)
        beyond = f" of other namespaces than {' and '.join(seen)}" if seen else ""
        self.unread[kind.plural] = f"{kind.plural}{beyond}"
        return found

    def get(self, kind: Kind, key: Key) -> JsonObject | None:
        """Return an object; None where there is none, or where it may not be read."""
        try:
            return self.client.get(kind, key.name, key.namespace)
        except NotFound:
            return None
        except Forbidden:
            self.unread.setdefault(kind.plural, f"{kind.plural}{_of(key.namespace)}")
            return None

    def of(self, kind: Kind, namespace: str, fields: str = "") -> list[JsonObject] | None:
        """Return the objects of a namespace that a field selector chooses; None where they may not be read."""
        try:
            return self.client.list(kind, namespace, field_selector=fields).items
        except Forbidden:
            noted = [self.unread[kind.plural]] if kind.plural in self.unread else []
            self.unread[kind.plural] = ", ".join([*noted, f"{kind.plural}{_of(namespace)}"])
            return None


def _of(namespace: str) -> str:
    return f" of namespace {namespace}" if namespace else ""
