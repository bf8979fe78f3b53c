"""``POST /apis/minik8s.io/v1/plans``: what would objects change on every node? Nothing is stored.

Each object is taken as apply or delete would take it: a new one is defaulted, completed, admitted and
validated as create does; an existing one is merged by apply's three-way rule and validated as update does; a
deletion is decided as delete decides it. The operations go to the reconciler of every shard (mutual TLS;
each writes its address on its Lease as ``minik8s.io/plan-endpoint``), which decide with their own pure
functions and run their modules in check mode. Their answers are merged; a reconciler that does not answer is
named in ``status.messages``.

Request to a reconciler: ``POST ENDPOINT/plan`` with ``{"objects": [{"operation", "object"}], "nodes":
[names]}``. Answer: ``{"nodes": {node: {"diff": {section: {"before", "after"}}, "steps": [...]}}, "messages":
[], "order": [{"action", "pod", "node", "owner"}]}``; the order in which pods come and go where workloads change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

import orjson
import urllib3
from urllib3.util import Timeout

from minik8s_modules.api import objects, strategy
from minik8s_modules.api.apply import next_object
from minik8s_modules.api.conversion import from_storage, stored_kind
from minik8s_modules.api.errors import BadRequest, NotFound, StatusError
from minik8s_modules.api.kinds import KINDS, LEASE, NAMESPACE, NODE, Kind
from minik8s_modules.api.objects import JsonObject, name, namespace, spec
from minik8s_modules.apiserver import incoming, writing
from minik8s_modules.apiserver.backend import Backend
from minik8s_modules.apiserver.incoming import Options
from minik8s_modules.apiserver.settings import TlsFiles
from minik8s_modules.apiserver.target import Target

log = logging.getLogger(__name__)

ENDPOINT = "minik8s.io/plan-endpoint"
# below the deadline of a request (server.py), so that the answer still gets out
ANSWER_S = 45.0
CONNECT_S = 5.0
_SHARDS_AT_ONCE = 16

_NAMESPACE = (NAMESPACE.api_version, NAMESPACE.kind)
Operation = Callable[[JsonObject], JsonObject | None]


class Endpoint(NamedTuple):
    """A reconciler as its Lease names it."""

    lease: str
    url: str


class Reconcilers(Protocol):
    """How reconcilers are asked."""

    def ask(self, endpoint: Endpoint, question: JsonObject) -> JsonObject:
        """Return the reconciler's answer. Raises OSError or ValueError when there is no usable one."""


class HttpsReconcilers:
    """Asks over mutual TLS, with the API server's client certificate."""

    def __init__(self, files: TlsFiles) -> None:
        self._pool = urllib3.PoolManager(
            cert_file=str(files.cert),
            key_file=str(files.key),
            ca_certs=str(files.ca),
            cert_reqs="CERT_REQUIRED",
            retries=False,
            timeout=Timeout(connect=CONNECT_S, read=ANSWER_S),
        )

    def ask(self, endpoint: Endpoint, question: JsonObject) -> JsonObject:
        """Return the reconciler's answer; see ``Reconcilers``."""
        try:
            response = self._pool.request(
                "POST",
                endpoint.url.rstrip("/") + "/plan",
                body=orjson.dumps(question),
                headers={"Content-Type": "application/json"},
            )
        except urllib3.exceptions.HTTPError as error:
            raise OSError(str(error)) from error
        if response.status != 200:  # noqa: PLR2004 - the status
            raise ValueError(f"it answered {response.status}: {response.data[:300].decode(errors='replace')}")
        answer = orjson.loads(response.data)
        if not isinstance(answer, dict) or not isinstance(answer.get("nodes"), dict):
            raise ValueError("its answer has no map of nodes")  # noqa: TRY004 - bad content, not a bad call
        return answer


def answer(backend: Backend, reconcilers: Reconcilers | None, plan: JsonObject, options: Options) -> JsonObject:
    """Return the Plan with its status.

    Raises:
        StatusError: an object would be refused; the same error apply or delete would give, with its place in
        front.
    """
    wanted = spec(plan)
    messages: list[str] = []
    planned = [obj for obj in wanted.get("objects") or [] if (obj.get("apiVersion"), obj.get("kind")) == _NAMESPACE]
    options = options._replace(dry_run=True, assumed_namespaces=frozenset(map(name, planned)))
    operations = [
        *_located("objects", wanted, lambda obj: _applied(backend, obj, options)),
        *_located("deleted", wanted, lambda obj: _deleted(backend, obj, messages)),
    ]
    question: JsonObject = {"objects": operations, "nodes": wanted.get("nodes") or []}
    if not operations and (wanted.get("objects") or wanted.get("deleted")):
        # nothing would change anywhere; asked without operations, a reconciler answers with the drift
        nodes, _ = backend.cache.list(NODE.prefix)
        status: JsonObject = {"nodes": {name(node.object): {"diff": {}, "steps": []} for node in nodes}, "messages": []}
    else:
        status = _ask_all(backend, reconcilers, question)
        if not operations:
            status["messages"] += _unseen(backend, question["nodes"], status)
    status["messages"] = [*messages, *status["messages"]]
    return {**plan, "status": status}


