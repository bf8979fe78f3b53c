"""Admission by programs outside: what Mutating- and ValidatingWebhookConfigurations do to a write.

Mutating webhooks are asked one after the other, each about the object as the last one left it. When one has changed it,
the server's own plugins look again, and then those webhooks that want to be asked again (reinvocationPolicy). Whatever
a patch says, the object keeps its name, its namespace and what the server owns of its metadata, and a write through a
subresource changes no more than the subresource has. Validating webhooks are asked all at once, when everything else
has been decided. Source: apiserver ``pkg/admission/plugin/webhook``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import orjson

from minik8s_modules.api.defaulting.conversion import from_storage, stored_kind, to_storage
from minik8s_modules.api.defaulting.defaults import apply_defaults
from minik8s_modules.api.errors import InternalError, StatusError
from minik8s_modules.api.kinds import NAMESPACE, Kind
from minik8s_modules.api.lifecycle import strategy
from minik8s_modules.api.merging.patch import json_patch
from minik8s_modules.api.objects import JsonObject, metadata, name, uid
from minik8s_modules.apiserver.admission.scales import SCALE, scale_of, set_replicas
from minik8s_modules.apiserver.http import incoming
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.http.write import Write
from minik8s_modules.apiserver.webhooks import calls
from minik8s_modules.apiserver.webhooks.calls import Looking, Outcome
from minik8s_modules.apiserver.webhooks.reviews import ReviewedWrite
from minik8s_modules.apiserver.webhooks.rules import Match, Operation
from minik8s_modules.base.clock import parse_rfc3339

_OPERATIONS: dict[str, Operation] = {
    "create": "CREATE", "update": "UPDATE", "delete": "DELETE", "connect": "CONNECT",
}  # fmt: skip
# what no webhook changes; a patch of it is taken back
_OWNED = (
    "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation",
    "resourceVersion", "managedFields",
)  # fmt: skip


def concerned(backend: Backend, target: Target, operation: str, options: Options) -> bool:
    """Return whether a webhook may look at such a write."""
    return options.requester is not None and not options.reviewed and may_look(backend, target, operation)


def may_look(backend: Backend, target: Target, operation: str) -> bool:
    """Return whether a webhook, or a policy, may look at such a write of a client."""
    cache, kinds, meant = backend.cache, backend.kinds.registry, _OPERATIONS[operation]
    if backend.policies.some(cache):
        place = (target.kind, target.subresource, meant, target.namespace, target.name)
        if backend.policies.concerned(
            cache, ReviewedWrite(*place, {}, dry_run=False, options=None, shown=target.kind), kinds
        ):
            return True
    asked = (cache, target.kind, target.subresource, meant, kinds)
    return any(backend.webhooks.matching(type_, *asked) for type_ in ("admit", "validating"))


def mutate(write: Write, again: Callable[[], None]) -> None:
    """Let mutating webhooks change the new object, in place; ``again`` has the server's own plugins look once more."""
    matches = _matches("admit", write)
    if not matches:
        return
    turns = _Turns(write, matches)
    if not turns.take(0):
        return
    before = _frozen(write)
    again()
    if _frozen(write) != before:
        turns.require()
    if turns.take(1):
        again()


def validate(write: Write) -> None:
    """Ask policies, then validating webhooks, all at once; raises the first refusal in their order."""
    _ask_policies(write)
    matches = _matches("validating", write)
    if not matches:
        return
    asked, form = _asked(write), _form(write)
    hooks, looking = (
        write.backend.webhooks,
        Looking(asked, form, write.requester, write.backend.cache, write.backend.kinds.registry),
    )
    found = list(hooks.chosen("validating", matches, looking, write.obj, write.old))
    ask = partial(write.backend.webhooks.ask, "validating")
    questions: list[Callable[[], Outcome]] = [
        partial(ask, match, asked, form, write.backend.cache, f"round_0_index_{index}") for index, match in found
    ]
    outcomes = list(calls.ask_all(questions))
    for outcome in outcomes:
        if isinstance(outcome, Outcome):
            _tell(write, outcome)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        if outcome.verdict is not None and outcome.verdict.refusal is not None:
            raise outcome.verdict.refusal


