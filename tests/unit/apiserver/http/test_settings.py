"""The configuration file: what is wrong in it is named."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.apiserver.http import settings
from minik8s_modules.apiserver.intake.limits import USER
from minik8s_modules.apiserver.intake.turns import OF_ONE
from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    """A configuration that can be used."""
    file = tmp_path / "file"
    file.write_text("x")
    pair = {"cert": str(file), "key": str(file)}
    return {
        "port": 6443,
        "advertise_address": "192.0.2.1",
        "tls": {**pair, "client_ca": str(file)},
        "etcd": {"endpoints": ["https://127.0.0.1:2379"], "ca": str(file), **pair},
        "service_cidr": "100.0.0.0/24",
    }


def test_a_whole_configuration(given: dict[str, Any]):
    read = settings.read(Configuration(given, "x"))
    assert (read.port, read.listen_address, read.reconciler_client) == (6443, "0.0.0.0", None)
    assert read.etcd_tls is not None


@pytest.mark.parametrize(
    ("said", "place"),
    [("localhost", "localhost"), ("api.example.org", "api.example.org"), ("192.0.2.1", "192.0.2.1"), ("0::0", "::")],
)
def test_a_server_listens_at_an_address_or_a_name(given: dict[str, Any], said: str, place: str):
    assert settings.read(Configuration({**given, "listen_address": said}, "x")).listen_address == place


def test_tokens_live_a_day_unless_it_says_otherwise(given: dict[str, Any]):
    for more, expected in (({}, 86_400), ({"max_token_seconds": 3600}, 3600)):
        accounts = settings.read(Configuration({**given, "service_accounts": {"signing_key": __file__, **more}}, "x"))
        assert accounts.service_accounts is not None
        assert accounts.service_accounts.max_token_s == expected


def test_the_name_servers_address_is_known_in_its_shortest_form(given: dict[str, Any]):
    assert settings.read(Configuration(given, "x")).name_server == ""
    told = {**given, "dns": {"listen": "FD00:169:254:20:0::10"}}
    assert settings.read(Configuration(told, "x")).name_server == "fd00:169:254:20::10"


def test_a_server_of_ipv6_has_services_of_ipv6(given: dict[str, Any]):
    six = {**given, "advertise_address": "FD00:0::21", "service_cidr": "fd00:10:96::/112"}
    read = settings.read(Configuration(six, "x"))
    assert (read.advertise_address, str(read.service_cidr)) == ("fd00::21", "fd00:10:96::/112")


@pytest.mark.parametrize("address", ["fe80::1", "::ffff:192.0.2.1", "fd00::1%eth0"])
def test_a_server_advertises_no_address_of_a_link_or_of_ipv4_in_disguise(given: dict[str, Any], address: str):
    six = {**given, "advertise_address": address, "service_cidr": "fd00:10:96::/112"}
    with pytest.raises(ConfigurationError, match="no address that others can reach"):
        settings.read(Configuration(six, "x"))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("port", 0, "port must be 1 to 65535"),
        ("port", "x", "port must be an integer"),
        ("advertise_address", "::1", "must be an IPv4 address, as service_cidr 100.0.0.0/24 is"),
        ("listen_address", "[::]", "listen_address must be an IP address, or a name"),
        ("listen_address", "127.0.0.1:6443", "listen_address must be an IP address, or a name"),
        ("advertise_address", None, "advertise_address is missing"),
        ("service_cidr", "100.0.0.1/24", "has host bits set"),
        ("service_cidr", "100.0.0.0/31", "too small"),
        ("service_cidr", "fd00:10:96::/112", "must be an IPv6 address, as service_cidr fd00:10:96::/112 is"),
        ("service_cidr", "fd00:10:96::/127", "too small"),
        ("service_cidr", "fd00:10:96::1/112", "must be an IPv6 network such as"),
        ("tls", {"cert": "/nowhere", "key": "/nowhere", "client_ca": "/nowhere"}, "cannot read /nowhere"),
        ("tls", {}, "tls.cert is missing"),
        ("etcd", {}, "etcd.endpoints is missing"),
        ("service_accounts", {"signing_key": __file__, "max_token_seconds": 3599}, "max_token_seconds must be 3600"),
        ("service_accounts", {"signing_key": __file__, "max_token_seconds": 1 << 33}, "max_token_seconds must be 3600"),
        ("dns", {"listen": "ns.example"}, "dns.listen must be an IP address"),
        ("workers", -1, "workers must be 1 to 8, or 0 for as many as suit the machine, not -1"),
        ("workers", 9, "workers must be 1 to 8, or 0 for as many as suit the machine, not 9"),
        ("limits", {"watches_per_user": 0}, "limits.watches_per_user must be at least 1, not 0"),
        ("limits", {"bytes_per_user": 1000}, "limits.bytes_per_user must be at least 4194304"),
    ],
)
def test_what_cannot_be_used_is_named(given: dict[str, Any], key: str, value: object, message: str):
    with pytest.raises(ConfigurationError, match=message):
        settings.read(Configuration({**given, key: value}, "x"))


@pytest.mark.parametrize(
    ("cores", "memory_bytes", "workers"),
    [(1, 64_000_000_000, 1), (2, 3_999_999_999, 1), (2, 4_000_000_000, 2), (64, 64_000_000_000, 2)],
)
def test_a_machine_gets_the_workers_that_suit_it(cores: int, memory_bytes: int, workers: int):
    assert settings.suitable_workers(cores, memory_bytes) == workers


def test_who_says_nothing_of_workers_has_one_and_0_asks_the_machine(given: dict[str, Any], monkeypatch):
    monkeypatch.setattr(settings, "suitable_workers", lambda _cores, memory_bytes: 7 if memory_bytes > 1 << 20 else 1)
    assert settings.read(Configuration(given, "x")).workers == 1
    assert settings.read(Configuration({**given, "workers": 0}, "x")).workers == 7


def test_workers_share_threads_and_limits(given: dict[str, Any]):
    one = settings.read(Configuration(given, "x"))
    assert one.of_worker() is one
    half = settings.read(Configuration({**given, "workers": 2}, "x")).of_worker()
    eighth = settings.read(Configuration({**given, "workers": 8}, "x")).of_worker()
    assert OF_ONE[USER] * eighth.threads == 4  # one slow call does not hold up a user's others
    assert half.threads == one.threads // 2
    for field in fields(settings.Limits):
        assert getattr(half.limits, field.name) * 2 == getattr(one.limits, field.name)


def test_a_share_is_never_nothing(given: dict[str, Any]):
    limits = {"watches_per_user": 3, "bytes_per_user": settings.LEAST_LIMIT_BYTES}
    share = settings.read(Configuration({**given, "workers": 8, "threads": 4, "limits": limits}, "x")).of_worker()
    assert (share.threads, share.limits.watches_per_user) == (4, 1)
    assert share.limits.bytes_per_user == settings.LEAST_LIMIT_BYTES
