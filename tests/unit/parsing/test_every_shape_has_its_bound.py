"""Every list and map of every kind, filled to the limit: no write costs more than half a second of a fast machine.

The whole way of a request is gone: reading, defaults, validation, managedFields, encoding, the answer. Lists and maps
are taken from the types, so new kinds are among them. ``MINIK8S_FUZZ_SHAPES`` are tried (25 in ``make test``).
"""

from __future__ import annotations

import copy
import json
import os
import random
import time
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from werkzeug.test import Client

from minik8s_modules.api.kinds import KINDS, NAMESPACE, Kind
from minik8s_modules.api.schema.shapes import Shape, kind_shape
from minik8s_modules.api.size_limits import MAX_VALUES
from minik8s_modules.apiserver.authorization.authorization import Access
from minik8s_modules.apiserver.authorization.identity import MASTERS, User
from minik8s_modules.apiserver.authorization.policy import Rbac
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.settings import Limits
from minik8s_modules.apiserver.intake.limits import Admission
from minik8s_modules.apiserver.reads.hub import Hub
from minik8s_modules.apiserver.serving.app import make_app
from minik8s_modules.apiserver.serving.resources import Services
from minik8s_modules.apiserver.serving.startup import RequiredObject, ensure
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.base.metrics import Registry
from minik8s_modules.store.cache import WatchCache
from minik8s_modules.store.memory import MemoryStore
from tests.support.load.cpu import fast_seconds
from tests.unit.api import samples

COUNT = int(os.environ.get("MINIK8S_FUZZ_SHAPES", "25"))
SHARE_S = 0.5
_NAMED = ("name", "key", "port", "containerPort", "ip", "mountPath", "path", "type", "kind", "uid", "operator", "value")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """The API server's application on a memory store, asked as an administrator."""
    store, clock = MemoryStore(), SystemClock()
    cached = WatchCache(store)
    store.create("/x", b"")
    cached.start()
    assert cached.wait_ready(60)
    backend = Backend(store, cached, clock)
    ensure(backend, RequiredObject(NAMESPACE, "", "default", {}))
    hub = Hub(clock, cached, Admission(Limits(), Registry()))
    hub.start()
    services = Services(backend, hub, Access(Rbac(cached)))
    app = make_app(services, lambda _environ: User("admin", (MASTERS,)), {"livez": {}, "readyz": {}})
    yield Client(app)
    hub.stop()
    cached.stop()
    store.close()


class Place(NamedTuple):
    """A list or map of a kind."""

    kind: Kind
    path: tuple[str | int, ...]
    shape: Shape


@cache
def places() -> list[Place]:
    """Return every list and map of every kind that can be created."""
    kinds = [kind for kind in KINDS.all() if "create" in kind.verbs]
    return [Place(kind, path, shape) for kind in kinds for path, shape in _below(kind_shape(kind), (), ())]


def _below(
    shape: Shape, path: tuple[str | int, ...], seen: tuple[str, ...]
) -> Iterator[tuple[tuple[str | int, ...], Shape]]:
    if shape.kind == "object" and shape.definition not in seen:
        for name in shape.fields:
            yield from _below(shape.fields[name], (*path, name), (*seen, shape.definition))
    elif shape.kind in {"list", "map"} and shape.items is not None:
        yield path, shape
        yield from _below(shape.items, (*path, 0 if shape.kind == "list" else "k"), seen)


def _value(shape: Shape, number: int) -> Any:
    plain: dict[str, Any] = {"string": f"n{number}", "integer": number % 60_000 + 1, "number": number, "boolean": True}
    plain |= {"quantity": str(number), "intstr": number % 60_000 + 1, "list": []}
    return plain.get(shape.kind, {})


def _item(shape: Shape, variant: str, number: int) -> Any:
    if variant == "null":
        return None
    if shape.kind != "object" or variant == "empty":
        return _value(shape, number)
    return {
        name: _value(shape.fields[name], 0 if variant == "same" else number)
        for name in shape.fields
        if shape.fields[name].kind in {"string", "integer"} and (name in shape.required or name in _NAMED)
    }


def filled(place: Place, variant: str) -> dict[str, Any]:
    """Return an object with the list or map as long as it may be."""
    one = _item(place.shape.item, variant, 1)
    count = (MAX_VALUES - 200) // (1 + (len(one) if isinstance(one, dict) else 0))
    items = [_item(place.shape.item, variant, number) for number in range(count)]
    value = items if place.shape.kind == "list" else {f"k{number}": each for number, each in enumerate(items)}
    obj = copy.deepcopy(samples.sample(place.kind))
    _put(obj, place.path, value)
    return obj


def _put(at: Any, path: tuple[str | int, ...], value: Any) -> None:
    for step, following in pairwise(path):
        empty: Any = [] if isinstance(following, int) else {}
        if isinstance(at, list):
            at[:] = at or [empty]
        elif not isinstance(at.get(step), dict | list):
            at[step] = empty
        at = at[step]
    if isinstance(at, list):
        at[:] = [value, *at[1:]]
    else:
        at[path[-1]] = value


# lists of which each item was once compared with all before it
_COMPARED = {
    ("Subset", "pods", "distinct"),
    ("CertificateSigningRequest", "usages", "distinct"),
    ("HostGrant", "hosts", "distinct"),
}


def _chosen() -> list[tuple[Place, str]]:
    every = [(place, variant) for place in places() for variant in ("empty", "distinct", "same", "null")]
    random.Random(1).shuffle(every)
    compared = [each for each in every if (each[0].kind.kind, each[0].path[-1], each[1]) in _COMPARED]
    return [*compared, *every][:COUNT]


@pytest.mark.parametrize(
    ("place", "variant"),
    _chosen(),
    ids=lambda each: each if isinstance(each, str) else ".".join(map(str, (each.kind.plural, *each.path))),
)
def test_a_full_list_or_map_costs_its_share_at_most(client: Client, place: Place, variant: str):
    kind = place.kind
    body = json.dumps(filled(place, variant)).encode()
    root = f"{'/apis/' if kind.group else '/api/'}{kind.api_version}"
    path = f"{root}/namespaces/default/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"

    def spend() -> float:
        began = time.process_time()
        answer = client.post(f"{path}?dryRun=All", data=body, content_type="application/json")
        assert answer.status_code < 500 or answer.status_code == 503, answer.data[:300]
        return time.process_time() - began

    assert fast_seconds(spend, enough=SHARE_S) <= SHARE_S
