"""Configuration files: errors name file and key, and a key that nobody reads is found."""

from __future__ import annotations

import pytest

from minik8s_modules.base.config import Configuration, load
from minik8s_modules.base.errors import ConfigurationError


def test_a_key_that_nobody_looked_up_is_told_with_its_path():
    configuration = Configuration(
        {"port": 1, "tls": {"cert": "c", "kye": "k"}, "plan": {"listen": "x"}, "prot": 2}, "f"
    )
    assert configuration.number("port") == 1
    assert configuration.text("tls.cert") == "c"
    assert configuration.has("plan")
    assert configuration.unread() == ["tls.kye", "prot"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port: [", "is not valid YAML"),
        ("- a", "must hold a mapping"),
        ("port: true", "port must be an integer, not True"),
        ("port: x", "port must be an integer, not str"),
        ("{}", "port is missing; add it"),
    ],
)
def test_what_cannot_be_used_is_told_with_file_and_key(tmp_path, text, message):
    file = tmp_path / "daemon.yml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=r"daemon\.yml") as result:
        load(file).number("port")
    assert message in str(result.value)


def test_networks_are_told_from_what_is_none():
    configuration = Configuration({"pods": "10.215.0/16", "services": "100.64.0.0/16", "none": ""}, "reconciler.yml")
    assert configuration.network("services") == "100.64.0.0/16"
    assert configuration.network("none", may_be_empty=True) == ""
    assert configuration.network("absent", "10.244.0.0/16") == "10.244.0.0/16"
    with pytest.raises(ConfigurationError, match=r"reconciler\.yml: pods must be an IPv4 network such as .*10\.215\.0"):
        configuration.network("pods")
    with pytest.raises(ConfigurationError, match=r"none must be an IPv4 network"):
        configuration.network("none")
