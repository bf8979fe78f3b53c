"""Packed modules are taken from the checkout by the next run, and from nobody else's folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from minik8s_modules.plugins.callback import minik8s_built_modules as built

REPOSITORY = Path(__file__).parents[3]
PLUGIN = Path("minik8s_modules/plugins/callback/minik8s_built_modules.py")
PLAY = "- hosts: localhost\n  connection: local\n  gather_facts: false\n  tasks: [{name: It answers, own: {}}]\n"
OWN = """
from ansible.module_utils.basic import AnsibleModule
AnsibleModule({}).exit_json(changed=False, told="%s")
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one module."""
    for name in ("ansible.cfg", PLUGIN):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, tmp_path / name)
    for name in ("library", "minik8s_modules/module_utils", ".cache"):
        (tmp_path / name).mkdir(mode=0o755)
    (tmp_path / "play.yml").write_text(PLAY)
    (tmp_path / "library/own.py").write_text(OWN % "first")
    return tmp_path


def run(checkout: Path) -> str:
    """Run the playbook and return what was printed."""
    argv = [str(Path(sys.executable).with_name("ansible-playbook")), "-v", "-i", "localhost,", "play.yml"]
    argv += ["-e", f"ansible_python_interpreter={sys.executable}"]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(checkout / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(argv, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def packed(checkout: Path) -> dict[Path, int]:
    """Return the inodes of the packed modules that are kept."""
    return {path: path.stat().st_ino for path in checkout.glob(".cache/modules/*/*own*") if path.suffix != ".lock"}


def test_the_next_run_takes_what_is_packed_until_a_source_changes(checkout: Path) -> None:
    assert "told: first" in run(checkout)
    first = packed(checkout)
    assert len(first) == 1
    assert "told: first" in run(checkout)
    assert packed(checkout) == first
    (checkout / "library/own.py").write_text(OWN % "second")
    assert "told: second" in run(checkout)
    assert len(packed(checkout)) == 2
    shutil.rmtree(checkout / ".cache")
    assert "told: second" in run(checkout)
    assert not (checkout / ".cache").exists(), "the installed programs have none, and get none"


def test_what_others_may_write_is_not_taken(tmp_path: Path) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir(mode=0o755)
    link.symlink_to(folder)
    assert built.is_ours(folder)
    assert not built.is_ours(link)
    assert not built.is_ours(tmp_path / "none")
    place = tmp_path / "place"
    for writable in (folder, folder / "digest"):
        writable.mkdir(exist_ok=True)
        writable.chmod(0o777)
        built.share(folder / "digest", place)
        assert not place.is_symlink(), writable
        writable.chmod(0o755)
    built.share(folder / "digest", place)
    assert place.readlink() == folder / "digest"


def test_what_is_packed_has_the_name_of_all_it_is_packed_from(tmp_path: Path) -> None:
    names = {built.digest([tmp_path])}
    (tmp_path / "wing").mkdir()
    for text in ("", "import os", "import sys"):
        (tmp_path / "wing/one.py").write_text(text)
        names.add(built.digest([tmp_path]))
    (tmp_path / "wing/one.py").rename(tmp_path / "one.py")
    names.add(built.digest([tmp_path]))
    assert len(names) == 5


def test_only_what_nobody_used_for_long_is_removed(tmp_path: Path) -> None:
    for name, used_s in (("own", 0), ("old", 10), ("new", 30)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (used_s, used_s))
    built.prune(tmp_path / "own", 20)
    assert {path.name for path in tmp_path.iterdir()} == {"own", "new"}


def test_what_was_packed_while_sources_changed_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "packed").touch()
    plugin = built.CallbackModule()
    plugin._kept = kept
    monkeypatch.setattr(built, "digest", lambda _folders: "kept")
    plugin.v2_playbook_on_stats(None)
    assert (kept / "packed").exists()
    monkeypatch.setattr(built, "digest", lambda _folders: "other")
    plugin.v2_playbook_on_stats(None)
    assert [*kept.iterdir()] == [], "the folder stays: the link of another run may lead to it"


def test_what_a_killed_run_packed_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "packed").touch()
    built.begin(tmp_path, os.getpid())
    built.begin(tmp_path, 1)
    assert (tmp_path / "packed").exists()
    (tmp_path / "run-4194305").touch()  # above the largest pid there is
    built.begin(tmp_path, os.getpid())
    assert [path.name for path in tmp_path.iterdir()] == [f"run-{os.getpid()}"]
