"""Cluster IPs: one Service an address, given back, and found again after a crash."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from typing import Any

import pytest

from minik8s_modules.api.errors import AlreadyExists, InternalError, Invalid
from minik8s_modules.api.kinds import SERVICE
from minik8s_modules.apiserver import deleting, service_addresses, writing
from minik8s_modules.apiserver.backend import Backend
from minik8s_modules.apiserver.incoming import Options
from minik8s_modules.apiserver.target import Target
from minik8s_modules.base.clock import FakeClock

COLLECTION = Target(SERVICE, "default")


def _create(backend: Backend, options: Options, name: str, **spec: Any) -> str:
    obj = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}
    return str(writing.create(backend, COLLECTION, obj, options).object["spec"].get("clusterIP", ""))


def _claims(backend: Backend) -> list[str]:
    return [
        entry.key.removeprefix(service_addresses.CLAIMS)
        for entry in backend.store.range(service_addresses.CLAIMS).entries
    ]


def test_the_first_is_for_the_api_and_the_network_address_goes_last():
    assert list(service_addresses.candidates(ipaddress.IPv4Network("10.0.0.0/29"))) == [
        "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.0",
    ]  # fmt: skip


def test_a_full_range_says_what_to_do(backend: Backend, options: Options):
    small = replace(backend, service_cidr=ipaddress.IPv4Network("10.0.0.0/30"))
    assert [_create(small, options, name) for name in "ab"] == ["10.0.0.2", "10.0.0.0"]
    with pytest.raises(InternalError, match="is full; delete Services"):
        _create(small, options, "c")


def test_a_deleted_service_gives_its_address_back(backend: Backend, options: Options):
    address = _create(backend, options, "a")
    deleting.delete(backend, Target(SERVICE, "default", "a"), {}, options)
    assert _claims(backend) == []
    assert _create(backend, options, "b") == address


def test_a_service_that_could_not_be_stored_gives_its_address_back(backend: Backend, options: Options):
    _create(backend, options, "a")
    with pytest.raises(AlreadyExists):
        _create(backend, options, "a")
    assert len(_claims(backend)) == 1


def test_an_address_of_another_is_refused_and_left_to_it(backend: Backend, options: Options):
    address = _create(backend, options, "a")
    with pytest.raises(Invalid, match="already allocated"):
        _create(backend, options, "b", clusterIP=address)
    assert _claims(backend) == [address]


def test_headless_and_external_services_need_none(backend: Backend, options: Options):
    assert _create(backend, options, "a", clusterIP="None") == "None"
    assert _create(backend, options, "b", type="ExternalName", externalName="example.com") == ""
    assert _claims(backend) == []


def test_a_dry_run_claims_nothing(backend: Backend, options: Options):
    assert _create(backend, options._replace(dry_run=True), "a") == "100.0.0.2"
    assert _claims(backend) == []


def test_a_claim_left_by_a_crash_goes_after_a_minute(backend: Backend, options: Options, clock: FakeClock):
    kept = _create(backend, options, "a")
    lost = {"metadata": {"name": "lost", "namespace": "default", "uid": "u"}, "spec": {}}
    service_addresses.claim(backend, lost, dry_run=False)
    service_addresses.release_orphans(backend)
    assert len(_claims(backend)) == 2
    clock.advance(61)
    service_addresses.release_orphans(backend)
    assert _claims(backend) == [kept]
