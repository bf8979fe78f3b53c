"""Quotas are charged in the write that creates: what is refused, what is charged, and twenty creators at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from minik8s_modules.api.errors import AlreadyExists, Forbidden
from minik8s_modules.api.kinds import CONFIG_MAP, POD, RESOURCE_QUOTA, SERVICE, Kind
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.verbs import writing


def quota(backend: Backend, options: Options, name: str = "q", used: dict[str, str] | None = None, **spec: Any) -> None:
    """Make a quota and count nothing (or ``used``) for it, as its controller does."""
    writing.create(backend, Target(RESOURCE_QUOTA, "default"), {"metadata": {"name": name}, "spec": spec}, options)
    hard = spec["hard"]
    status = {"hard": hard, "used": used if used is not None else dict.fromkeys(hard, "0")}
    target = Target(RESOURCE_QUOTA, "default", name, "status")
    writing.change(backend, target, lambda old: {**old, "status": status}, options)


def used(backend: Backend, name: str = "q") -> dict[str, str]:
    found = backend.latest(Target(RESOURCE_QUOTA, "default", name)).object["status"]["used"]
    return dict(found)


def make(backend: Backend, kind: Kind, name: str, options: Options, **fields: Any) -> None:
    writing.create(backend, Target(kind, "default"), {"metadata": {"name": name}, **fields}, options)


def pod(backend: Backend, name: str, options: Options, **resources: Any) -> None:
    containers = [{"name": "app", "image": "x", "resources": resources}]
    make(backend, POD, name, options, spec={"containers": containers})


def test_what_is_created_is_charged_in_the_same_revision(backend: Backend, options: Options):
    quota(backend, options, hard={"pods": "2", "requests.cpu": "1"})
    pod(backend, "a", options, requests={"cpu": "250m"})
    assert used(backend) == {"pods": "1", "requests.cpu": "250m"}
    created = backend.latest(Target(POD, "default", "a")).revision
    assert backend.latest(Target(RESOURCE_QUOTA, "default", "q")).revision == created


def test_what_would_exceed_is_refused_in_kubernetes_words(backend: Backend, options: Options):
    quota(backend, options, hard={"pods": "1", "requests.cpu": "1"}, used={"pods": "1", "requests.cpu": "600m"})
    with pytest.raises(Forbidden) as refused:
        pod(backend, "a", options, requests={"cpu": "500m"})
    assert refused.value.message == (
        'pods "a" is forbidden: exceeded quota: q, requested: pods=1,requests.cpu=500m, '
        "used: pods=1,requests.cpu=600m, limited: pods=1,requests.cpu=1"
    )
    assert used(backend) == {"pods": "1", "requests.cpu": "600m"}


def test_containers_must_say_what_is_limited(backend: Backend, options: Options):
    quota(backend, options, hard={"limits.memory": "1Gi", "requests.cpu": "1"})
    with pytest.raises(Forbidden, match=r"failed quota: q: must specify limits.memory for: app; requests.cpu for: app"):
        pod(backend, "a", options)


def test_an_amount_nobody_has_counted_is_unknown(backend: Backend, options: Options):
    quota(backend, options, hard={"pods": "1"}, used={})
    with pytest.raises(Forbidden, match="status unknown for quota: q, resources: pods"):
        pod(backend, "a", options)


def test_a_quota_that_is_not_counted_yet_limits_nobody(backend: Backend, options: Options):
    make(backend, RESOURCE_QUOTA, "q", options, spec={"hard": {"pods": "0"}})
    pod(backend, "a", options)


def test_a_creation_that_fails_is_not_charged(backend: Backend, options: Options):
    quota(backend, options, hard={"configmaps": "5"})
    make(backend, CONFIG_MAP, "a", options)
    with pytest.raises(AlreadyExists):
        make(backend, CONFIG_MAP, "a", options)
    assert used(backend) == {"configmaps": "1"}


def test_a_dry_run_is_judged_and_not_charged(backend: Backend, options: Options):
    quota(backend, options, hard={"configmaps": "1"}, used={"configmaps": "0"})
    make(backend, CONFIG_MAP, "a", options._replace(dry_run=True))
    assert used(backend) == {"configmaps": "0"}
    make(backend, CONFIG_MAP, "a", options)
    with pytest.raises(Forbidden, match="exceeded quota"):
        make(backend, CONFIG_MAP, "b", options._replace(dry_run=True))


def test_scopes_choose_the_pods(backend: Backend, options: Options):
    quota(backend, options, "best", hard={"pods": "0"}, scopes=["BestEffort"])
    pod(backend, "a", options, requests={"cpu": "1"})
    make(backend, CONFIG_MAP, "a", options)
    with pytest.raises(Forbidden, match="exceeded quota: best"):
        pod(backend, "b", options)


def test_all_quotas_hold_at_once(backend: Backend, options: Options):
    quota(backend, options, "one", hard={"pods": "5"})
    quota(backend, options, "two", hard={"count/pods": "1"})
    pod(backend, "a", options)
    with pytest.raises(Forbidden, match="exceeded quota: two"):
        pod(backend, "b", options)
    assert used(backend, "one") == {"pods": "1"}


def test_a_service_that_becomes_a_larger_one_is_charged(backend: Backend, options: Options):
    quota(backend, options, hard={"services": "5", "services.nodeports": "1"})
    spec = {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}], "selector": {"app": "x"}}
    make(backend, SERVICE, "a", options, spec=spec)
    assert used(backend) == {"services": "1", "services.nodeports": "0"}
    target = Target(SERVICE, "default", "a")

    def as_node_port(old: dict[str, Any]) -> dict[str, Any]:
        return {**old, "spec": {**old["spec"], "type": "NodePort"}}

    with pytest.raises(Forbidden, match=r"exceeded quota: q, requested: services.nodeports=2"):
        writing.change(backend, target, as_node_port, options)

    def smaller(old: dict[str, Any]) -> dict[str, Any]:
        return {**old, "spec": {**old["spec"], "type": "NodePort", "ports": old["spec"]["ports"][:1]}}

    writing.change(backend, target, smaller, options)
    assert used(backend) == {"services": "1", "services.nodeports": "1"}


def test_twenty_at_once_get_no_more_than_the_quota(backend: Backend, options: Options):
    quota(backend, options, hard={"pods": "30", "requests.cpu": "1"})
    # another API server on the same store: its cache, its ledger
    other = Backend(backend.store, backend.cache, backend.clock)

    def attempt(number: int) -> bool:
        try:
            pod((backend, other)[number % 2], f"p{number}", options, requests={"cpu": "50m"})
        except Forbidden:
            return False
        return True

    with ThreadPoolExecutor(20) as pool:
        done = list(pool.map(attempt, range(100)))
    assert sum(done) == 20
    assert len(backend.cache.list(POD.key("default", "")).items) == 20
    assert used(backend) == {"pods": "20", "requests.cpu": "1"}
