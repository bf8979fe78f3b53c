"""Every section of the node document has its module, documentation, task and place in a node's own pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.module_utils.minik8s import reapplying
from minik8s_modules.module_utils.minik8s.core.sections import HELD, SECTIONS
from minik8s_modules.plugins.doc_fragments.minik8s_entries import ModuleDocFragment
from minik8s_modules.plugins.live.play import JOINED

REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = "docs/how-to/add-a-module.md lists every place"


def _play() -> dict[str, Any]:
    (play,) = yaml.safe_load((REPOSITORY / "playbooks" / "reconcile_node.yml").read_text(encoding="utf-8"))
    assert isinstance(play, dict)
    return play


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_has_every_part(section: str) -> None:
    assert (REPOSITORY / "library" / f"minik8s_{section}.py").is_file(), f"no module of {section}; {PAGE}"
    assert hasattr(ModuleDocFragment, section.upper()), f"no entries of {section} in ansible-doc; {PAGE}"
    assert section in reapplying.SECTION_OBJECTS, f"{section} is not in reapplying.py, a node's own pass; {PAGE}"
    assert f"minik8s_{section}" in _play()["module_defaults"], f"minik8s_{section} has no module_defaults; {PAGE}"


def test_tasks_come_in_the_order_of_sections() -> None:
    tasks = [task["name"] for task in _play()["tasks"] if task["name"] in SECTIONS]
    assert tasks == list(SECTIONS), f"tasks of playbooks/reconcile_node.yml differ from SECTIONS; {PAGE}"
    modules = {task["name"]: f"minik8s_{task['name']}" for task in _play()["tasks"]}
    assert all(modules[task["name"]] in task for task in _play()["tasks"])
    assert _play()["tasks"][0]["name"] == JOINED, "without that task, each section of an item is a call of its own"


def test_a_node_of_its_own_knows_no_other_section() -> None:
    assert set(reapplying.SECTION_OBJECTS) == set(SECTIONS)
    assert set(SECTIONS) >= HELD
