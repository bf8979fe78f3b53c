"""Whether new objects may go to a namespace, also by a server that is behind the store."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import CONFIG_MAP, NAMESPACE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.admission.admission import check_namespace
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.store.cache import WatchCache

KEY = NAMESPACE.key("", "default")
NEW: JsonObject = {"metadata": {"name": "new", "namespace": "default"}}


def check(backend: Backend) -> None:
    check_namespace(backend, Target(CONFIG_MAP, "default", "new"), NEW)


def marked_for_deletion(backend: Backend) -> WatchCache:
    """Mark the namespace in the store, and return a cache that shows this and nothing later."""
    entry = backend.store.get(KEY)
    assert entry is not None
    found = orjson.loads(entry.value)
    found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    backend.settle(backend.store.update(KEY, orjson.dumps(found), entry.revision))
    held = WatchCache(backend.store)
    held.start()
    assert held.wait_ready(10)
    held.stop()
    return held


def test_a_namespace_that_was_made_again_takes_objects_before_the_cache_shows_it(backend: Backend) -> None:
    """Another server made it: a refusal here would tell controllers that nothing can be made there."""
    behind = replace(backend, cache=marked_for_deletion(backend))
    with pytest.raises(Forbidden, match="being terminated"):
        check(behind)
    entry = backend.store.get(KEY)
    assert entry is not None
    backend.store.delete(KEY, entry.revision)
    backend.store.create(KEY, orjson.dumps({"metadata": {"name": "default", "uid": "other"}}))
    check(behind)
