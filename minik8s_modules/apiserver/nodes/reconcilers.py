"""Asking reconcilers over mutual TLS what a plan comes to, with their answers as one, and what they counted of a node.

A plan is ``POST ENDPOINT/plan``, what was counted ``GET ENDPOINT/metrics/NODE``. Each reconciler
writes its address on its Lease (``minik8s.io/plan-endpoint``). Those of shards are asked with ``{"objects":
[{"operation", "object"}], "nodes": [names], "others": [names]}`` and answer ``{"nodes": {node: {"diff": {section:
{"before", "after"}}, "about", "steps": [...]}}, "messages": [{"text", "about", "node"?}],
"order": [{"action", "pod", "node", "owner", "about"}], "others": {name: its part}}``; the order is that in which pods
come and go where workloads change, and a message's ``node`` is the one whose part it stands for.
``before`` and ``after`` are facets by key; what ``about`` is for: plan_view.py.

Where controllers would make pods, a reconciler answers a question with ``admits`` with these alone, one of each form
(``made``, by keys of its own), and the ServiceAccounts that controllers would make (``around``). It is asked again with
what admission makes of the pods (``admission``), and how much of the plan's time has gone by (``spent_s``). Where that
leads to pods of other forms, it tells these alone (``further``), until there are none, or for ``_TURNS`` turns.

A node with a reconciler of its own (``others``) may not see what others do: it is asked in a second turn with its part
alone (``foretold``), is known by the name of its serving certificate whatever its Lease says, and answers for itself.
"""

from __future__ import annotations

import http.client
import logging
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import quote, urlsplit

import orjson

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import LEASE
from minik8s_modules.api.objects import JsonObject, name
from minik8s_modules.apiserver.access.node_access import SHARDS
from minik8s_modules.apiserver.http.settings import TlsFiles
from minik8s_modules.apiserver.nodes.kubelets import TimedAnswer
from minik8s_modules.apiserver.nodes.plan_view import about
from minik8s_modules.store.cache import WatchCache

log = logging.getLogger(__name__)
T = TypeVar("T")

ENDPOINT = "minik8s.io/plan-endpoint"
# below the deadline of a request (server.py), so that the answer still gets out
ANSWER_S = 45.0
LEAST_S = 5.0
METRICS_S = 5.0
CONNECT_S = 5.0
_LARGEST_ANSWER = 16 << 20
_LARGEST_METRICS = 1 << 20
_MOST_MESSAGES = 1000
_AT_ONCE = 16
_TURNS = 5
_PIECE = 64 << 10


class Endpoint(NamedTuple):
    """A reconciler as its Lease names it; ``node`` is the one it is of, "" for a shard's."""

    lease: str
    url: str
    node: str = ""


Admit = Callable[[JsonObject, Sequence[JsonObject], float], JsonObject]
"""Returns, until a time of ``time.monotonic()``, what admission makes of pods that controllers would create, beside the
ServiceAccounts that they would create (planned_pods.py)."""


class Reconcilers(Protocol):
    """How reconcilers are asked."""

    def ask(self, endpoint: Endpoint, question: JsonObject, within_s: float) -> JsonObject:
        """Return the reconciler's answer. Raises OSError or ValueError when there is no usable one."""

    def metrics(self, endpoint: Endpoint, node: str) -> str | None:
        """Return what the reconciler counted of a node, None where it leads another's shard.

        Raises OSError or ValueError when there is no usable answer.
        """


class HttpsReconcilers:
    """Asks over mutual TLS, with the API server's client certificate."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files

    def ask(self, endpoint: Endpoint, question: JsonObject, within_s: float) -> JsonObject:
        """Return the reconciler's answer; see ``Reconcilers``."""
        asked = _Request("POST", "plan", orjson.dumps(question))
        return _usable(*self._answer(endpoint, asked, within_s, _LARGEST_ANSWER))

    def metrics(self, endpoint: Endpoint, node: str) -> str | None:
        """Return what the reconciler counted of a node; see ``Reconcilers``."""
        asked = _Request("GET", f"metrics/{quote(node, safe='')}")
        status, data = self._answer(endpoint, asked, METRICS_S, _LARGEST_METRICS)
        if status == 404:  # noqa: PLR2004 - the status
            return None
        _check(status, data, _LARGEST_METRICS)
        return data.decode()

    def _answer(self, endpoint: Endpoint, asked: _Request, within_s: float, largest: int) -> tuple[int, bytes]:
        """Return the status and at most a byte more than ``largest``.

        A node may take the question, and give the answer, a byte at a time: ``within_s`` is for both. Raises OSError.
        """
        parts = urlsplit(endpoint.url)
        host = parts.hostname or ""
        context = ssl.create_default_context(cafile=str(self._files.ca))
        context.hostname_checks_common_name = False  # it names a user; a server's names are alternative names
        context.load_cert_chain(self._files.cert, self._files.key)
        named = f"{endpoint.node}.node.minik8s.internal" if endpoint.node else host
        until_s = time.monotonic() + within_s
        with socket.create_connection((host, parts.port or 443), CONNECT_S) as plain:
            connection = context.wrap_socket(plain, server_hostname=named)
            try:
                _send(connection, asked.head(host, parts.path.rstrip("/")) + asked.body, until_s)
                timed = TimedAnswer(connection, max(0.0, until_s - time.monotonic()))
                answer = http.client.HTTPResponse(timed)  # type: ignore[arg-type]  # it asks for no more
                answer.begin()
                return answer.status, answer.read(largest + 1)
            except http.client.HTTPException as error:
                raise OSError(f"its answer is not HTTP: {error}") from error
            finally:
                connection.close()


