"""Objects are made as upstream's tests make them: again where the server asks for that, or a generated name is taken.

A generated name has five characters: of 2,000 pods in a namespace two draw the same one in every seventh run. Servers
since 1.30 draw again by themselves; older ones answer ServerTimeout ("could not be completed at this time"), which
says to try again. Source: kubernetes ``test/utils/create_resources.go``, ``RetryWithExponentialBackOff``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from minik8s_modules.api import objects
from minik8s_modules.api.errors import AlreadyExists, StatusError
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.backoff import Backoff
from minik8s_modules.client.interface import Api

_TRIES, _AGAIN = 6, Backoff(initial_s=0.1, maximum_s=60.0, factor=3.0)


def create(client: Api, kind: Kind, made: JsonObject, sleep: Callable[[float], object] = time.sleep) -> JsonObject:
    """Create an object and return the answer.

    Raises:
        StatusError: the server refuses it, or has asked to try again six times.
    """
    for failures in range(1, _TRIES):
        try:
            return client.create(kind, made)
        except StatusError as error:
            if not _again(error, made):
                raise
            sleep(_AGAIN.delay_s(failures))
    return client.create(kind, made)


def _again(error: StatusError, made: JsonObject) -> bool:
    generated = not objects.metadata(made).get("name")
    return error.reason in {"ServerTimeout", "TooManyRequests"} or (generated and isinstance(error, AlreadyExists))
