"""Addresses of others that Services name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.authorization.authorization import Access, Requester
from minik8s_modules.apiserver.authorization.identity import MASTERS, User
from minik8s_modules.apiserver.authorization.policy import Rbac
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.verbs import writing

OTHERS = ["203.0.113.9"]


def _create(backend: Backend, options: Options, name: str, **spec: Any) -> JsonObject:
    obj = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}
    return writing.create(backend, Target(SERVICE, "default"), obj, options).object


def test_addresses_of_others_are_denied_unless_allowed(backend: Backend, options: Options):
    requester = Requester(User("root", (MASTERS,)), Access(Rbac(backend.cache)), {})
    options = options._replace(requester=requester)  # admission is for writes of somebody
    with pytest.raises(Forbidden, match=r"203\.0\.113\.9 are addresses of others"):
        _create(backend, options, "a", externalIPs=OTHERS)
    allowing = replace(backend, external_ips=True)
    made = _create(allowing, options, "a", externalIPs=OTHERS)
    kept = {**made, "metadata": {**made["metadata"], "labels": {"a": "b"}}}
    target = Target(SERVICE, "default", "a")
    made = writing.update(backend, target, kept, options).object
    more = {**made, "spec": {**made["spec"], "externalIPs": [*OTHERS, "203.0.113.10"]}}
    with pytest.raises(Forbidden, match=r"203\.0\.113\.10 are"):
        writing.update(backend, target, more, options)
    serving_names = replace(allowing, name_server="203.0.113.10")
    with pytest.raises(Forbidden, match=r"externalIPs 203\.0\.113\.10 is the address of the cluster's DNS"):
        writing.update(serving_names, target, more, options)
