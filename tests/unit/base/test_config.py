"""Configuration files: errors name file and key, and a key that nobody reads is found."""

from __future__ import annotations

import subprocess
import sys

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


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ('{\n  "port": 1,\n  "to": ["a", null, "\\u00fc"]\n}\n', False),
        ("{port: 1, to: [a, null, ü]}", True),
        ("port: 1\nto: [a, null, ü]\n", True),
    ],
)
def test_what_is_json_needs_no_parser_of_yaml(tmp_path, text, parsed):
    file = tmp_path / "daemon.yml"
    file.write_text(text, encoding="utf-8")
    told = f"""
import pathlib, sys
from minik8s_modules.base.config import read_mapping
found = read_mapping(pathlib.Path({str(file)!r}), "configuration")
print(found == {{"port": 1, "to": ["a", None, "ü"]}}, "yaml" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout == f"True {parsed}\n"


def test_networks_are_told_from_what_is_none():
    configuration = Configuration({"pods": "10.215.0/16", "services": "100.64.0.0/16", "none": ""}, "reconciler.yml")
    assert configuration.network("services") == "100.64.0.0/16"
    assert configuration.network("none", may_be_empty=True) == ""
    assert configuration.network("absent", "10.244.0.0/16") == "10.244.0.0/16"
    with pytest.raises(ConfigurationError, match=r"reconciler\.yml: pods must be an IPv4 network such as .*10\.215\.0"):
        configuration.network("pods")
    with pytest.raises(ConfigurationError, match=r"none must be an IPv4 network"):
        configuration.network("none")
