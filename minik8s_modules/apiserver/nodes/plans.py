"""``POST /apis/minik8s.io/v1/plans``: what would objects change, in the API and on every node? Nothing is stored.

Each object is taken as apply or delete would take it (``planned_objects.py``): a new one is defaulted, completed,
admitted and validated as create does; an existing one is merged by apply's three-way rule and validated as update does;
a deletion is decided as delete decides it. What that changes goes to the reconciler of every shard (mutual TLS;
each writes its address on its Lease as ``minik8s.io/plan-endpoint``), which decide with their own pure
functions and run their modules in check mode. Their answers are merged; a reconciler that does not answer is
named in ``status.messages``. How they are asked: ``reconcilers.py``.

Rights: who plans must hold the verbs of what he plans (create, patch or delete), as for a dry run; of the answer he is
shown what he may read (``plan_view.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import NODE
from minik8s_modules.api.objects import JsonObject, name, spec
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.nodes.plan_view import shown, sight_of
from minik8s_modules.apiserver.nodes.planned_objects import PlannedObject, PlannedObjects
from minik8s_modules.apiserver.nodes.planned_pods import PlannedPods
from minik8s_modules.apiserver.nodes.reconcilers import Reconcilers, ask_all


def answer(backend: Backend, reconcilers: Reconcilers | None, plan: JsonObject, options: Options) -> JsonObject:
    """Return the Plan with its status.

    Raises:
        StatusError: an object cannot be read, or the requester may not do what he plans; with its place in front.
    """
    wanted = spec(plan)
    planned = PlannedObjects(backend, options)
    steps = [*_located("objects", wanted, planned.applied), *_located("deleted", wanted, planned.deleted)]
    operations = [step.operation for step in steps if step.operation is not None]
    question: JsonObject = {"objects": operations, "nodes": wanted.get("nodes") or []}
    if not operations and (wanted.get("objects") or wanted.get("deleted")):
        # nothing would change anywhere; asked without operations, a reconciler answers with the drift
        nodes, _ = backend.cache.list(NODE.prefix)
        found: JsonObject = {"nodes": {name(node.object): {"diff": {}, "steps": []} for node in nodes}, "messages": []}
    else:
        found = ask_all(backend.cache, reconcilers, question, PlannedPods(planned.backend, options))
        if not operations:
            found["messages"] += _unseen(backend, question["nodes"], found)
    found["messages"] = [*(step.message for step in steps if step.message is not None), *found["messages"]]
    found["objects"] = [*(step.row for step in steps if step.row is not None), *planned.taken_along()]
    return {**plan, "status": shown(found, sight_of(options.requester, planned.kinds))}


def _located(field: str, wanted: JsonObject, take: Callable[[JsonObject], PlannedObject]) -> Iterator[PlannedObject]:
    for index, obj in enumerate(wanted.get(field) or []):
        try:
            yield take(obj)
        except StatusError as error:
            error.message = f"spec.{field}[{index}]: {error.message}"
            raise


def _unseen(backend: Backend, asked: Sequence[str], found: JsonObject) -> list[JsonObject]:
    """Return a message for each node whose drift nobody told: no inventory of a running reconciler has it."""
    nodes, _ = backend.cache.list(NODE.prefix)
    names = {name(node.object) for node in nodes}
    answered = {each.get("node") for each in found["messages"]} | found["nodes"].keys()
    why = "was not planned: no reconciler that answered has it in its inventory"
    return [
        {"text": f"node {node} {why}", "about": []}
        for node in sorted(names & set(asked) if asked else names)
        if node not in answered
    ]
