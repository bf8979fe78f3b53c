"""A node's document as a file for people: read it, change it, apply it with plain ansible-playbook.

    python -m minik8s_modules.reconcile.planning.plain > FILE   # what the node was told last; as root on the node
    ansible-playbook -i INVENTORY playbooks/reconcile_node.yml -e @FILE --limit NODE [--check --diff]

The document carries one ``!unsafe`` tag: Ansible then takes every string below it as data, never as a template.
A document written by hand needs that tag, too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.core.documents import load_document, stored_digest
from minik8s_modules.module_utils.minik8s.core.sections import SECTIONS

HEADER = """\
# A node's whole document. What it does not declare is removed from the node; a section left out is left alone.
# ansible-playbook -i INVENTORY playbooks/reconcile_node.yml -e @THIS-FILE --limit NODE [--check --diff]
"""


class _Unsafe(dict[str, Any]):
    """A mapping whose strings Ansible must not template."""


class _Dumper(yaml.SafeDumper):
    """Writes _Unsafe with its tag."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  PyYAML's signature
        """Write equal values twice: anchors are hard to edit."""
        return True


def _represent_unsafe(dumper: yaml.SafeDumper, value: _Unsafe) -> yaml.Node:
    return dumper.represent_mapping("!unsafe", value)


_Dumper.add_representer(_Unsafe, _represent_unsafe)


def render_document(
    document: Mapping[str, JsonObject], token: tuple[int, int] | None = None, secrets_blob: str | None = None
) -> str:
    """Return the YAML of ``document`` (section: key: entry) as extra variables of `playbooks/reconcile_node.yml`.

    Write it with mode 0600 where ``secrets_blob`` (docs/reference/node-document.md) is given. Without ``token`` the
    modules take the node's lock only, as runs by hand should.
    """
    variables: dict[str, Any] = {"minik8s_document": _Unsafe(document)}
    if token is not None:
        variables["minik8s_token"] = list(token)
    if secrets_blob is not None:
        variables["minik8s_secrets_blob"] = secrets_blob
    text = yaml.dump(variables, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return HEADER + text


def last_document(state_dir: str) -> dict[str, JsonObject]:
    """Return what the node was told last, ``{section: {key: entry}}``, without the sections it was never told."""
    stored = (section for section in SECTIONS if stored_digest(state_dir, section) is not None)
    return {section: dict(load_document(state_dir, section).entries) for section in stored}


def main(argv: Sequence[str] | None = None) -> int:
    """Print the document of this node; return 1 when there is none."""
    parser = argparse.ArgumentParser(description="Print the node's last document as variables of a playbook.")
    parser.add_argument("--state-dir", default="/var/lib/minik8s", help="the node's directory (%(default)s)")
    options = parser.parse_args(argv)
    document = last_document(options.state_dir)
    if not document:
        folder = Path(options.state_dir, "documents")
        sys.stderr.write(f"{folder} holds no document that can be read: is this machine a node, and are you root?\n")
        return 1
    sys.stdout.write(render_document(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
