"""The process that parses a node's streams has a user of its own, who must be able to start it."""

from __future__ import annotations

import os

import pytest

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.reconcile.standalone.stream_user import User, require_readable

US = User(os.geteuid(), os.getegid())


def test_a_user_who_can_read_the_installation_is_let_through():
    require_readable(US)


def test_an_interpreter_the_user_cannot_run_is_named():
    with pytest.raises(
        ConfigurationError, match=r"cannot run .* with /nowhere/python: No such file.*; install minik8s"
    ):
        require_readable(US, "/nowhere/python")


def test_a_package_the_user_cannot_import_is_told(tmp_path, monkeypatch: pytest.MonkeyPatch):
    package = tmp_path / "minik8s_modules"
    package.mkdir()
    (package / "__init__.py").write_text("raise PermissionError('closed')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match="PermissionError: closed; install minik8s where every user may read"):
        require_readable(US)