def _ask_policies(write: Write) -> None:
    policies, cache = write.backend.policies, write.backend.cache
    if write.options.reviewed or not policies.some(cache):
        return
    asked = _asked(write)
    found = policies.concerned(cache, asked, write.backend.kinds.registry)
    if not found:
        return
    outcome = policies.ask(
        found, Looking(asked, _form(write), write.requester, cache, write.backend.kinds.registry), write.obj, write.old
    )
    for text in outcome.warnings:
        write.options.warn(text)
    for key, text in outcome.annotations.items():
        write.requester.notes.setdefault(key, text)
    refusal = outcome.refusal(write.target.kind, asked.name)
    if refusal is not None:
        raise refusal


def request(
    backend: Backend,
    operation: Literal["create", "connect"],
    target: Target,
    shown: Kind,
    obj: JsonObject,
    options: Options,
) -> JsonObject:
    """Return what is asked of a subresource that keeps no object (a Binding, an Eviction) once webhooks have seen it.

    Raises:
        StatusError: one refuses it.
    """
    if options.requester is None:
        return obj
    write = Write(backend, operation, target, obj, None, options, options.requester, shown)
    mutate(write, lambda: None)
    validate(write)
    return write.new


class _Turns:
    """The rounds in which mutating webhooks are asked about one write."""

    def __init__(self, write: Write, matches: tuple[Match, ...]) -> None:
        self._write, self._matches = write, matches
        self._asked, self._form = _asked(write), _form(write)
        self._before: set[tuple[str, str]] = set()
        self._again: set[tuple[str, str]] = set()

    def require(self) -> None:
        """Have those asked again that want to be, and were asked before now."""
        self._again |= self._before
        self._before = set()

    def take(self, turn: int) -> bool:
        """Ask the webhooks; return whether one has changed the object."""
        write, any_changed = self._write, False
        looking = Looking(self._asked, self._form, write.requester, write.backend.cache, write.backend.kinds.registry)
        for index, match in write.backend.webhooks.chosen("admit", self._matches, looking, write.obj, write.old):
            if turn and match.hook.key not in self._again:
                continue
            changed = self._one(match, turn, index)
            if changed:
                any_changed = True
                self.require()
            if match.hook.reinvoked:
                self._before.add(match.hook.key)
        return any_changed

    def _one(self, match: Match, turn: int, index: int) -> bool:
        write, place = self._write, f"round_{turn}_index_{index}"
        outcome = write.backend.webhooks.ask("admit", match, self._asked, self._form, write.backend.cache, place)
        _tell(write, outcome)
        changed = False
        if outcome.verdict is not None:
            if outcome.verdict.refusal is not None:
                raise outcome.verdict.refusal
            if outcome.verdict.patch:
                changed = _patched(write, match, outcome.verdict.patch)
        note = {"configuration": match.hook.configuration, "webhook": match.hook.name, "mutated": changed}
        write.requester.notes[f"mutation.webhook.admission.k8s.io/{place}"] = orjson.dumps(note).decode()
        return changed


def _matches(type_: calls.Type, write: Write) -> tuple[Match, ...]:
    if write.options.reviewed:
        return ()
    operation = _OPERATIONS[write.operation]
    kind, subresource = write.target.kind, write.target.subresource
    backend = write.backend
    return backend.webhooks.matching(type_, backend.cache, kind, subresource, operation, backend.kinds.registry)


def _asked(write: Write) -> ReviewedWrite:
    target = write.target
    called = target.name or name(write.obj or {})
    deletion, operation = write.options.deletion, _OPERATIONS[write.operation]
    return ReviewedWrite(
        kind=target.kind,
        subresource=target.subresource,
        operation=operation,
        namespace=called if target.kind is NAMESPACE else target.namespace,
        name=called,
        user=write.requester.user.info(),
        dry_run=write.options.dry_run,
        options=None if operation == "CONNECT" else _options(write.options, operation, deletion),
        shown=write.shown or (SCALE if target.subresource == "scale" else target.kind),
    )


