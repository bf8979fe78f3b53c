"""Requests of a whole Pod that follow from its containers', which a LimitRange completes."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.errors import Invalid
from minik8s_modules.api.kinds import LIMIT_RANGE, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.authorization.authorization import Access, Requester
from minik8s_modules.apiserver.authorization.identity import MASTERS, User
from minik8s_modules.apiserver.authorization.policy import Rbac
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.verbs import writing


@pytest.fixture
def made(backend: Backend, options: Options) -> Any:
    """Creates a Pod of two containers, where a LimitRange gives each 100m if it asks for nothing."""
    ranges = {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "100m"}}]}}
    writing.create(backend, Target(LIMIT_RANGE, "default"), ranges, options)
    requester = Requester(User("root", (MASTERS,)), Access(Rbac(backend.cache)), {})

    def create(own: JsonObject) -> JsonObject:
        first = {"name": "a", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
        spec = {"resources": own, "containers": [first, {"name": "b", "image": "i"}]}
        target, wanted = Target(POD, "default"), {"metadata": {"name": "p"}, "spec": spec}
        return writing.admitted(backend, target, wanted, options._replace(requester=requester))

    return create


def test_they_are_those_of_all_containers(made: Any):
    pod = made({"limits": {"cpu": "200m", "memory": "1Gi"}, "requests": {"memory": "1Gi"}})
    assert pod["spec"]["resources"]["requests"] == {"cpu": "200m", "memory": "1Gi"}
    assert pod["status"]["qosClass"] == "Guaranteed"  # by what it asks for now


def test_one_that_the_client_gave_is_his(made: Any):
    with pytest.raises(Invalid, match="aggregate container requests of 200m"):
        made({"limits": {"cpu": "1"}, "requests": {"cpu": "100m"}})
