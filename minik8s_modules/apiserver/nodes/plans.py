"""``POST /apis/minik8s.io/v1/plans``: what would objects change on every node? Nothing is stored.

Each object is taken as apply or delete would take it: a new one is defaulted, completed, admitted and
validated as create does; an existing one is merged by apply's three-way rule and validated as update does; a
deletion is decided as delete decides it. The operations go to the reconciler of every shard (mutual TLS;
each writes its address on its Lease as ``minik8s.io/plan-endpoint``), which decide with their own pure
functions and run their modules in check mode. Their answers are merged; a reconciler that does not answer is
named in ``status.messages``. How they are asked: ``reconcilers.py``.

Rights: who plans must hold the verbs of what he plans (create, patch or delete), as for a dry run; of the answer he is
shown what he may read (``plan_view.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from minik8s_modules.api import size_limits
from minik8s_modules.api.defaulting.conversion import from_storage, stored_kind
from minik8s_modules.api.errors import BadRequest, NotFound, StatusError
from minik8s_modules.api.kinds import KINDS, NAMESPACE, NODE, SERVICE, Kind
from minik8s_modules.api.lifecycle import strategy
from minik8s_modules.api.merging.apply import next_object
from minik8s_modules.api.objects import JsonObject, name, namespace, spec
from minik8s_modules.apiserver.http import incoming
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.nodes.plan_view import shown, sight_of
from minik8s_modules.apiserver.nodes.reconcilers import Reconcilers, ask_all
from minik8s_modules.apiserver.verbs import writing

Operation = Callable[[JsonObject], JsonObject | None]


def answer(backend: Backend, reconcilers: Reconcilers | None, plan: JsonObject, options: Options) -> JsonObject:
    """Return the Plan with its status.

    Raises:
        StatusError: an object would be refused; the same error apply or delete would give, with its place in
        front.
    """
    wanted = spec(plan)
    messages: list[JsonObject] = []
    services = (f"{namespace(obj) or 'default'}/{name(obj)}" for obj in _planned(wanted, SERVICE))
    options = options._replace(
        dry_run=True,
        assumed_namespaces=frozenset(map(name, _planned(wanted, NAMESPACE))),
        assumed_services=frozenset(services),
    )
    operations = [
        *_located("objects", wanted, lambda obj: _applied(backend, obj, options)),
        *_located("deleted", wanted, lambda obj: _deleted(backend, obj, options, messages)),
    ]
    question: JsonObject = {"objects": operations, "nodes": wanted.get("nodes") or []}
    if not operations and (wanted.get("objects") or wanted.get("deleted")):
        # nothing would change anywhere; asked without operations, a reconciler answers with the drift
        nodes, _ = backend.cache.list(NODE.prefix)
        found: JsonObject = {"nodes": {name(node.object): {"diff": {}, "steps": []} for node in nodes}, "messages": []}
    else:
        found = ask_all(backend.cache, reconcilers, question)
        if not operations:
            found["messages"] += _unseen(backend, question["nodes"], found)
    found["messages"] = [*messages, *found["messages"]]
    return {**plan, "status": shown(found, sight_of(options.asker))}


def _planned(wanted: JsonObject, kind: Kind) -> list[JsonObject]:
    wanted_kind = (kind.api_version, kind.kind)
    return [obj for obj in wanted.get("objects") or [] if (obj.get("apiVersion"), obj.get("kind")) == wanted_kind]


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


def _check(options: Options, verb: str, target: Target) -> None:
    """Raise Forbidden where the asker may not do what he plans: a plan is a dry run, and no way around rights."""
    if options.asker is not None:
        options.asker.access.check(options.asker.user, target.attributes(verb), target.kind)


def _applied(backend: Backend, obj: JsonObject, options: Options) -> JsonObject | None:
    """Return the operation that applying ``obj`` comes to; None when it changes nothing."""
    target = _target_of(obj)
    size_limits.check(obj)
    readable = incoming.readable(target.kind, obj, options)
    item = backend.cache.get(target.kind.key(target.namespace, target.name))
    if item is None:
        _check(options, "create", target._replace(name=""))
        return {"operation": "create", "object": _created(backend, target, readable, options)}
    _check(options, "patch", target)
    changed = writing.change(backend, target, lambda old: next_object(target.kind, old, readable), options)
    if changed.data == item.data:
        return None
    return {"operation": "update", "object": _shown(target.kind, changed.object)}


def _created(backend: Backend, target: Target, obj: JsonObject, options: Options) -> JsonObject:
    collection = Target(target.kind, target.namespace)
    return _shown(target.kind, writing.create(backend, collection, obj, options).object)


def _shown(kind: Kind, obj: JsonObject) -> JsonObject:
    return from_storage(kind, obj)


def _deleted(backend: Backend, obj: JsonObject, options: Options, messages: list[JsonObject]) -> JsonObject | None:
    target = _target_of(obj)
    _check(options, "delete", target)
    try:
        item = backend.get(target)
    except NotFound as error:
        messages.append({"text": error.message, "about": []})  # who may delete it is told so by deleting, too
        return None
    decision = strategy.graceful_deletion(stored_kind(target.kind), item.object, {}, backend.clock.now())
    operation = "delete" if decision.action == "remove" else "update"
    return {"operation": operation, "object": _shown(target.kind, decision.obj)}


def _unseen(backend: Backend, asked: Sequence[str], found: JsonObject) -> list[JsonObject]:
    """Return a message for each node whose drift nobody told: no inventory of a running reconciler has it."""
    nodes, _ = backend.cache.list(NODE.prefix)
    names = {name(node.object) for node in nodes}
    told = " ".join(each["text"] for each in found["messages"])
    why = "was not planned: no reconciler that answered has it in its inventory"
    return [
        {"text": f"node {node} {why}", "about": []}
        for node in sorted(names & set(asked) if asked else names)
        if node not in found["nodes"] and f"node {node} " not in told
    ]