class _Request(NamedTuple):
    """What is asked of a reconciler."""

    method: str
    path: str
    body: bytes = b""

    def head(self, host: str, prefix: str) -> bytes:
        """Return the request's head."""
        lines = [f"{self.method} {prefix}/{self.path} HTTP/1.1", f"Host: {host}", "Connection: close"]
        if self.body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(self.body)}"]
        return "\r\n".join([*lines, "", ""]).encode()


def _send(connection: socket.socket, data: bytes, until_s: float) -> None:
    """Send all. Raises OSError: TimeoutError where it is not taken in time."""
    rest = memoryview(data)
    while rest:
        connection.settimeout(max(0.001, until_s - time.monotonic()))
        rest = rest[connection.send(rest[:_PIECE]) :]


def _check(status: int, data: bytes, largest: int) -> None:
    if status != 200:  # noqa: PLR2004 - the status
        raise ValueError(f"it answered {status}: {data[:300].decode(errors='replace')}")
    if len(data) > largest:
        raise ValueError(f"its answer is larger than {largest} bytes")


def _usable(status: int, data: bytes) -> JsonObject:
    _check(status, data, _LARGEST_ANSWER)
    answer = orjson.loads(data)
    if not isinstance(answer, dict) or not isinstance(answer.get("nodes"), dict):
        raise ValueError("its answer has no mapping of nodes")  # noqa: TRY004 - bad content, not a bad call
    made, around = answer.get("made", {}), answer.get("around", [])
    if not isinstance(made, dict) or not all(map(_is_object, made.values())):
        raise ValueError("its answer has pods that are none")
    if not isinstance(around, list) or not all(map(_is_object, around)):
        raise ValueError("its answer has ServiceAccounts that are none")
    return answer


def _is_object(found: object) -> bool:
    return isinstance(objects.dig(found, "metadata"), dict)


def endpoints(cache: WatchCache) -> list[Endpoint]:
    """Return the reconcilers that say where they can be asked."""
    leases, _ = cache.list(f"{LEASE.prefix}{SHARDS[0]}/")
    found = [(name(item.object), objects.annotations(item.object).get(ENDPOINT, "")) for item in leases]
    return [
        Endpoint(lease, url, lease.removeprefix(SHARDS[1]) if lease.startswith(SHARDS[1]) else "")
        for lease, url in found
        if url.startswith("https://")
    ]


def metrics_of(cache: WatchCache, reconcilers: Reconcilers | None, node: str) -> str:
    """Return what the reconciler of a node counted of it, "" where none tells."""
    known = endpoints(cache)
    own = [each for each in known if each.node == node]
    for endpoint in own or [each for each in known if not each.node]:
        try:
            found = reconcilers.metrics(endpoint, node) if reconcilers is not None else None
        except (OSError, ValueError) as error:
            log.warning("reconciler %s at %s did not answer for node %s: %s", endpoint.lease, endpoint.url, node, error)
            continue
        if found is not None:
            return found
    return ""


def ask_all(cache: WatchCache, reconcilers: Reconcilers | None, question: JsonObject, admit: Admit) -> JsonObject:
    """Return what all reconcilers answer to ``question`` (``{"objects", "nodes"}``) as one answer.

    ``admit`` admits the pods that controllers would make.
    """
    known = endpoints(cache)
    if reconcilers is None:
        return _merged([], [_note("this API server has no client certificate for reconcilers (reconciler_client)")])
    if not known:
        return _merged([], [_note("no reconciler is running: no Lease in kube-system carries " + ENDPOINT)])
    begun_s = time.monotonic()
    shards = [each for each in known if not each.node]
    asked = question["nodes"]
    alone = [each for each in known if each.node and (not asked or each.node in asked)]
    if not question["objects"]:
        return _merged(_ask_each(reconcilers, [(each, question) for each in (*shards, *alone)], ANSWER_S), [])
    question = question | ({"others": [each.node for each in alone]} if alone else {})
    answers = _together(lambda shard: _ask_in_turns(reconcilers, shard, question, admit, begun_s), shards)
    forwarded: JsonObject = next((each["others"] for each in answers if isinstance(each.get("others"), dict)), {})
    second = [
        (each, {"objects": [], "nodes": [each.node], "foretold": forwarded[each.node]})
        for each in alone
        if each.node in forwarded
    ]
    unknown = [each.node for each in alone if each.node not in forwarded]
    told_nothing = "no reconciler of the control plane answered what would change there"
    messages = [_note(f"node {node}: {told_nothing}", node=node) for node in unknown]
    return _merged([*answers, *_ask_each(reconcilers, second, _left_s(begun_s))], messages)


