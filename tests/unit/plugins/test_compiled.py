"""Compiled code that one interpreter leaves for the next: by source, and from a file that nobody else can write."""

from __future__ import annotations

import marshal
import os
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.plugins.warm import client, compiled
from minik8s_modules.plugins.warm.payload import Payload
from tests.support.waiting import until
from tests.unit.plugins.test_warm_calls import archive

IMPORTING = """
import builtins, sys
made, compiling = builtins.compile, []
builtins.compile = lambda *args, **more: compiling.append(args[1]) or made(*args, **more)
compiled = module.Compiled(sys.argv[2])
compiled.install()
sys.path.insert(0, sys.argv[1])
with compiled.importing(sys.argv[1]):
    from ansible.module_utils import thing
print(thing.VALUE, thing.__file__.removeprefix(sys.argv[1]), sum(name.startswith(sys.argv[1]) for name in compiling))
"""
NAME = "ansible.module_utils.thing"


class Node:
    """A folder with an archive and the file of code."""

    def __init__(self, folder: Path) -> None:
        self._archive, self.kept = folder / "a.zip", folder / "code"

    def value(self, source: str) -> str:
        """Return what an interpreter of its own finds in an archive with this source."""
        return self.imported(source)[0]

    def imported(self, source: str, before: str = "") -> list[str]:
        """Return that, the file it believes that to come from, and how many files it has compiled."""
        with zipfile.ZipFile(self._archive, "w") as file:
            for name in ("ansible", "ansible/module_utils"):
                file.writestr(f"{name}/__init__.py", "")
            file.writestr("ansible/module_utils/thing.py", source)
        script = client.shipped("compiled") + "import sys\n" + before + IMPORTING
        argv = [sys.executable, "-I", "-S", "-", str(self._archive), str(self.kept)]
        done = subprocess.run(argv, input=script, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    def swap(self) -> None:
        """Have the file say something else of what is in it, so that one sees whether it is asked."""
        code = self.codes()
        for key in code:
            if key.startswith(NAME):
                code[key] = marshal.dumps(compile("VALUE = 'kept'", "thing.py", "exec"))
        self.kept.write_bytes(MAGIC_NUMBER + marshal.dumps(code))

    def codes(self) -> dict[str, bytes]:
        """Return what is in the file."""
        data = self.kept.read_bytes()
        assert data.startswith(MAGIC_NUMBER)
        found: dict[str, bytes] = marshal.loads(data[len(MAGIC_NUMBER) :])
        return found


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_the_next_interpreter_takes_code_of_the_same_source(node: Node) -> None:
    assert node.value("VALUE = 'old'") == "old"
    assert node.kept.stat().st_mode & 0o777 == 0o600
    node.swap()
    assert node.value("VALUE = 'old'") == "kept"


def test_no_file_is_compiled_twice_and_none_that_is_known(node: Node) -> None:
    place = "/ansible/module_utils/thing.py"
    assert node.imported("VALUE = 'old'") == ["old", place, "3"]
    assert node.imported("VALUE = 'old'") == ["old", place, "0"]


def test_another_source_is_compiled_and_kept_beside(node: Node) -> None:
    node.value("VALUE = 'old'")
    node.swap()
    assert node.value("VALUE = 'new'") == "new"
    assert sum(key.startswith(NAME) for key in node.codes()) == 2
    assert node.value("VALUE = 'old'") == "kept"


def test_what_a_killed_writer_left_keeps_nobody_from_writing(node: Node) -> None:
    left = "import os; open(sys.argv[2] + '.' + str(os.getpid()), 'x')\n"
    assert node.imported("VALUE = 'old'", before=left)[0] == "old"
    assert node.codes()
    assert [path.name for path in node.kept.parent.glob("code*")] == ["code"]


def test_a_server_clears_what_killed_writers_left(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    kept = [tmp_path / name for name in ("code", f"code.{os.getpid()}", "code.txt", "decode.1")]
    for path in (*kept, tmp_path / f"code.{ended.pid}"):
        path.touch()
    compiled.clear(str(tmp_path / "code"))
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def _open_to_others(node: Node) -> None:
    node.kept.chmod(0o644)


def _of_another_user(node: Node) -> None:
    if os.geteuid():
        pytest.skip("only root gives files away")
    os.chown(node.kept, 12345, -1)


def _a_link(node: Node) -> None:
    node.kept.rename(node.kept.with_name("elsewhere"))
    node.kept.symlink_to(node.kept.with_name("elsewhere"))


def _cut_off(node: Node) -> None:
    node.kept.write_bytes(node.kept.read_bytes()[:40])


def _of_another_python(node: Node) -> None:
    node.kept.write_bytes(b"\0\0\0\0" + node.kept.read_bytes()[4:])


def _no_mapping(node: Node) -> None:
    node.kept.write_bytes(MAGIC_NUMBER + marshal.dumps([1]))


@pytest.mark.parametrize(
    "harm", [_open_to_others, _of_another_user, _a_link, _cut_off, _of_another_python, _no_mapping]
)
def test_a_file_that_is_not_ours_or_not_whole_is_not_believed(node: Node, harm: Any) -> None:
    node.value("VALUE = 'old'")
    node.swap()
    harm(node)
    assert node.value("VALUE = 'old'") == "old"


@pytest.mark.parametrize("keep_code", [True, False])
def test_what_is_compiled_stays_on_the_node_where_that_was_asked_for(*, keep_code: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="mk8s-") as folder:  # sockets need short paths
        directory = Path(folder) / "w"
        script = client.server_script(str(directory), 1.0, keep_code=keep_code)

        def start() -> None:  # a server may end before a busy machine has called it
            subprocess.run(["/usr/bin/python3", "-I", "-"], input=script, check=True, capture_output=True)

        payload = Payload(archive("minik8s_thing"), "ansible.legacy.minik8s_thing", "legacy", "{}")
        answer = client.run(client.server_path(str(directory)), payload, start)
        assert answer is not None
        assert answer.code == 0
        until(lambda: left(directory) == (["code"] if keep_code else None), 120)


def left(directory: Path) -> list[str] | None:
    """Return the names in a directory, None where it is gone."""
    return [path.name for path in directory.iterdir()] if directory.exists() else None
