"""What a request and its answer held is given back when the answer is sent, without Python's collector."""

from __future__ import annotations

import gc
import weakref

import pytest
from werkzeug.test import EnvironBuilder

from minik8s_modules.apiserver.authorization.authorization import Access
from minik8s_modules.apiserver.authorization.identity import MASTERS, User
from minik8s_modules.apiserver.authorization.policy import Rbac
from minik8s_modules.apiserver.http.settings import Limits
from minik8s_modules.apiserver.intake.limits import Admission
from minik8s_modules.apiserver.reads.hub import Hub
from minik8s_modules.apiserver.serving.app import make_app
from minik8s_modules.apiserver.serving.resources import Services
from minik8s_modules.base.metrics import Registry


class Marker:
    """Goes with the environment that holds it."""


@pytest.mark.parametrize("path", ["/api/v1/namespaces", "/api/v1/namespaces/default", "/api/v1/namespaces?limit=1"])
def test_no_cycle_keeps_an_answer(backend, clock, path: str):
    hub = Hub(clock, backend.cache, Admission(Limits(), Registry()))
    hub.start()
    services = Services(backend, hub, Access(Rbac(backend.cache)))
    app = make_app(services, lambda _environ: User("admin", (MASTERS,)), {"livez": {}, "readyz": {}})
    environ, marker = EnvironBuilder(path).get_environ(), Marker()
    environ["marker"], gone = marker, weakref.ref(marker)
    del marker
    gc.disable()
    try:
        assert b'"default"' in b"".join(app(environ, lambda *_: None))
        del environ
        assert gone() is None
    finally:
        gc.enable()
        hub.stop()