def _ask_each(
    reconcilers: Reconcilers, questions: Sequence[tuple[Endpoint, JsonObject]], within_s: float
) -> list[JsonObject]:
    return _together(lambda one: _ask(reconcilers, one[0], one[1], within_s), questions)


def _together(ask: Callable[[T], JsonObject], those: Sequence[T]) -> list[JsonObject]:
    with ThreadPoolExecutor(max_workers=min(len(those) or 1, _AT_ONCE)) as pool:
        return list(pool.map(ask, those))


def _left_s(begun_s: float) -> float:
    """Return how long a further turn may take."""
    return max(LEAST_S, ANSWER_S - _spent_s(begun_s))


def _spent_s(begun_s: float) -> float:
    return time.monotonic() - begun_s


def _ask_in_turns(
    reconcilers: Reconcilers, shard: Endpoint, question: JsonObject, admit: Admit, begun_s: float
) -> JsonObject:
    """Return a shard's answer; it says first which pods controllers would make, and no shard waits for another."""
    admission: JsonObject = {"pods": {}, "quotas": []}
    for turn in range(_TURNS):
        # one of a former release does not know "further", and tells all pods again with "admits"
        asked = {"admission": admission, "further": True, "spent_s": _spent_s(begun_s)} if turn else {"admits": True}
        answer = _ask(reconcilers, shard, {**question, **asked}, _left_s(begun_s))
        if "made" not in answer:
            return answer if turn else _with_note(answer, shard)
        if _spent_s(begun_s) > ANSWER_S - 2 * LEAST_S:
            break  # what is left is for one more answer
        admission = admit(answer["made"], answer.get("around", []), begun_s + ANSWER_S - LEAST_S)
    again = {**question, "admission": admission, "spent_s": _spent_s(begun_s)}
    return _ask(reconcilers, shard, again, _left_s(begun_s))


def _with_note(answer: JsonObject, shard: Endpoint) -> JsonObject:
    """Say it where pods come that no reconciler has told before: one of a former release shows them as declared."""
    order, messages = answer.get("order"), answer.get("messages")
    if not (isinstance(order, list) and isinstance(messages, list) and any(map(_is_made, order))):
        return answer
    text = f"reconciler {shard.lease} is older than this API server: it shows new Pods of workloads without admission"
    return {**answer, "messages": [*messages, _note(text)]}


def _is_made(row: object) -> bool:
    return isinstance(row, dict) and row.get("action") == "create" and bool(row.get("owner"))


def _ask(reconcilers: Reconcilers, endpoint: Endpoint, question: JsonObject, within_s: float) -> JsonObject:
    try:
        answer = reconcilers.ask(endpoint, question, within_s)
    except (OSError, ValueError) as error:
        log.warning("reconciler %s at %s did not answer a plan: %s", endpoint.lease, endpoint.url, error)
        why = f"reconciler {endpoint.lease} at {endpoint.url} did not answer: {error}"
        return {"nodes": {}, "messages": [_note(why, about(LEASE, SHARDS[0], endpoint.lease))]}
    if endpoint.node:
        own, reported = answer["nodes"].get(endpoint.node), answer.get("messages")
        messages = (
            [_of_own(row, endpoint.node) for row in reported[:_MOST_MESSAGES]] if isinstance(reported, list) else []
        )
        return {"nodes": {endpoint.node: own}, "messages": messages}
    return answer


def _of_own(row: Any, node: str) -> Any:
    """Return a message of a node's own reconciler, which speaks for no other node."""
    if isinstance(row, dict) and row.get("node", node) != node:
        return {field: value for field, value in row.items() if field != "node"}
    return row


def _note(text: str, subjects: Sequence[JsonObject] = (), node: str = "") -> JsonObject:
    return {"text": text, "about": [*subjects], **({"node": node} if node else {})}


def _is_plan(found: object) -> bool:
    """Return whether a node's answer has the parts of one."""
    if not isinstance(found, dict) or not isinstance(found.get("steps"), list):
        return False
    diff, subjects = found.get("diff"), found.get("about") or {}
    if not isinstance(diff, dict) or not isinstance(subjects, dict):
        return False
    return all(map(_is_facets, diff.values())) and all(isinstance(each, dict) for each in subjects.values())


def _is_note(found: object) -> bool:
    return isinstance(found, dict) and isinstance(found.get("text"), str)


def _is_facets(found: object) -> bool:
    return isinstance(found, dict) and all(isinstance(found.get(when), dict) for when in ("before", "after"))


def _merged(answers: Sequence[JsonObject], messages: list[JsonObject]) -> JsonObject:
    nodes: JsonObject = {}
    merged = list(messages)
    for each in answers:
        nodes.update({name: part for name, part in each["nodes"].items() if _is_plan(part)})
        # shards see the same cluster: what all tell is told once
        rows = each.get("messages")
        merged += [row for row in rows if _is_note(row) and row not in merged] if isinstance(rows, list) else []
    order = next((each["order"] for each in answers if isinstance(each.get("order"), list) and each["order"]), None)
    return {"nodes": nodes, "messages": merged, **({"order": order} if order else {})}
