"""Where a Service's webhook is asked: at addresses of IPv4, and of IPv6 where it has no others."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api.kinds import ENDPOINT_SLICE, SERVICE
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.serving.startup import Startup
from minik8s_modules.apiserver.verbs import writing
from minik8s_modules.apiserver.webhooks.places import Client, Unreachable, addresses_of, new_context
from tests.support.pki import Authority
from tests.unit.apiserver.serving.test_startup import SETTINGS

HOOK = Client("hook.default.svc", 443, "/", "", "default", "hook")


def asked(backend: Backend, options: Options, slices: dict[str, list[str]]) -> list[str]:
    Startup(backend, SETTINGS).ensure()
    service: dict[str, Any] = {"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}]}}
    writing.create(backend, Target(SERVICE, "default"), service, options)
    for family, addresses in slices.items():
        labels = {"kubernetes.io/service-name": "hook"}
        one = {
            "metadata": {"name": family.lower(), "labels": labels},
            "addressType": family,
            "endpoints": [{"addresses": [address]} for address in addresses],
            "ports": [{"name": "", "port": 8443}],
        }
        writing.create(backend, Target(ENDPOINT_SLICE, "default"), one, options)
    return sorted(one.host for one in addresses_of(backend.cache, HOOK))


@pytest.mark.parametrize(
    ("slices", "hosts"),
    [
        ({"IPv4": ["10.244.0.7"], "IPv6": ["fd00::7"]}, ["10.244.0.7"]),
        ({"IPv4": [], "IPv6": ["fd00::7", "fd00::8"]}, ["fd00::7", "fd00::8"]),
    ],
)
def test_a_hook_is_asked_by_ipv6_where_it_has_no_ipv4(
    backend: Backend, options: Options, slices: dict[str, list[str]], hosts: list[str]
) -> None:
    assert asked(backend, options, slices) == hosts


def test_a_hook_without_endpoints_is_unreachable(backend: Backend, options: Options) -> None:
    with pytest.raises(Unreachable, match="no endpoints available"):
        asked(backend, options, {"IPv6": []})


def test_the_host_that_is_asked_for_stands_in_brackets() -> None:
    assert [Client(host, port, "/", "").host for host, port in (("fd00::7", 443), ("fd00::7", 8443), ("h", 443))] == [
        "[fd00::7]",
        "[fd00::7]:8443",
        "h",
    ]


def test_an_authority_may_have_comments_of_any_letters(tmp_path: Path) -> None:
    written = "# Zürich\n".encode() + Authority(tmp_path, "hooks").ca.read_bytes()
    (trusted,) = new_context(base64.b64encode(written).decode()).get_ca_certs()
    assert trusted["subject"] == ((("commonName", "hooks"),),)


def test_an_authority_that_is_only_a_comment_is_not_the_systems() -> None:
    with pytest.raises(Unreachable, match="unable to load root certificates"):
        new_context(base64.b64encode("é".encode()).decode())
