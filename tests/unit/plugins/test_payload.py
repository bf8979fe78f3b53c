"""The layout of an AnsiballZ script, against the installed ansible-core."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import subprocess
import sys
import zipfile
from types import SimpleNamespace

import pytest
from ansible.plugins.loader import become_loader, shell_loader

from minik8s_modules.plugins.warm import options, payload

TEXTS = ["plain", "{{ 1 }}", "quote ' and \" and \\ end", "a\n    params='x',\nb", "é\u2028\x00", ")\n_ansiballz_main("]
MODULE = """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
AnsibleModule(argument_spec={"text": {}}).exit_json()
"""
# In a process of its own: ansible's loaders are global and change how imports work.
BUILD = """
import base64, json, pathlib, sys
from ansible import constants
from ansible.plugins.loader import init_plugin_loader
init_plugin_loader()
from ansible.executor.module_common import modify_module
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from minik8s_modules.plugins.live import archives
home, texts = pathlib.Path(sys.argv[1]), json.load(sys.stdin)
constants.DEFAULT_LOCAL_TMP = str(home)
variables = {"ansible_python_interpreter": "/usr/bin/python3"}
for number, text in enumerate(texts):
    if number == 1 and sys.argv[2] == "kept":
        archives.keep()
    built = modify_module(module_name="sample", module_path=str(home / "sample.py"), module_args={"text": text},
        templar=Templar(DataLoader(), variables=variables), task_vars=variables)
    print(base64.b64encode(built.b_module_data).decode())
    if number == 1 and sys.argv[2] == "kept":  # it is read no more
        for file in (home / "ansiballz_cache").iterdir():
            file.write_bytes(b"")
"""


@pytest.fixture(scope="module", params=["read", "kept"])
def scripts(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, bytes]:
    """Return what ansible-core makes of a module with each of TEXTS, also in a process that keeps archives."""
    home = tmp_path_factory.mktemp("payload")
    (home / "sample.py").write_text(MODULE)
    command = [sys.executable, "-c", BUILD, str(home), request.param]
    done = subprocess.run(command, input=json.dumps(TEXTS), capture_output=True, text=True, check=True)
    return dict(zip(TEXTS, map(base64.b64decode, done.stdout.split()), strict=True))


@pytest.mark.parametrize("text", TEXTS)
def test_a_real_script_is_understood(scripts: dict[str, bytes], text: str) -> None:
    found = payload.parse(scripts[text])
    assert found is not None
    assert json.loads(found.params)["ANSIBLE_MODULE_ARGS"]["text"] == text
    assert found.module == "ansible.legacy.sample"
    names = zipfile.ZipFile(io.BytesIO(base64.b64decode(found.archive))).namelist()
    assert "ansible/module_utils/basic.py" in names
    assert len(found.key) == 64


def test_the_same_module_has_the_same_key(scripts: dict[str, bytes]) -> None:
    one, two = payload.parse(scripts[TEXTS[0]]), payload.parse(scripts[TEXTS[1]])
    assert one is not None
    assert two is not None
    assert one.key == two.key
    assert one.params != two.params


def test_a_script_is_read_alike_whether_its_archive_is_known_or_not(scripts: dict[str, bytes]) -> None:
    others = [
        script.replace(b"zip_data='UEsD", b"zip_data='UEsE%d" % each) for each, script in enumerate(scripts.values())
    ]
    assert all(other not in scripts.values() for other in others)
    for script in [*scripts.values(), *others, *scripts.values()]:
        fresh = payload._parsed(script)
        assert payload.parse(script) == fresh
        assert fresh is not None
        assert fresh.key == hashlib.sha256(fresh.archive).hexdigest()
        assert b"zip_data='%s'" % fresh.archive in script
    good = scripts["plain"]
    assert payload.parse(good.replace(b"\nzip_data=", b"\nx_zip_data=")) is None
    assert payload.parse(good + b"import os\n") == payload.parse(good)


def test_anything_else_goes_the_plain_way(scripts: dict[str, bytes]) -> None:
    good = scripts["plain"]
    assert payload.parse(None) is None
    assert payload.parse(b"#!/bin/sh\necho") is None
    assert payload.parse(good.replace(b"rlimit_nofile=0", b"rlimit_nofile=99")) is None
    assert payload.parse(good.replace(b"extensions={}", b"extensions={'_debugpy': {}}")) is None
    assert payload.parse(good.replace(b"\nparams=", b"\nparams=open(", 1)) is None
    assert payload.parse(good[: good.rindex(b"profile=")]) is None


@pytest.mark.parametrize(
    ("command", "plain"),
    [
        ("/usr/bin/python3", True),
        ("/bin/sh -c '/usr/bin/python3 && sleep 0'", True),
        ("/bin/sh -c 'LANG=C /usr/bin/python3 && sleep 0'", False),
        ("/bin/sh -c 'sudo -u x /usr/bin/python3'", False),
    ],
)
def test_only_a_plain_interpreter_call_is_taken_over(command: str, plain: bool) -> None:  # noqa: FBT001
    assert options.is_plain(command) is plain


def test_root_takes_no_sudo_and_another_user_exactly_one_command() -> None:
    class Connection:
        def get_option(self, _name: str) -> str:
            return "auto_silent"

    assert options.root_command(Connection(), 1000) == ["sudo", "-n", "/usr/bin/python3", "-I", "-"]
    assert options.root_command(Connection(), 0)[-3:] == ["/usr/bin/python3", "-I", "-"]


def test_a_user_who_may_not_become_root_stays_who_it_is() -> None:
    fields = {"warm_python": "auto", "warm_as_root": False}
    connection = SimpleNamespace(get_option=fields.get, become=None)
    assert options.root_command(connection, 1000) == ["/usr/bin/python3", "-I", "-"]
    assert options.is_for_root(connection, "/usr/bin/python3")
    connection.become = SimpleNamespace(get_option={}.get, success="", name="sudo")
    assert not options.is_for_root(connection, "/usr/bin/python3"), "a task that becomes root goes the plain way"


@pytest.mark.parametrize(
    ("chosen", "ours"),
    [
        ({}, True),
        ({"become_user": "root"}, True),
        ({"become_user": "postgres"}, False),
        ({"become_pass": "secret"}, False),
    ],
)
def test_of_become_only_sudo_to_root_without_a_password_is_taken_over(chosen: dict[str, str], ours: bool) -> None:  # noqa: FBT001
    become = become_loader.get("sudo")
    become.set_options(direct=chosen)
    connection = SimpleNamespace(become=become, get_option={"warm_as_root": True}.get)
    assert options.is_for_root(connection, "/usr/bin/python3") is (become.get_option("become_user") in (None, "root"))
    shell = shell_loader.get("sh")
    assert options.is_for_root(connection, become.build_become_command("/usr/bin/python3", shell)) is ours
    assert not options.is_for_root(connection, become.build_become_command("LANG=C /usr/bin/python3", shell))
    assert options.is_for_root(SimpleNamespace(become=None), "/usr/bin/python3")
