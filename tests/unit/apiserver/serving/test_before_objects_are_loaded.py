"""What an API server says that has not yet read its objects from etcd: 503 in words, never a connection that ends."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from werkzeug.test import Client

from minik8s_modules.apiserver.aggregation.directory import Directory
from minik8s_modules.apiserver.aggregation.forwarding import Aggregation
from minik8s_modules.apiserver.authorization.authorization import Access
from minik8s_modules.apiserver.authorization.identity import MASTERS, User
from minik8s_modules.apiserver.authorization.policy import Rbac
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.settings import Limits
from minik8s_modules.apiserver.intake.limits import Admission
from minik8s_modules.apiserver.reads.hub import Hub
from minik8s_modules.apiserver.serving.app import make_app
from minik8s_modules.apiserver.serving.resources import Services
from minik8s_modules.base.metrics import Registry
from minik8s_modules.store.cache import WatchCache


@pytest.mark.parametrize("path", ["/api/v1/pods", "/apis/apps/v1/deployments"])
def test_whoever_asks_is_told_to_try_again(backend: Backend, clock: Any, path: str, monkeypatch: pytest.MonkeyPatch):
    cache = WatchCache(backend.store)
    monkeypatch.setattr(cache, "changes", lambda _prefix: 1)  # it has read some of them
    hub = Hub(clock, cache, Admission(Limits(), Registry()))
    nobody: Any = None
    hub.start()
    aggregation = Aggregation(Directory(cache), nobody, nobody, nobody)
    services = Services(replace(backend, cache=cache), hub, Access(Rbac(cache)), aggregation=aggregation)
    app = make_app(services, lambda _environ: User("admin", (MASTERS,)), {"livez": {}, "readyz": {}})
    answer = Client(app).get(path)
    hub.stop()
    assert answer.status_code == 503
    assert "Retry-After" in answer.headers
    assert "not been loaded from etcd yet" in json.loads(answer.data)["message"]
