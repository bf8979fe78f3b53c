"""Who may create Pods on a node of Ansible chooses a role and passes words, and nothing else.

The attack: names that climb out of the folders, patterns that reach other hosts, variables that steer Ansible (a
connection, an interpreter, become), templates and tags in values, and the same in check mode.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from minik8s_modules.api.pods.units import CHECK, HOSTS, PLAYBOOK, ROLE
from minik8s_modules.virtual.errors import InvalidInput
from minik8s_modules.virtual.providers.ansible_runs.requests import asked
from minik8s_modules.virtual.providers.ansible_runs.runs import ansible_command
from tests.unit.virtual.test_ansible_runs import configured, pod


@pytest.mark.parametrize(
    "name", ["../roles/web", "/etc", "web\n- role: db", "web/.", ".", "..", "", "web,db", "{{ x }}"]
)
@pytest.mark.parametrize("annotation", [ROLE, PLAYBOOK])
def test_a_name_is_one_of_those_in_the_folder(tmp_path: Path, annotation: str, name: str) -> None:
    with pytest.raises(InvalidInput):
        asked(pod(annotations={annotation: name}), configured(tmp_path))


@pytest.mark.parametrize("hosts", ["all", "*", "web*", "web1:other", "@hosts", "~web.*", "web1[0]", "localhost,"])
def test_hosts_are_names_of_the_group(tmp_path: Path, hosts: str) -> None:
    with pytest.raises(InvalidInput):
        asked(pod(annotations={ROLE: "web", HOSTS: hosts}), configured(tmp_path))


@pytest.mark.parametrize("name", ["ansible_connection", "ansible_python_interpreter", "ansible_become", "hostvars"])
def test_no_variable_steers_ansible(tmp_path: Path, name: str) -> None:
    """Each is a word below ``minik8s_pod.env``, which nothing but the role reads."""
    request = asked(pod(container={"env": [{"name": name, "value": "local"}]}), configured(tmp_path))
    assert list(_loaded(request.variables)) == ["minik8s_pod"]


@pytest.mark.parametrize("value", ["{{ 1 }}", "{% raw %}", "!vault x", '"\nminik8s_pod: {}\n', "\u2028---\n", "\\x7b{"])
def test_values_are_marked_and_come_through_as_they_are(tmp_path: Path, value: str) -> None:
    request = asked(pod(container={"env": [{"name": "A", "value": value}]}), configured(tmp_path))
    told = _loaded(request.variables)["minik8s_pod"]["env"]  # type: ignore[index]
    assert told == {"A": ("unsafe", value)}


def test_options_of_the_command_are_ours(tmp_path: Path) -> None:
    request = asked(pod(annotations={ROLE: "web", HOSTS: "web1", CHECK: "true"}), configured(tmp_path))
    argv = list(ansible_command(configured(tmp_path))(tmp_path, request))
    told = ["--inventory", str(tmp_path / "hosts.yml"), str(tmp_path / "play.yml"), "--limit", "web1"]
    assert argv[1:] == [*told, "--extra-vars", f"@{tmp_path / 'variables'}", "--check", "--diff"]


class _Loader(yaml.SafeLoader):
    """Knows the tag."""


def _unsafe(loader: _Loader, node: yaml.Node) -> tuple[str, object]:
    assert isinstance(node, yaml.ScalarNode)
    return "unsafe", loader.construct_scalar(node)


_Loader.add_constructor("!unsafe", _unsafe)


def _loaded(text: str) -> dict[str, object]:
    found: dict[str, object] = yaml.load(text, _Loader)
    return found
