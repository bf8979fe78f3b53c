"""``edit``: what was typed is saved, or opened again with the reason, or kept in a file."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.e2e.cli.conftest import Cli

# an editor that carries out one step of a list each time it is opened, and notes what it was shown
EDITOR = """
import pathlib, re, subprocess, sys
folder, file = pathlib.Path({folder!r}), pathlib.Path(sys.argv[-1])
number = len(list(folder.glob("shown-*")))
text = file.read_text()
(folder / f"shown-{{number}}").write_text(text)
exec((folder / f"step-{{number}}").read_text())
file.write_text(text)
"""


@pytest.fixture
def editor(cli: Cli, monkeypatch):
    """Sets the steps of the editor (Python that changes ``text``); returns what it was shown, time by time."""
    program = cli.folder / "editor.py"
    program.write_text(EDITOR.format(folder=str(cli.folder)))
    monkeypatch.setenv("KUBE_EDITOR", f"{sys.executable} {program}")
    monkeypatch.delenv("MINIK8S_EDITOR", raising=False)

    def steps(*codes: str):
        for number, code in enumerate(codes):
            (cli.folder / f"step-{number}").write_text(code)
        return lambda: [path.read_text() for path in sorted(cli.folder.glob("shown-*"))]

    cli("create", "cm", "c", "--from-literal", "k=v")
    return steps


def data(cli: Cli) -> str:
    return cli("get", "cm", "c", "-o", "jsonpath={.data}").out


def test_a_change_is_saved(cli: Cli, editor):
    shown = editor("text = text.replace('k: v', 'k: w')")
    assert cli("edit", "cm", "c").out == "configmap/c edited\n"
    assert data(cli) == '{"k":"w"}'
    assert "managedFields" not in shown()[0]
    assert shown()[0].startswith("# Please edit")


def test_nothing_changed_or_nothing_left_is_no_edit(cli: Cli, editor):
    editor("pass", "text = ''")
    assert cli("edit", "cm", "c").out == "Edit cancelled, no changes made.\n"
    assert cli("edit", "cm", "c").out == "Edit cancelled, no changes made.\n"
    assert data(cli) == '{"k":"v"}'


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("text = text.replace('k: v', 'k: [')", "# this is no valid YAML"),
        ("text = text.replace('k: v', 'k: 1')", "cannot unmarshal number"),
        ("text = text.replace('\\ndata:', '\\ndota:')", 'unknown field "dota"'),
        ("text = text.replace('name: c', 'name: d')", "# name must stay c"),
        ("text = text.replace('kind: ConfigMap', 'kind: Secret')", "# kind must stay ConfigMap"),
        ("text = 'nonsense'", "# an object is a mapping"),
    ],
)
def test_what_cannot_be_saved_is_opened_again_with_the_reason(cli: Cli, editor, wrong, told):
    repair = "text = open(str(folder / 'shown-0')).read().replace('k: v', 'k: good')"
    shown = editor(wrong, repair)
    assert cli("edit", "cm", "c").out == "configmap/c edited\n"
    assert told in shown()[1]
    assert data(cli) == '{"k":"good"}'


def test_who_gives_up_finds_the_text_in_a_file(cli: Cli, editor):
    editor("text = text.replace('k: v', 'k: 1')", "pass")
    done = cli("edit", "cm", "c", code=1)
    assert "Edit cancelled, no valid changes were saved." in done.err
    found = re.search(r"a copy of your changes is in (\S+)", done.err)
    assert found
    kept = Path(found[1])
    assert "k: 1" in kept.read_text()
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.unlink()


def test_a_change_meanwhile_is_opened_with_ones_own_on_top(cli: Cli, editor):
    patch = ("kubectl", "patch", "cm", "c", "-n", cli.namespace, "--type", "merge", "-p", '{"data":{"theirs":"x"}}')
    command = cli.server.kubectl_argv(*patch[1:])
    shown = editor(
        f"text = text.replace('k: v', 'k: mine'); subprocess.run({command!r}, check=True)", "text = text + ''"
    )
    done = cli("edit", "cm", "c", code=None)
    assert "changed by others meanwhile" in shown()[1]
    assert "theirs: x" in shown()[1]
    assert "k: mine" in shown()[1]
    assert done.out == "configmap/c edited\n", done
    assert data(cli) == '{"k":"mine","theirs":"x"}'


def test_an_editor_that_fails_saves_nothing(cli: Cli, monkeypatch):
    cli("create", "cm", "c", "--from-literal", "k=v")
    monkeypatch.setenv("KUBE_EDITOR", "/bin/false")
    assert "failed with 1; nothing was saved" in cli("edit", "cm", "c", code=1).err
    monkeypatch.setenv("KUBE_EDITOR", "/nowhere/editor")
    assert "cannot start the editor" in cli("edit", "cm", "c", code=1).err
