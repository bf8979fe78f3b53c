"""What stands around the objects that are asked about, read when a check wants it, and once.

For one object single requests are made. For many (``scope`` set) each kind is listed once, so that the number of
requests does not grow with the objects. What may not be read is noted in ``unread``: then nobody may say that all is
well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound, StatusError
from minik8s_modules.api.field_selectors import exactly
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import CONFIG_MAP, EVENT, POD, SECRET
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.selectors import parse_label_selector
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.api import ApiClient, resource_path, warnings_of, with_query

_LINE_LIMIT = 300
_SINGLE = frozenset({SECRET, CONFIG_MAP})
"""Kinds that are large or secret: no more of them are read than are asked about."""
_OK = 200
_CHANGE = b'{"metadata": {"annotations": {"minik8s.io/asked-by": "why"}}}'


class Around:
    """Reads of one cluster.

    Args:
        client: who asks.
        scope: None for single requests; else the namespace that is listed, "" for all of them.
        now: the time by this machine.
    """

    def __init__(self, client: ApiClient, scope: str | None = None, now: datetime | None = None) -> None:
        self.now = now or datetime.now(UTC)
        self.unread: set[str] = set()
        self.client = client
        self._scope = scope
        self._single: dict[tuple[Kind, str, str], JsonObject | None] = {}
        self._lists: dict[tuple[Kind, str, str, str], list[JsonObject]] = {}
        self._by_key: dict[Kind, Mapping[objects.Key, JsonObject]] = {}
        self._aside: Around | None = None

    def aside(self) -> Around:
        """Return reads for what is told besides: that they are refused leaves nothing unchecked."""
        if self._aside is None:
            self._aside = Around(self.client, self._scope, self.now)
        return self._aside

    def get(self, kind: Kind, name: str, namespace: str = "") -> JsonObject | None:
        """Return the object, None where there is none or it may not be read (see ``lacks``)."""
        listed = self._scope is not None and kind not in _SINGLE
        if listed and (not kind.namespaced or self._scope in ("", namespace)):
            if kind not in self._by_key:
                self._by_key[kind] = {objects.key(each): each for each in self.all(kind, self._scope or "")}
            return self._by_key[kind].get(objects.Key(namespace if kind.namespaced else "", name))
        asked = (kind, namespace, name)
        if asked not in self._single:
            self._single[asked] = self._get(kind, name, namespace)
        return self._single[asked]

    def _get(self, kind: Kind, name: str, namespace: str) -> JsonObject | None:
        try:
            return self.client.get(kind, name, namespace)
        except NotFound:
            return None
        except StatusError:
            self.unread.add(kind.plural)
            return None

    def lacks(self, kind: Kind, name: str, namespace: str = "") -> bool:
        """Return whether there is no such object, as far as that may be known."""
        return self.get(kind, name, namespace) is None and kind.plural not in self.unread

    def all(self, kind: Kind, namespace: str = "", labels: str = "", fields: str = "") -> list[JsonObject]:
        """Return the objects of a namespace, of all where it is ""; [] where they may not be read."""
        asked = (kind, namespace if kind.namespaced else "", labels, fields)
        if asked not in self._lists:
            try:
                self._lists[asked] = self.client.list(kind, asked[1], labels, fields).items
            except StatusError:
                self.unread.add(kind.plural)
                self._lists[asked] = []
        return self._lists[asked]

    def selected(self, kind: Kind, namespace: str, labels: str) -> list[JsonObject]:
        """Return the objects of a namespace that a label selector chooses, written as in requests."""
        if self._scope is None:
            return self.all(kind, namespace, labels)
        selector = parse_label_selector(labels)
        return [one for one in self.of_namespace(kind, namespace) if selector.matches(objects.labels(one))]

    def of_namespace(self, kind: Kind, namespace: str) -> list[JsonObject]:
        """Return the objects of a namespace, [] where they may not be read."""
        if self._scope in ("", namespace):
            return [one for one in self.all(kind, self._scope) if objects.namespace(one) == namespace]
        return self.all(kind, namespace)

    def events(self, obj: JsonObject) -> list[JsonObject]:
        """Return the Events about an object, oldest first; [] where they may not be read."""
        uid, namespace = objects.uid(obj), objects.namespace(obj)
        if self._scope is None:
            wanted = exactly(involvedObject__name=objects.name(obj), involvedObject__uid=uid)
            return _ordered(self.all(EVENT, namespace, fields=wanted))
        found = self.of_namespace(EVENT, namespace) if namespace else self.all(EVENT, self._scope)
        return _ordered([each for each in found if objects.dig(each, "involvedObject", "uid") == uid])

    def warnings(self, kind: Kind, obj: JsonObject) -> list[str]:
        """Return what the API server warns of an object as it stands; [] for who may not write it.

        It says so of every write that changes something, so it is asked for one that is not stored.
        """
        path = with_query(resource_path(kind, objects.namespace(obj), objects.name(obj)), {"dryRun": "All"})
        try:
            answer = self.client.raw("PATCH", path, _CHANGE, {"Content-Type": "application/merge-patch+json"})
        except (StatusError, TemporaryError):
            return []
        return list(warnings_of(answer)) if answer.status == _OK else []

    def last_line(self, pod: JsonObject, container: str) -> str:
        """Return the last line that a container printed before its last end, "" where it is not to be had."""
        query = {"container": container, "previous": "true", "tailLines": 1}
        path = with_query(resource_path(POD, objects.namespace(pod), objects.name(pod), "log"), query)
        try:
            answer = self.client.raw("GET", path)
        except (StatusError, TemporaryError):
            return ""
        lines = answer.data.decode("utf-8", "replace").split("\n") if answer.status == _OK else []
        last = next((line for line in reversed(lines) if line.strip()), "")
        return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in last)[:_LINE_LIMIT]


def _ordered(events: Sequence[JsonObject]) -> list[JsonObject]:
    return sorted(events, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
