"""What a node was told last becomes a file for ansible-playbook, in which nothing is a template."""

from __future__ import annotations

import yaml

from minik8s_modules.module_utils.minik8s.core.documents import save_document
from minik8s_modules.reconcile.planning.plain import main


class _Loader(yaml.SafeLoader):
    pass


def _unsafe(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[str, object]:
    return {"unsafe": loader.construct_mapping(node, deep=True)}


_Loader.add_constructor("!unsafe", _unsafe)


def test_the_last_document_is_printed_as_data(tmp_path, capsys):
    save_document(str(tmp_path), "containers", "n1", {"u/app": {"env": [["A", "{{ lookup('pipe', 'id') }}"]]}})
    save_document(str(tmp_path), "volumes", "n1", {})
    assert main(["--state-dir", str(tmp_path)]) == 0
    printed = yaml.load(capsys.readouterr().out, Loader=_Loader)
    containers = {"u/app": {"env": [["A", "{{ lookup('pipe', 'id') }}"]]}}
    assert printed == {"minik8s_document": {"unsafe": {"volumes": {}, "containers": containers}}}


def test_a_machine_that_is_no_node_says_so(tmp_path, capsys):
    assert main(["--state-dir", str(tmp_path)]) == 1
    assert "holds no document" in capsys.readouterr().err
