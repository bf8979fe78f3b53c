"""The nodes below a node."""

from __future__ import annotations

from minik8s_modules.cel.syntax.nodes import Call, Fold, ListNode, MapNode, Node, OptMap, Select


def children(node: Node) -> list[Node]:  # noqa: PLR0911 - one return a kind of node
    """Return the nodes directly below, in the order of the text."""
    if isinstance(node, Select):
        return [node.operand]
    if isinstance(node, Call):
        return ([] if node.target is None else [node.target]) + node.args
    if isinstance(node, ListNode):
        return node.items
    if isinstance(node, MapNode):
        return [part for key, value, _ in node.entries for part in (key, value)]
    if isinstance(node, Fold):
        return [part for part in (node.range, node.test, node.result) if part is not None]
    if isinstance(node, OptMap):
        return [node.target, node.body]
    return []
