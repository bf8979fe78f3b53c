"""The modules' documentation is what the modules accept, ansible-doc prints it, library/ imports what may travel."""

from __future__ import annotations

import ast
import functools
import importlib
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from ansible.plugins.loader import PluginLoader
from ansible.utils import plugin_docs

REPOSITORY = Path(__file__).parents[3]
PASSES = (
    "network",
    "services",
    "secrets",
    "folders",
    "volumes",
    "sandboxes",
    "sidecars",
    "containers",
    "dns",
    "ingress",
)
NAMES = [f"minik8s_{name}" for name in (*PASSES, "facts")]
SECTIONS = NAMES[:-1]
ALL = sorted(path.stem for path in (REPOSITORY / "library").glob("minik8s_*.py"))
FRAGMENTS = REPOSITORY / "minik8s_modules" / "plugins" / "doc_fragments"
LINES_BELOW_DOCUMENTATION = 100
ATTRIBUTES = {"check_mode", "diff_mode", "idempotent"}


def arguments(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the argument spec a module hands to AnsibleModule."""
    module = importlib.import_module(f"ansible.modules.{name}")
    seen: dict[str, Any] = {}

    class StopError(Exception):
        """Ends main() where the spec is known."""

    def record(argument_spec: dict[str, Any], **options: Any) -> None:
        seen.update(spec=argument_spec, options=options)
        raise StopError

    monkeypatch.setattr(module, "AnsibleModule", record)
    with pytest.raises(StopError):
        module.main()
    assert seen["options"]["supports_check_mode"]
    return dict(seen["spec"])


@functools.cache
def documentation(name: str) -> dict[str, Any]:
    """Return a module's DOCUMENTATION, with the fragments that it is extended by."""
    fragments = PluginLoader("ModuleDocFragment", "ansible.plugins.doc_fragments", [str(FRAGMENTS)], "doc_fragments")
    document = dict(yaml.safe_load(importlib.import_module(f"ansible.modules.{name}").DOCUMENTATION))
    plugin_docs.add_fragments(document, str(REPOSITORY / "library" / f"{name}.py"), fragments, is_module=True)
    return document


def compare(fields: dict[str, Any], spec: dict[str, Any]) -> None:
    """Compare documented options with accepted ones, suboptions with theirs; those of entries are the section's."""
    assert set(fields) == set(spec)
    for option, words in fields.items():
        accepted = {key: value for key, value in spec[option].items() if key not in {"no_log", "options"}}
        assert {key: words[key] for key in words if key not in {"description", "suboptions"}} == accepted, option
        if option != "entries":
            compare(words.get("suboptions", {}), spec[option].get("options", {}))


@pytest.mark.parametrize("name", ALL)
def test_documented_options_are_the_accepted_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(documentation(name)["options"], arguments(name, monkeypatch))


@pytest.mark.parametrize("name", ALL)
def test_attributes_examples_and_returns_are_told(name: str) -> None:
    module = importlib.import_module(f"ansible.modules.{name}")
    result = documentation(name)
    assert result["module"] == name
    assert set(result["attributes"]) == ATTRIBUTES
    for task in yaml.safe_load(module.EXAMPLES):
        assert set(task[name] or {}) <= set(result["options"])
    for returned in yaml.safe_load(module.RETURN).values():
        assert {"description", "type", "returned"} <= set(returned)


def test_the_returns_of_sections_are_told_in_the_same_words() -> None:
    common = without_samples(SECTIONS[0])
    for name in SECTIONS[1:]:
        found = without_samples(name)
        assert found.keys() - common.keys() == ({"calls", "in_use"} if name == "minik8s_volumes" else set())
        assert {key: found[key] for key in common} == common


def without_samples(name: str) -> dict[str, Any]:
    """Return a module's RETURN; the samples are the section's own."""
    document = yaml.safe_load(importlib.import_module(f"ansible.modules.{name}").RETURN)
    return {key: {word: row[word] for word in row if word != "sample"} for key, row in document.items()}


def test_the_returned_keys_of_a_pass_are_documented(tmp_path: Path) -> None:
    section = importlib.import_module("ansible.module_utils.minik8s.core.section")
    network = importlib.import_module("ansible.module_utils.minik8s.volumes.volumes")
    request = section.Request("n", entries={}, state_dir=str(tmp_path / "s"), run_dir=str(tmp_path / "r"))
    result = section.run_pass(network.Volumes(), request, section.context_for(request), check=True)
    for name in SECTIONS:
        document = yaml.safe_load(importlib.import_module(f"ansible.modules.{name}").RETURN)
        others = set() if name == "minik8s_volumes" else {"calls", "in_use"}
        assert set(document) == set(result) - {"changed", "diff"} - others


def checker(name: str) -> Callable[[str, Any], None]:
    """Return what a module's section checks an entry with."""
    if name == "minik8s_services":  # has a pass of its own
        services: Any = importlib.import_module("ansible.module_utils.minik8s.services.services_entries")
        return cast("Callable[[str, Any], None]", services.check_entry)
    module = importlib.import_module(f"ansible.modules.{name}")
    section: Any = next(one for one in vars(module).values() if hasattr(one, "check_entry"))
    return cast("Callable[[str, Any], None]", section().check_entry)


def without_templates(entry: Any) -> Any:
    """Return an entry of an example with nothing in place of each expression."""
    return json.loads(re.sub(r"\{\{.*?\}\}", "", json.dumps(entry)))


KEYS = {
    "<pod uid>": "u",
    "<pod uid>/<container>": "u/app",
    "<pod uid>/<volume>": "u/data",
    "<namespace>/<name>": "default/web",
    "<namespace>/<service>:<port>": "default/web:80",
    "service/<namespace>/<name>": "service/default/web",
    "host/<host>": "host/example.com",
    "<host>": "example.com",
}


@pytest.mark.parametrize("name", SECTIONS)
def test_the_fields_of_entries_that_are_told_are_those_a_section_takes(name: str) -> None:
    check = checker(name)
    for key, words in documentation(name)["options"]["entries"]["suboptions"].items():
        fields = words["suboptions"]
        kinds = fields["kind"]["choices"] if name == "minik8s_volumes" else [None]
        known: set[str] = set()
        for kind in kinds:
            with pytest.raises(Exception, match="unknown fields") as refused:
                check(KEYS.get(key, key), {"no such field": 1, **({"kind": kind} if kind else {})})
            known.update(ast.literal_eval(str(refused.value).rpartition("known are ")[2]))
        assert known == set(fields), key


@pytest.mark.parametrize("name", SECTIONS)
def test_every_field_of_an_entry_has_a_meaning(name: str) -> None:
    def walk(options: dict[str, Any]) -> None:
        for field, words in options.items():
            assert all(len(text) > 2 for text in words["description"]), field
            walk(words.get("suboptions", {}))

    walk(documentation(name)["options"]["entries"]["suboptions"])


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_takes_the_entries_of_its_examples(name: str) -> None:
    check = checker(name)
    for task in yaml.safe_load(importlib.import_module(f"ansible.modules.{name}").EXAMPLES):
        for key, entry in task[name]["entries"].items():
            check(key, without_templates(entry))


def test_secret_values_are_not_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    assert arguments("minik8s_secrets", monkeypatch)["blob"]["no_log"] is True


@pytest.mark.parametrize("name", NAMES)
def test_a_module_is_thin_and_imports_what_travels(name: str) -> None:
    source = (REPOSITORY / "library" / f"{name}.py").read_text()
    tree = ast.parse(source)
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(node.module or "")
    for module in imported:
        ours = module == "ansible.module_utils.basic" or module.startswith("ansible.module_utils.minik8s.")
        assert ours or module.partition(".")[0] in sys.stdlib_module_names, module
    last = max(node.end_lineno or 0 for node in tree.body if isinstance(node, ast.Assign) and _is_text(node))
    assert len(source.splitlines()) - last <= LINES_BELOW_DOCUMENTATION


def _is_text(node: ast.Assign) -> bool:
    return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
