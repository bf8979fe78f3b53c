"""How a template takes over what another has imported; each case in an interpreter of its own, as on a node."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from minik8s_modules.plugins.warm import client

BASE = {
    "ansible/__init__.py": "",
    "ansible/module_utils/__init__.py": "",
    "ansible/module_utils/thing.py": "VALUE = 'old'",
}
SIBLING = """
import sys
globals().update(vars(module))
old, new = sys.argv[1:]
sys.path.insert(0, old)
import_all(old)
loaded = sys.modules["ansible.module_utils.thing"]
sys.path.remove(old)
keep_imports([old], new)
sys.path.insert(0, new)
import_all(new)
from ansible.module_utils import thing
names = sorted(name for name in sys.modules if name.startswith("ansible."))
print(thing.VALUE, "kept" if thing is loaded else "anew", *names)
"""


def zipped(path: Path, files: dict[str, str]) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return str(path)


def sibling(tmp_path: Path, old: dict[str, str], new: dict[str, str]) -> list[str]:
    paths = [zipped(tmp_path / name, files) for name, files in (("old.zip", old), ("new.zip", new))]
    source = client.shipped("leftovers", "compiled", "imports", "calls") + SIBLING
    argv = ["/usr/bin/python3", "-I", "-S", "-", *paths]
    done = subprocess.run(argv, input=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_equal_code_is_kept_and_new_code_is_imported(tmp_path: Path) -> None:
    more = {
        "ansible/module_utils/more.py": "from . import thing",
        "ansible/modules/__init__.py": "",
        "ansible/modules/m.py": "",
    }
    assert sibling(tmp_path, BASE, {**BASE, **more}) == [
        "old",
        "kept",
        "ansible.module_utils",
        "ansible.module_utils.more",
        "ansible.module_utils.thing",
        "ansible.modules",
    ]


def test_changed_code_is_imported_anew(tmp_path: Path) -> None:
    changed = {**BASE, "ansible/module_utils/thing.py": "VALUE = 'new'"}
    assert sibling(tmp_path, BASE, changed)[:2] == ["new", "anew"]


def test_code_that_is_not_in_the_new_archive_is_forgotten(tmp_path: Path) -> None:
    extra = {**BASE, "ansible/module_utils/extra.py": ""}
    assert "ansible.module_utils.extra" not in sibling(tmp_path, extra, BASE)


@pytest.mark.parametrize("broken", ["syntax error here", "raise RuntimeError", "import nothing_of_that_name"])
def test_a_file_that_cannot_be_imported_stops_nothing(tmp_path: Path, broken: str) -> None:
    assert sibling(tmp_path, BASE, {**BASE, "ansible/module_utils/broken.py": broken})[:2] == ["old", "kept"]


def test_a_name_that_cannot_be_imported_does_not_keep_the_others_from_being_learnt() -> None:
    learn = 'module.import_names(["__mp_main__", "colorsys"])\nprint("colorsys" in sys.modules)'
    argv = ["/usr/bin/python3", "-I", "-S", "-"]
    source = client.shipped("leftovers", "compiled", "imports", "calls") + learn
    done = subprocess.run(argv, input=source, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True"], done.stderr


def test_another_source_has_another_socket() -> None:
    assert client.server_path("/run/x", b"a") != client.server_path("/run/x", b"b")
    assert client.server_path("/run/x", python="/opt/python") != client.server_path("/run/x")
    assert b"'idle_s': 7.5" in client.server_script("/run/x", 7.5)


def test_a_package_that_came_with_a_later_archive_is_found_in_the_new_one(tmp_path: Path) -> None:
    script = """
import sys
globals().update(vars(module))
first, later, new = sys.argv[1:]
sys.path.insert(0, first)
import_all(first)
share_imports([first], later)
import_all(later)
sys.path[:] = [entry for entry in sys.path if entry not in (first, later)]
keep_imports([first, later], new)
sys.path.insert(0, new)
from ansible.module_utils.inner import more
print(more.VALUE)
"""
    inner = {**BASE, "ansible/module_utils/inner/__init__.py": ""}
    paths = [
        zipped(tmp_path / "first.zip", BASE),
        zipped(tmp_path / "later.zip", inner),
        zipped(tmp_path / "new.zip", {**inner, "ansible/module_utils/inner/more.py": "VALUE = 'more'"}),
    ]
    argv = ["/usr/bin/python3", "-I", "-S", "-", *paths]
    source = client.shipped("leftovers", "compiled", "imports", "calls") + script
    done = subprocess.run(argv, input=source, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["more"], "")