def _options(options: Options, operation: Operation, deletion: JsonObject | None) -> JsonObject:
    found: JsonObject = {"apiVersion": "meta.k8s.io/v1"}
    if operation == "DELETE":
        return {**(deletion or {}), "kind": "DeleteOptions", **found}
    found["kind"] = "PatchOptions" if options.applied else f"{operation.title()}Options"
    found |= {"dryRun": ["All"]} if options.dry_run else {}
    found |= {"fieldManager": options.manager} if options.manager else {}
    found |= {"force": True} if options.force else {}
    return found | {"fieldValidation": options.validation}


def _form(write: Write) -> calls.Form:
    if write.shown is not None:
        return lambda _kind: (write.obj, None)
    if write.target.subresource == "scale":
        return lambda _kind: (_scale(write.target.kind, write.obj), _scale(write.target.kind, write.old))
    return lambda kind: (_of_kind(kind, write.obj), _of_kind(kind, write.old))


def _scale(kind: Kind, obj: JsonObject | None) -> JsonObject | None:
    return None if obj is None else scale_of(kind, obj)


def _of_kind(kind: Kind, obj: JsonObject | None) -> JsonObject | None:
    return None if obj is None else from_storage(kind, obj)


def _tell(write: Write, outcome: Outcome) -> None:
    for key, text in outcome.annotations.items():
        write.requester.notes.setdefault(key, text)
    for text in outcome.verdict.warnings if outcome.verdict is not None else ():
        write.options.warn(text)


def _frozen(write: Write) -> bytes:
    return orjson.dumps(write.obj, option=orjson.OPT_SORT_KEYS)


# --- patches --------------------------------------------------------------------------------------


def _patched(write: Write, match: Match, patch: list[object]) -> bool:
    """Carry out a webhook's patch on the new object, in place; return whether it changed anything."""
    text = f'admission webhook "{match.hook.name}"'
    if write.obj is None or write.operation == "connect":
        raise InternalError(f"{text} attempted to modify the object, which is not supported for this operation")
    before = _frozen(write)
    current, _ = _form(write)(match.kind)
    kind = write.shown or (SCALE if write.target.subresource == "scale" else match.kind)
    try:
        found = json_patch(current or {}, patch)
        new = incoming.readable(kind, found, write.options._replace(validation="Ignore"))
    except StatusError as error:
        raise InternalError(f"{text} returned a patch that cannot be used: {error.message}") from error
    for field in ("name", "namespace"):
        if metadata(new).get(field) != metadata(current or {}).get(field):
            raise InternalError(f"{text} attempted to change metadata.{field}, which no webhook may")
    _take(write, kind, new)
    return _frozen(write) != before


def _take(write: Write, kind: Kind, new: JsonObject) -> None:
    """Put what a webhook made of the object in its place."""
    obj = write.new
    if write.target.subresource == "scale" and write.shown is None:
        set_replicas(write.target.kind, obj, (new.get("spec") or {}).get("replicas") or 0)
    else:
        owned = {field: metadata(obj)[field] for field in _OWNED if field in metadata(obj)}
        if write.shown is None:
            apply_defaults(kind, new)
            new = from_storage(write.target.kind, new) if kind.custom is not None else to_storage(kind, new)
        kept = {field: value for field, value in metadata(new).items() if field not in _OWNED}
        obj.clear()
        obj.update({**new, "metadata": {**kept, **owned}})
    if write.shown is None:
        _prepare(write, obj)


def _prepare(write: Write, obj: JsonObject) -> None:
    """Have the server's own part of the object be what it was, or what follows from the change."""
    kind = stored_kind(write.target.kind)
    if write.old is not None:
        strategy.prepare_update(kind, obj, write.old, write.target.subresource)
        metadata(obj)["resourceVersion"] = metadata(write.old)["resourceVersion"]
        return
    made = parse_rfc3339(metadata(obj)["creationTimestamp"])
    strategy.prepare_create(kind, obj, namespace=write.target.namespace, now=made, uid=uid(obj), name_suffix="")
