"""Which Nodes are no machines of ours: virtual-kubelet's, KWOK's and our own virtual nodes, by the label they all have.

Such a node takes no range of Pod addresses unless its Node asks for one (``spec.podCIDR``), is no peer of an overlay,
and says nothing about whether the machines are well. The label is set by whoever may write the Node, the node itself
included. That gives nobody anything: a machine that says it is virtual takes itself out of the overlay, and out of
those whose silence keeps others from being emptied, which makes controllers more careful, not less.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minik8s_modules.api import objects

TYPE = "type"
TYPES = frozenset({"virtual-kubelet", "kwok"})
CARRIED_BY = "minik8s.io/carried-by"
"""Annotation of a Node whose registrant carries several: which user that is. API servers write it, and keep it."""


def is_virtual(node: Mapping[str, Any]) -> bool:
    """Return whether the Node says that it is no machine."""
    return objects.labels(node).get(TYPE) in TYPES
