"""ansible-doc prints a whole page for every module, plugin and role there is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[3]
PLUGINS = REPOSITORY / "minik8s_modules" / "plugins"


def names(folder: Path) -> list[str]:
    """Return the names of what a folder holds: Python files, or the folders of roles."""
    entries = [path for path in folder.iterdir() if not path.name.startswith("_")]
    return sorted(path.stem for path in entries if path.suffix == ".py" or path.is_dir())


KINDS = {
    "module": names(REPOSITORY / "library"),
    "connection": names(PLUGINS / "connection"),
    "inventory": names(PLUGINS / "inventory"),
    "strategy": names(PLUGINS / "strategy"),
}


def shown(kind: str, wanted: list[str]) -> dict[str, Any]:
    """Return what ``ansible-doc --json`` prints of them."""
    environment = {**os.environ, "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg")}
    roles = ["--roles-path", str(REPOSITORY / "roles")] if kind == "role" else []
    argv = [str(Path(sys.executable).parent / "ansible-doc"), "-t", kind, *roles, "--json", *wanted]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "ERROR" not in done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_has_a_description_options_and_examples(kind: str) -> None:
    pages = shown(kind, KINDS[kind])
    assert sorted(pages) == KINDS[kind]
    for name, page in pages.items():
        result = page["doc"]
        assert result["short_description"], name
        assert result["description"], name
        assert all(option["description"] for option in (result.get("options") or {}).values()), name
        assert name in page["examples"], name


def test_a_module_tells_what_it_returns() -> None:
    for name, page in shown("module", KINDS["module"]).items():
        assert page["return"], name
        assert all(value["description"] and value["returned"] for value in page["return"].values()), name


def test_a_warm_connection_has_the_options_of_the_one_it_is_derived_from() -> None:
    pages = shown("connection", ["warm_ssh", "warm_local", "ssh", "local"])
    for derived, stock in (("warm_ssh", "ssh"), ("warm_local", "local")):
        options = pages[derived]["doc"]["options"]
        assert {"warm_python", "warm_directory", "warm_idle_s", *pages[stock]["doc"]["options"]} <= set(options)


def test_a_role_tells_its_purpose_and_every_variable() -> None:
    roles = names(REPOSITORY / "roles")
    pages = shown("role", roles)
    assert sorted(pages) == roles
    for name, page in pages.items():
        main = page["entry_points"]["main"]
        assert len(main["short_description"].split()) > 2, name
        assert all(option["description"] for option in main["options"].values()), name
