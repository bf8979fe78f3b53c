"""YAML as people write manifests: PyYAML's safe loader, which also takes a bare ``=``.

YAML 1.1 gives ``=`` a meaning of its own (the type ``value``), of which PyYAML has no notion and dies; in enums of
CustomResourceDefinitions it stands for itself, as other readers have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    _Base = yaml.SafeLoader
else:
    _Base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ManifestLoader(_Base):
    """See the top of this file; in C where libyaml is there."""


def _text(_loader: yaml.SafeLoader, node: yaml.Node) -> str:
    return str(node.value)


ManifestLoader.add_constructor("tag:yaml.org,2002:value", _text)
