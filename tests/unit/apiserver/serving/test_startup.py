"""The objects every cluster has."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api.errors import Forbidden, NotFound
from minik8s_modules.api.kinds import CLUSTER_ROLE, CONFIG_MAP, INGRESS_CLASS, NAMESPACE, PRIORITY_CLASS, SERVICE
from minik8s_modules.apiserver.admission import service_addresses
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.settings import Settings, TlsFiles
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.reads.selection import select
from minik8s_modules.apiserver.serving import startup as startup_module
from minik8s_modules.apiserver.serving.startup import Startup
from minik8s_modules.apiserver.verbs import deleting
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.store.interface import Page
from tests.support.waiting import until

SETTINGS = Settings(
    listen_address="127.0.0.1",
    port=6443,
    advertise_address="192.0.2.1",
    tls=TlsFiles(Path("a"), Path("b"), Path("c")),
    etcd_endpoints=(),
    etcd_tls=None,
    service_cidr=ipaddress.IPv4Network("100.0.0.0/24"),
    reconciler_client=None,
    threads=1,
)
EPOCH = Target(CONFIG_MAP, "kube-system", "minik8s-cluster")
ADDRESS = Target(SERVICE, "default", "kubernetes")


def test_they_are_made_and_then_left_alone(backend: Backend):
    startup = Startup(backend, SETTINGS)
    startup.ensure()
    assert backend.get(Target(SERVICE, "default", "kubernetes")).object["spec"]["clusterIP"] == "100.0.0.1"
    backend.get(Target(NAMESPACE, "", "kube-node-lease"))
    revision = backend.cache.revision
    startup.ensure()
    assert backend.store.revision() == revision


def test_both_system_priorities_are_made_stay_and_are_made_again_where_the_store_has_lost_them(
    backend: Backend, options: Options
):
    Startup(backend, SETTINGS).ensure()
    values = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
    for name, value in values.items():
        target = Target(PRIORITY_CLASS, "", name)
        made = backend.get(target).object
        assert (made["value"], made["preemptionPolicy"]) == (value, "PreemptLowerPriority")
        assert made["description"].startswith("Used for system critical pods that must ")
        with pytest.raises(Forbidden, match="this is a system priority class and cannot be deleted"):
            deleting.delete(backend, target, {}, options)
        deleting.delete_collection(backend, select(Target(PRIORITY_CLASS), {}), {}, {}, options)
        backend.store.delete(PRIORITY_CLASS.key("", name), backend.get(target).revision)
        until(lambda: len(backend.cache.list(PRIORITY_CLASS.prefix).items) == 1)
        Startup(backend, SETTINGS).ensure()
        assert backend.get(target).object["value"] == value


def test_an_ingress_class_for_ordinary_manifests_is_made_once(backend: Backend, options: Options):
    Startup(backend, SETTINGS).ensure()
    nginx = Target(INGRESS_CLASS, "", "nginx")
    assert backend.get(nginx).object["spec"] == {"controller": "minik8s.io/ingress"}
    deleting.delete(backend, nginx, {}, options)
    Startup(backend, SETTINGS).ensure()
    with pytest.raises(NotFound):
        backend.get(nginx)
    assert backend.get(EPOCH).object["data"]["made.ingressclasses.nginx"] == "true"


def test_what_is_missing_is_made_again_and_the_epoch_is_not_raised(
    backend: Backend, options: Options, clock: FakeClock
):
    Startup(backend, SETTINGS).ensure()
    epoch = backend.get(EPOCH).object["data"]["epoch"]
    assert epoch == str(int(clock.now().timestamp()))
    deleting.delete(backend, ADDRESS, {}, options)
    clock.advance(100)
    Startup(backend, SETTINGS).ensure()
    backend.get(ADDRESS)
    assert backend.get(EPOCH).object["data"]["epoch"] == epoch


def test_claims_are_looked_at_when_a_service_has_changed_and_each_minute(
    backend: Backend, options: Options, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    startup = Startup(backend, SETTINGS)
    startup.ensure()
    startup.ensure()  # what the first one wrote are changes, too
    (held,) = (entry.key for entry in backend.store.range(service_addresses.ADDRESSES).entries)
    looks: list[str] = []
    ranged = backend.store.range

    def counted(prefix: str, **options: Any) -> Page:
        looks.append(prefix)
        return ranged(prefix, **options)

    monkeypatch.setattr(backend.store, "range", counted)
    clock.advance(10)
    startup.ensure()
    assert looks == []
    claim = backend.store.get(held)
    assert claim is not None
    backend.store.delete(held, claim.revision)
    clock.advance(startup_module.CLAIMS_S)
    startup.ensure()
    assert backend.store.get(held) is not None
    looks.clear()
    deleting.delete(backend, ADDRESS, {}, options)
    startup.ensure()
    assert looks


def test_roles_are_compared_only_when_one_has_changed(
    backend: Backend, options: Options, monkeypatch: pytest.MonkeyPatch
):
    looks: list[Backend] = []
    compare = startup_module.ensure_policy

    def counted(of: Backend) -> None:
        looks.append(of)
        compare(of)

    monkeypatch.setattr(startup_module, "ensure_policy", counted)
    startup = Startup(backend, SETTINGS)
    startup.ensure()
    startup.ensure()  # what the first one wrote are changes, too
    before = len(looks)
    startup.ensure()
    assert len(looks) == before
    role = Target(CLUSTER_ROLE, "", "view")
    deleting.delete(backend, role, {}, options)
    startup.ensure()
    backend.get(role)
