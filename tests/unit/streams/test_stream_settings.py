"""``streams`` in gateway.yml, and streams.yml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.gateway.main import streams_of
from minik8s_modules.gateway.streams.handing import uid_of
from minik8s_modules.gateway.streams.signatures import Signatures
from minik8s_modules.streams.main import server_of

OWN = {"cert": "/c", "key": "/k", "client_ca": "/a", "gateway_socket": "/s"}


def settings(**streams: Any) -> Configuration:
    return Configuration({"run_dir": "/run/x", "streams": {"client_ca": "/a", **streams}}, "gateway.yml")


def test_without_streams_none_are_served() -> None:
    assert streams_of(Configuration({}, "gateway.yml")) is None


def test_the_gateway_hands_over_to_one_user_at_a_socket_of_its_own() -> None:
    found = streams_of(settings(advertise="10.0.0.1:7"))
    assert found is not None
    assert (found.socket, found.user) == (Path("/run/x/streams.sock"), "minik8s-streams")
    assert found.endpoint() == "https://10.0.0.1:7"
    found = streams_of(settings(advertise="10.0.0.1:7", socket="/s", user="u", server_name="n"))
    assert found is not None
    assert (found.socket, found.user, found.endpoint()) == (Path("/s"), "u", "https://10.0.0.1:7#n")


@pytest.mark.parametrize("place", ["6446", ":6446", "host:", "host:x", "host:65536"])
def test_an_address_that_is_none_is_named(place: str) -> None:
    with pytest.raises(ConfigurationError, match=r"streams\.advertise must be HOST:PORT"):
        streams_of(settings(advertise=place))
    with pytest.raises(ConfigurationError, match=r"streams\.yml: listen must be HOST:PORT"):
        server_of(Configuration({**OWN, "listen": place}, "streams.yml"))


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="streams: cert, key or client_ca cannot be used"):
        server_of(Configuration({**OWN, "listen": "127.0.0.1:0"}, "streams.yml"))
    with pytest.raises(ConfigurationError, match=r"streams\.client_ca: .* cannot be used"):
        Signatures(tmp_path / "none")
    with pytest.raises(ConfigurationError, match=r"streams\.user: there is no user nobody-there"):
        uid_of("nobody-there")


@pytest.mark.parametrize("content", [b"", b"no certificate", b"\xff", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_an_authority_that_cannot_be_read_is_told_at_the_start(tmp_path: Path, content: bytes) -> None:
    """The first stream makes what checks signatures, and would be the first to notice."""
    authority = tmp_path / "ca.crt"
    authority.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"streams\.client_ca: .*ca\.crt cannot be used"):
        Signatures(authority)
