"""``streams`` in gateway.yml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.gateway.main import streams_of

FILES = {"cert": "/c", "key": "/k", "client_ca": "/a"}


def settings(**streams: Any) -> Configuration:
    return Configuration({"streams": {**FILES, **streams}}, "gateway.yml")


def test_without_streams_none_are_served() -> None:
    assert streams_of(Configuration({}, "gateway.yml")) is None


def test_what_is_advertised_is_what_is_listened_on_unless_told_otherwise() -> None:
    found = streams_of(settings(listen="0.0.0.0:6446", advertise="10.0.0.1:7"))
    assert found is not None
    assert (found.host, found.port, found.advertise) == ("0.0.0.0", 6446, "10.0.0.1:7")
    assert found.files.key == Path("/k")
    found = streams_of(settings(listen="127.0.0.1:6446"))
    assert found is not None
    assert found.advertise == "127.0.0.1:6446"


@pytest.mark.parametrize("listen", ["6446", ":6446", "host:", "host:x", "host:65536"])
def test_an_address_that_is_none_is_named(listen: str) -> None:
    with pytest.raises(ConfigurationError, match=r"streams\.listen must be HOST:PORT"):
        streams_of(settings(listen=listen))


def test_a_certificate_that_is_missing_is_named(tmp_path: Path) -> None:
    found = streams_of(settings(listen="127.0.0.1:0", cert=str(tmp_path / "none")))
    assert found is not None
    with pytest.raises(ConfigurationError, match="streams: certificate, key or client_ca cannot be used"):
        found.server(lambda _: None)
