"""Host ports that are somebody else's."""

from __future__ import annotations

from typing import Any

from minik8s_modules.api.kinds import POD, SERVICE
from minik8s_modules.apiserver.authorization.authorization import Access, Requester
from minik8s_modules.apiserver.authorization.identity import MASTERS, User
from minik8s_modules.apiserver.authorization.policy import Rbac
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.verbs import writing

CHECKED = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 31_000}


def _warnings(backend: Backend, options: Options, port: dict[str, Any]) -> list[str]:
    options = options._replace(warnings=[], dry_run=True)
    container = {"name": "c", "image": "i", "ports": [{"containerPort": 80, **port}]}
    writing.create(
        backend, Target(POD, "default"), {"metadata": {"name": "p"}, "spec": {"containers": [container]}}, options
    )
    return options.warnings


def test_who_takes_the_port_of_a_services_health_checks_is_told(backend: Backend, options: Options):
    options = options._replace(requester=Requester(User("root", (MASTERS,)), Access(Rbac(backend.cache)), {}))
    assert _warnings(backend, options, {"hostPort": 31_000}) == []
    service = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], **CHECKED}}
    writing.create(backend, Target(SERVICE, "default"), service, options)
    (warning,) = _warnings(backend, options, {"hostPort": 31_000})
    assert warning.startswith("hostPort 31000 is the healthCheckNodePort of a Service")
    for other in ({"hostPort": 31_001}, {"hostPort": 31_000, "protocol": "UDP"}, {}, {"hostPort": 80}):
        assert _warnings(backend, options, other) == []
