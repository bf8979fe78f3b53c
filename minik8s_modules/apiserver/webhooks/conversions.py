"""Asking the webhook of a CustomResourceDefinition to convert objects between versions of its kind.

``Converter`` is a ``Declaration``'s ``convert``; it is built again with the kinds whenever their definition changes.
Requests that may wait for one hold no seat (access/priority.py), watches wait in a thread of their kind
(reads/lanes.py), and of one definition ``_PLACES`` calls are under way at once: the others wait, unless the last call
ran out of time. So a converter that hangs takes a few threads, and holds up its own kind alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kind import Convert, Kind
from minik8s_modules.api.kinds import CUSTOM_RESOURCE_DEFINITION
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.webhooks import conversion_reviews as reviews
from minik8s_modules.apiserver.webhooks.calls import Webhooks
from minik8s_modules.apiserver.webhooks.conversion_reviews import BadConversion
from minik8s_modules.apiserver.webhooks.places import Unreachable, client_of
from minik8s_modules.apiserver.webhooks.troubles import FAILED, SLOW, SLOW_S
from minik8s_modules.base.ids import random_uid
from minik8s_modules.store.cache import WatchCache

TIMEOUT_S = 30.0
_PLACES = 8
_WAIT_S = 10.0


def converter_of(webhooks: Webhooks, cache: WatchCache, definition: JsonObject) -> Convert | None:
    """Return what converts objects of the definition's kinds; None where versions differ in their name alone."""
    conversion = objects.spec(definition).get("conversion") or {}
    return Converter(webhooks, cache, definition) if conversion.get("strategy") == "Webhook" else None


class Converter:
    """See the top of this file; from any thread."""

    def __init__(self, webhooks: Webhooks, cache: WatchCache, definition: JsonObject) -> None:
        webhook = objects.spec(definition)["conversion"]["webhook"]
        self._webhooks, self._cache = webhooks, cache
        self._client = client_of(webhook["clientConfig"])
        self._version = next(each for each in webhook["conversionReviewVersions"] if each in reviews.VERSIONS)
        self._places = threading.BoundedSemaphore(_PLACES)
        self._hangs = False
        self.configuration = objects.name(definition)
        self.key = (objects.uid(definition), "conversion")
        self.about: Kind = CUSTOM_RESOURCE_DEFINITION

    def __call__(self, objs: Sequence[JsonObject], wanted: str) -> list[JsonObject]:
        """Return ``objs`` in the version ``wanted``, in their order.

        Raises:
            StatusError: 500: the webhook fails; the message names the kind and says why.
        """
        began, source = time.monotonic(), str(objs[0].get("apiVersion"))
        text = f"conversion webhook for {source}, Kind={objs[0].get('kind')}"
        try:
            found = self._asked(objs, wanted)
        except BadConversion as error:
            message = f"{text} {error}"
            self._count(began, source, wanted, error.kind)
            self._webhooks.troubles.note(self, FAILED, message)
            raise StatusError(500, "", message) from error
        took_s = self._count(began, source, wanted)
        if took_s >= SLOW_S:
            self._webhooks.troubles.note(self, SLOW, f"{text} took {took_s:.1f} s, for which the request waited")
        return found

    def _asked(self, objs: Sequence[JsonObject], wanted: str) -> list[JsonObject]:
        uid = random_uid()
        body = reviews.review(objs, wanted, self._version, uid)
        if not self._places.acquire(timeout=0 if self._hangs else _WAIT_S):
            raise BadConversion(reviews.CALL, f"failed: {_PLACES} calls are already in progress and none has finished")
        try:
            answer = self._webhooks.call(self._client, body, TIMEOUT_S, self._cache)
        except Unreachable as error:
            self._hangs = isinstance(error.__cause__ and error.__cause__.__cause__, TimeoutError)
            raise BadConversion(reviews.CALL, f"failed: {error}") from error
        finally:
            self._places.release()
        self._hangs = False
        return reviews.converted(answer, objs, wanted, self._version, uid)

    def _count(self, began: float, source: str, wanted: str, failure: str = "") -> float:
        took_s = time.monotonic() - began
        self._webhooks.conversions.converted(self.configuration, (source, wanted), failure, took_s)
        return took_s
