"""Asking webhooks about a write, and what comes of it: an object changed, a refusal, warnings, annotations, figures.

Configurations are compiled when one of them has changed (the watch cache counts changes, so unchanged ones cost two
look-ups), and swapped at once for all threads. A cache that is not loaded yet answers nothing, so no write passes
before the configurations are known. Source: apiserver ``webhook/{mutating,validating}/dispatcher.go``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import orjson

from minik8s_modules.api.errors import BadRequest, Forbidden, InternalError, NotFound, StatusError
from minik8s_modules.api.kind import Kind, Registry
from minik8s_modules.api.kinds import (
    KINDS,
    MUTATING_WEBHOOK_CONFIGURATION,
    NAMESPACE,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from minik8s_modules.api.objects import JsonObject, labels
from minik8s_modules.apiserver.authorization.authorization import Requester
from minik8s_modules.apiserver.webhooks import reviews
from minik8s_modules.apiserver.webhooks.conditions import Uncertain, all_true, authorizer_of
from minik8s_modules.apiserver.webhooks.figures import ConversionFigures, Figures
from minik8s_modules.apiserver.webhooks.places import Client, Unreachable, addresses_of, context_of
from minik8s_modules.apiserver.webhooks.reviews import BadAnswer, ReviewedWrite, Verdict
from minik8s_modules.apiserver.webhooks.rules import Hook, Match, Operation, compiled, concerned, selected
from minik8s_modules.apiserver.webhooks.transport import Place, Transport
from minik8s_modules.apiserver.webhooks.troubles import FAILED, SLOW, SLOW_S, Troubles
from minik8s_modules.base import errands
from minik8s_modules.base.ids import random_uid
from minik8s_modules.base.metrics import Registry as Metrics
from minik8s_modules.store import readable
from minik8s_modules.store.cache import WatchCache

MOST_S = 60.0  # webhooks have 30 s at most
log = logging.getLogger(__name__)
Type = Literal["admit", "validating"]
Form = Callable[[Kind], tuple[JsonObject | None, JsonObject | None]]
"""Returns the new and the present object in the form of a kind."""
_KINDS: Mapping[Type, Kind] = {
    "admit": MUTATING_WEBHOOK_CONFIGURATION,
    "validating": VALIDATING_WEBHOOK_CONFIGURATION,
}


class NoDryRunError(BadRequest):
    """What a webhook would say is not known before the write: it may not be asked about dry runs."""


class UnansweredError(InternalError):
    """A webhook could not be asked, or its answer does not count, and no write may pass without it."""


class Failed(Exception):
    """A webhook could not be asked, or its answer does not count; ``str`` says why."""

    def __init__(self, hook: Hook, why: str, code: int = 400) -> None:
        super().__init__(f'failed calling webhook "{hook.name}": {why}')
        self.code = code


class _Compiled:
    """The webhooks of one type, and which may see which kind of write."""

    def __init__(self, cache: WatchCache, stamp: int, hooks: tuple[Hook, ...]) -> None:
        self.cache, self.stamp, self.hooks = cache, stamp, hooks
        self._concerned: dict[tuple[Kind, str, Operation], tuple[Match, ...]] = {}

    def concerned(self, kind: Kind, subresource: str, operation: Operation, kinds: Registry) -> tuple[Match, ...]:
        if not self.hooks:
            return ()
        if kind.custom is not None:  # exchanged whenever a definition changes, so not remembered
            return concerned(self.hooks, kind, subresource, operation, kinds)
        key = (kind, subresource, operation)
        found = self._concerned.get(key)
        if found is None:
            found = self._concerned[key] = concerned(self.hooks, kind, subresource, operation)
        return found


class Outcome(NamedTuple):
    """What was said of one call: the answer, or (where failures are passed over) None."""

    verdict: Verdict | None
    annotations: Mapping[str, str]


class Looking(NamedTuple):
    """What decides whether somebody is asked about a write: the write, its objects, who asks, and what is served."""

    asked: ReviewedWrite
    form: Form
    requester: Requester
    cache: WatchCache
    kinds: Registry


class Webhooks:
    """See the top of this file."""

    def __init__(self, metrics: Metrics | None = None, transport: Transport | None = None) -> None:
        self._transport = transport or Transport()
        families = metrics or Metrics()
        self._figures, self.conversions = Figures(families), ConversionFigures(families)
        self._made: dict[Type, _Compiled] = {}
        self.troubles = Troubles()

    def close(self) -> None:
        """Close the connections that are kept."""
        self._transport.close()

    def matching(
        self,
        kind_of_hook: Type,
        cache: WatchCache,
        kind: Kind,
        subresource: str,
        operation: Operation,
        kinds: Registry = KINDS,
    ) -> tuple[Match, ...]:
        """Return the webhooks whose rules speak of such a write, in the order in which they are asked."""
        return self._compiled(kind_of_hook, cache).concerned(kind, subresource, operation, kinds)

    def _compiled(self, kind_of_hook: Type, cache: WatchCache) -> _Compiled:
        kind = _KINDS[kind_of_hook]
        stamp = cache.changes(kind.prefix)
        made = self._made.get(kind_of_hook)
        if made is not None and made.cache is cache and made.stamp == stamp:
            return made
        # the count was read before the objects: what changes meanwhile is compiled again by the next write
        made = _Compiled(cache, stamp, compiled(kind, readable.objects_of(kind, cache.list(kind.prefix).items)))
        self._made[kind_of_hook] = made
        return made

    def call(self, client: Client, body: bytes, timeout_s: float, cache: WatchCache) -> bytes:
        """Return what the program at ``client`` answers to a review, within ``timeout_s``.

        Raises:
            Unreachable: it does not answer, or not with 200; the message says why in Go's words.
        """
        query = f"timeout={int(timeout_s)}s"
        place = Place(
            key=client,
            server=client.server,
            host=client.host,
            target=f"{quote(client.path, safe='/%:@!$&()*+,;=~-._')}?{query}",
            context=context_of(client.authority),
            addresses=lambda: addresses_of(cache, client),
        )
        try:
            return self._transport.post(place, body, time.monotonic() + timeout_s)
        except Unreachable as error:
            raise Unreachable(f'Post "{client.shown}?{query}": {error}') from error

    def ask(
        self, kind_of_hook: Type, match: Match, asked: ReviewedWrite, form: Form, cache: WatchCache, place: str
    ) -> Outcome:
        """Return what one webhook says of a write.

        Args:
            kind_of_hook: whether it may change the object.
            match: the webhook.
            asked: the write.
            form: gives the object.
            cache: where Services are found.
            place: ``round_0_index_1``, for the audit log.

        Raises:
            StatusError: it refuses the write, or it cannot be asked and has the failurePolicy Fail.
        """
        here = errands.current()
        if here is not None:  # the webhook was not there when the request was looked at
            return here.elsewhere(lambda: self.ask(kind_of_hook, match, asked, form, cache, place), MOST_S)
        hook, began = match.hook, time.monotonic()
        outcome = _Seen(self._figures, kind_of_hook, hook, asked.operation, began)
        try:
            verdict = self._verdict(kind_of_hook, match, asked, form, cache)
        except Failed as error:
            outcome.failed(error)
            self.troubles.note(hook, FAILED, str(error))
            if hook.fail:
                raise UnansweredError(str(error)) from error
            log.warning("failing open: %s", error)
            prefix = "mutation" if kind_of_hook == "admit" else "validating"
            return Outcome(None, {f"failed-open.{prefix}.webhook.admission.k8s.io/{place}": hook.name})
        except StatusError:
            outcome.defect()
            raise
        took_s = outcome.answered(verdict.refusal)
        if took_s >= SLOW_S:
            self.troubles.note(hook, SLOW, f'webhook "{hook.name}" took {took_s:.1f} s, for which the write waited')
        return Outcome(verdict, {f"{hook.name}/{key}": text for key, text in verdict.annotations.items()})

    def _verdict(
        self, kind_of_hook: Type, match: Match, asked: ReviewedWrite, form: Form, cache: WatchCache
    ) -> Verdict:
        hook, uid = match.hook, random_uid()
        if asked.dry_run and not hook.quiet:
            raise NoDryRunError(f'admission webhook "{hook.name}" does not support dry run')
        try:
            version = reviews.version_of(hook.versions)
        except BadAnswer as error:
            raise Failed(hook, f"could not create admission objects: {error}") from error
        obj, old = form(match.kind)
        body = orjson.dumps(reviews.review(asked, match.kind, version, uid, obj, old))
        try:
            answer = self.call(hook.client, body, hook.timeout_s, cache)
        except Unreachable as error:
            raise Failed(hook, f"failed to call webhook: {error}") from error
        try:
            return reviews.verdict(answer, hook.name, version, uid, mutating=kind_of_hook == "admit")
        except BadAnswer as error:
            raise Failed(hook, f"received invalid webhook response: {error}", 503) from error

    def chosen(
        self, kind_of_hook: Type, matches: tuple[Match, ...], looking: Looking, obj: JsonObject | None,
        old: JsonObject | None,
    ) -> Iterator[tuple[int, Match]]:  # fmt: skip
        """Yield the webhooks whose selectors and conditions choose the object, with their places in the order.

        Raises:
            Forbidden: a condition cannot be evaluated, and the failurePolicy is Fail.
        """
        space: Mapping[str, str] | None = None
        if any(not match.hook.namespaces.empty for match in matches):
            space = namespace_labels(looking.cache, looking.asked, obj)
        for index, match in enumerate(matches):
            if selected(match.hook, looking.asked.kind, space, obj, old) and self._meant(kind_of_hook, match, looking):
                yield index, match

    def _meant(self, kind_of_hook: Type, match: Match, looking: Looking) -> bool:
        hook, asked = match.hook, looking.asked
        if not hook.conditions:
            return True
        request = reviews.request_of(asked, match.kind)
        obj, old = looking.form(match.kind)
        variables: dict[str, Any] = {"object": obj, "oldObject": old, "request": request, "namespaceObject": None}
        variables["authorizer"] = authorizer_of(looking.requester, request)
        try:
            met = all_true(hook.conditions, variables)
        except Uncertain as error:
            self._figures.unsure(hook.name, kind_of_hook, asked.operation)
            if hook.fail:
                raise Forbidden(asked.kind, asked.name, str(error)) from error
            met = False
        if not met:
            self._figures.excluded(hook.name, kind_of_hook, asked.operation)
        return met


class _Seen:
    """Counts one call."""

    def __init__(self, figures: Figures, type_: Type, hook: Hook, operation: str, began: float) -> None:
        self._figures, self._type, self._hook = figures, type_, hook
        self._operation, self._began = operation, began

    def answered(self, refusal: StatusError | None) -> float:
        if refusal is not None:
            self._figures.refused(self._hook.name, self._type, self._operation, "no_error", refusal.code)
        return self._called(200 if refusal is None else refusal.code, rejected=refusal is not None)

    def failed(self, error: Failed) -> None:
        if self._hook.fail:
            self._figures.refused(self._hook.name, self._type, self._operation, "calling_webhook_error", error.code)
        else:
            self._figures.failed_open(self._hook.name, self._type)
        self._called(error.code, rejected=self._hook.fail)

    def defect(self) -> None:
        self._figures.refused(self._hook.name, self._type, self._operation, "apiserver_internal_error", 0)
        self._called(0, rejected=True)

    def _called(self, code: int, *, rejected: bool) -> float:
        took_s = time.monotonic() - self._began
        self._figures.called(self._hook.name, self._type, self._operation, code, took_s, rejected=rejected)
        return took_s


def namespace_labels(cache: WatchCache, asked: ReviewedWrite, obj: JsonObject | None) -> Mapping[str, str] | None:
    """Return the labels that namespace selectors look at; None at the cluster scope.

    Raises:
        NotFound: the namespace is not there.
    """
    if asked.kind is NAMESPACE and not asked.subresource and obj is not None:
        return labels(obj)
    if not asked.namespace:
        return None
    found = cache.get(NAMESPACE.key("", asked.namespace))
    if found is None:
        raise NotFound(NAMESPACE, asked.namespace)
    return found.labels


def ask_all(questions: list[Callable[[], Outcome]]) -> Iterator[Outcome | BaseException]:
    """Yield the outcomes of ``questions``, asked at the same time, in their order."""
    here = errands.current()
    if here is not None:
        yield from here.elsewhere(lambda: list(ask_all(questions)), MOST_S)
        return
    found: list[Outcome | BaseException | None] = [None] * len(questions)

    def answer(index: int) -> None:
        try:
            found[index] = questions[index]()
        except BaseException as error:  # noqa: BLE001 - told to the thread that asks
            found[index] = error

    threads = [threading.Thread(target=answer, args=(index,), daemon=True) for index in range(1, len(questions))]
    for thread in threads:
        thread.start()
    if questions:
        answer(0)
    for thread in threads:
        thread.join()
    yield from (each for each in found if each is not None)
