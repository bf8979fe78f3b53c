"""What the play reads of Ansible's list of moved plugins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ansible
import yaml
from ansible.utils.collection_loader._collection_meta import _meta_yml_to_dict

from minik8s_modules.plugins.live.routing import without_modules

RUNTIME = Path(ansible.__file__).parent / "config/ansible_builtin_runtime.yml"
ASKED = """
import json
from minik8s_modules.plugins.live import routing
routing.leave_out_modules()
from ansible.plugins.loader import connection_loader, init_plugin_loader
from ansible.utils.collection_loader._collection_finder import _get_collection_metadata
init_plugin_loader()
found = connection_loader.find_plugin_with_context("redirected_local")
print(json.dumps([found.resolved_fqcn, sorted(_get_collection_metadata("ansible.builtin")["plugin_routing"])]))
"""


def test_all_but_modules_is_read_as_before() -> None:
    text = RUNTIME.read_text(encoding="utf-8")
    before, after = (_meta_yml_to_dict(each, ("", "")) for each in (text, without_modules(text)))
    assert {"modules", "module_utils"} <= set(before["plugin_routing"])
    del before["plugin_routing"]["modules"], before["plugin_routing"]["module_utils"]
    assert after == before
    assert len(without_modules(text)) < len(text) / 8


def test_a_block_ends_with_the_next_of_its_depth() -> None:
    text = (
        "plugins:\n  modules:\n    # moved\n\n    a:\n      redirect: b.c.a\n  # next\n  shell:\n    x: {}\nother: 1\n"
    )
    assert yaml.safe_load(without_modules(text)) == {"plugins": {"shell": {"x": {}}}, "other": 1}
    assert without_modules("  modulesque:\n    a: 1\n") == "  modulesque:\n    a: 1\n"


def test_a_play_finds_plugins_that_moved_and_holds_no_list_of_modules() -> None:
    done = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True, check=True)
    name, kinds = yaml.safe_load(done.stdout)
    assert name == "ansible.builtin.local"
    assert "connection" in kinds
    assert not {"modules", "module_utils"} & set(kinds)