def _located(field: str, wanted: JsonObject, operation: Operation) -> Iterator[JsonObject]:
    for index, obj in enumerate(wanted.get(field) or []):
        try:
            found = operation(obj)
        except StatusError as error:
            error.message = f"spec.{field}[{index}]: {error.message}"
            raise
        if found is not None:
            yield found


def _target_of(obj: JsonObject) -> Target:
    kind = KINDS.by_api_version(str(obj.get("apiVersion") or ""), str(obj.get("kind") or ""))
    if kind is None or not kind.stored:
        raise BadRequest(f'no matches for kind "{obj.get("kind")}" in version "{obj.get("apiVersion")}"')
    if not isinstance(obj.get("metadata"), dict):
        raise BadRequest("metadata must be an object")
    return Target(kind, (namespace(obj) or "default") if kind.namespaced else "", name(obj))


def _applied(backend: Backend, obj: JsonObject, options: Options) -> JsonObject | None:
    """Return the operation that applying ``obj`` comes to; None when it changes nothing."""
    target = _target_of(obj)
    readable = incoming.readable(target.kind, obj, options)
    try:
        item = backend.get(target)
    except NotFound:
        return {"operation": "create", "object": _created(backend, target, readable, options)}
    changed = writing.change(backend, target, lambda old: next_object(target.kind, old, readable), options)
    if changed.data == item.data:
        return None
    return {"operation": "update", "object": _shown(target.kind, changed.object)}


def _created(backend: Backend, target: Target, obj: JsonObject, options: Options) -> JsonObject:
    collection = Target(target.kind, target.namespace)
    return _shown(target.kind, writing.create(backend, collection, obj, options).object)


def _shown(kind: Kind, obj: JsonObject) -> JsonObject:
    return from_storage(kind, obj)


def _deleted(backend: Backend, obj: JsonObject, messages: list[str]) -> JsonObject | None:
    target = _target_of(obj)
    try:
        item = backend.get(target)
    except NotFound as error:
        messages.append(error.message)
        return None
    decision = strategy.graceful_deletion(stored_kind(target.kind), item.object, {}, backend.clock.now())
    operation = "delete" if decision.action == "remove" else "update"
    return {"operation": operation, "object": _shown(target.kind, decision.obj)}


def endpoints(backend: Backend) -> list[Endpoint]:
    """Return the reconcilers that say where they can be asked."""
    leases, _ = backend.cache.list(f"{LEASE.prefix}kube-system/")
    found = [(item.object, objects.annotations(item.object).get(ENDPOINT, "")) for item in leases]
    return [Endpoint(name(lease), url) for lease, url in found if url.startswith("https://")]


def _ask_all(backend: Backend, reconcilers: Reconcilers | None, question: JsonObject) -> JsonObject:
    shards = endpoints(backend)
    if reconcilers is None:
        return _merged([], ["this API server has no client certificate for reconcilers (reconciler_client)"])
    if not shards:
        return _merged([], ["no reconciler is running: no Lease in kube-system carries " + ENDPOINT])
    with ThreadPoolExecutor(max_workers=min(len(shards), _SHARDS_AT_ONCE)) as pool:
        answers = list(pool.map(lambda shard: _ask(reconcilers, shard, question), shards))
    return _merged(answers, [])


def _ask(reconcilers: Reconcilers, shard: Endpoint, question: JsonObject) -> JsonObject:
    try:
        return reconcilers.ask(shard, question)
    except (OSError, ValueError) as error:
        log.warning("reconciler %s at %s did not answer a plan: %s", shard.lease, shard.url, error)
        return {"nodes": {}, "messages": [f"reconciler {shard.lease} at {shard.url} did not answer: {error}"]}


def _unseen(backend: Backend, asked: Sequence[str], status: JsonObject) -> list[str]:
    """Return a message for each node whose drift nobody told: no inventory of a running reconciler has it."""
    nodes, _ = backend.cache.list(NODE.prefix)
    names = {name(node.object) for node in nodes}
    told = " ".join(status["messages"])
    return [
        f"node {node} was not looked at: it is in the inventory of no reconciler that answered"
        for node in sorted(names & set(asked) if asked else names)
        if node not in status["nodes"] and f"node {node} " not in told
    ]


def _merged(answers: Sequence[JsonObject], messages: list[str]) -> JsonObject:
    nodes: JsonObject = {}
    told = list(messages)
    for each in answers:
        nodes.update(each["nodes"])
        # shards see the same cluster: what all tell is told once
        told += [text for text in map(str, each.get("messages") or []) if text not in told]
    order = next((each["order"] for each in answers if each.get("order")), None)
    return {"nodes": nodes, "messages": told, **({"order": order} if order else {})}
