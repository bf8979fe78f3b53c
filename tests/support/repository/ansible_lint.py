"""``python -m tests.support.repository.ansible_lint``: ansible-lint, the syntax of all playbooks in one process.

ansible-lint starts an ``ansible-playbook --syntax-check`` for each, 100 of them, which is three quarters of its time.
Where the one process finds a fault, ansible-lint's own look at each says where it is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from ansiblelint import runner
from ansiblelint.__main__ import main

_each = runner.Runner._run_syntax_check_phase


def _at_once(self: Any, matches: list[Any]) -> list[Any]:
    """Do what ``_run_syntax_check_phase`` does, for all files by one process while they are right."""
    files = self._collect_syntax_check_files()
    playbooks = [str(one.path.absolute()) for one in files if one.kind == "playbook"]
    roles = [str(one.path.absolute()) for one in files if one.kind == "role"]
    return files if _right(playbooks, roles) else _each(self, matches)


def _right(playbooks: Sequence[str], roles: Sequence[str]) -> bool:
    tasks = [{"name": "Import", "ansible.builtin.import_role": {"name": role}} for role in roles]
    with tempfile.TemporaryDirectory() as folder:
        of_roles = Path(folder) / "roles.yml"
        of_roles.write_text(yaml.safe_dump([{"name": "All roles", "hosts": "localhost", "tasks": tasks}]))
        argv = [str(Path(sys.executable).with_name("ansible-playbook")), "--syntax-check", str(of_roles), *playbooks]
        environment = {**os.environ, "ANSIBLE_LOCALHOST_WARNING": "False"}
        return subprocess.run(argv, env=environment, capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    setattr(runner.Runner, _each.__name__, _at_once)
    sys.exit(main(["ansible-lint", *sys.argv[1:]]))
