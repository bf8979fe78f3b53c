"""A cluster in memory that also tells logs and /readyz, as ``why`` asks for them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qs, urlsplit

from urllib3._collections import HTTPHeaderDict

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import KINDS, NODE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.causes.checks import Verdict, judge
from minik8s_modules.cli.causes.surroundings import Around
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.fake import FakeApi

SPACE = "shop"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Answer(NamedTuple):
    """What ``ApiClient.raw`` returns, as far as it is read."""

    status: int
    data: bytes
    headers: HTTPHeaderDict = HTTPHeaderDict()


class LoggedApi(FakeApi):
    """Answers ``raw`` for logs (``POD/CONTAINER``: text) and /readyz (ready unless a line has ``[-]``)."""

    def __init__(
        self, logs: dict[str, str] | None = None, readyz: str = "", unreachable: str = "", date: str = ""
    ) -> None:
        super().__init__()
        self.warned: list[str] = []
        """What is warned of on each write that stores nothing."""
        self._logs, self._readyz, self._unreachable, self._date = logs or {}, readyz, unreachable, date

    def around(self, scope: str | None = None) -> Around:
        """Return what ``why`` reads of it, at ``NOW``."""
        return Around(cast("ApiClient", self), scope, NOW)

    def raw(self, method: str, path: str, *_: Any) -> Answer:
        """Return a log, whether the server is ready, or what it warns of."""
        if self._unreachable:
            raise ApiUnreachable(self._unreachable)
        if path.startswith("/readyz"):
            headers = HTTPHeaderDict({"Date": self._date} if self._date else {})
            return Answer(500 if "[-]" in self._readyz else 200, self._readyz.encode(), headers)
        asked = urlsplit(path)
        if method == "PATCH":
            assert parse_qs(asked.query) == {"dryRun": ["All"]}
            return Answer(200, b"{}", HTTPHeaderDict([("Warning", f'299 - "{text}"') for text in self.warned]))
        named = f"{asked.path.split('/')[-2]}/{parse_qs(asked.query)['container'][0]}"
        return Answer(200, self._logs[named].encode()) if named in self._logs else Answer(400, b"{}")


def ready_node(name: str = "n1") -> JsonObject:
    """Return a node that is ready."""
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def put(api: FakeApi, *found: JsonObject) -> list[JsonObject]:
    """Keep objects and return them; where none is given, the namespace is ``shop`` and the node ``n1`` ready."""
    given = [*found]
    if not any(one["kind"] == "Node" and objects.name(one) == "n1" for one in given):
        given.append(ready_node())
    kept = []
    for one in given:
        one.setdefault("apiVersion", "v1")
        kind = KINDS.by_api_version(one["apiVersion"], one["kind"])
        assert kind is not None, one
        if kind.namespaced:
            one["metadata"].setdefault("namespace", SPACE)
        kept.append(api.create(kind, one))
    assert api.list(NODE).items
    return kept


def verdict_on(found: JsonObject, *others: JsonObject, many: bool = False, **given: Any) -> Verdict:
    """Return the verdict on the first object; ``many``: as one of several that are asked about."""
    api = LoggedApi(**given)
    first = put(api, found, *others)[0]
    return judge(first, api.around("" if many else None))
