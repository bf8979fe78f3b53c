"""What a plan says of Pods on virtual nodes: that it does not know what their providers will do. Pure.

A virtual node has no document, and nobody to ask in check mode; that is said, so that silence does not look like "no
change".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from minik8s_modules.api import objects
from minik8s_modules.api.nodes.virtual_nodes import is_virtual
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.feeds.plan_subjects import Note, of_pod

_NAMED = 3


def on_virtual_nodes(pods: Mapping[str, JsonObject | None], nodes: Iterable[JsonObject]) -> Iterator[Note]:
    """Yield a message for each virtual node that changed ``pods`` (by uid; None: gone) would run on."""
    virtual = {objects.name(node) for node in nodes if is_virtual(node)}
    found: dict[str, list[JsonObject]] = {}
    for pod in pods.values():
        if pod is not None and (name := str(objects.spec(pod).get("nodeName") or "")) in virtual:
            found.setdefault(name, []).append(pod)
    for name, there in sorted(found.items()):
        names = sorted(str(objects.key(pod)) for pod in there)
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        text = f"node {name} is virtual: what its provider does about Pod {', '.join(names[:_NAMED])}{more} is unknown"
        yield Note(text, tuple(about for pod in there for about in of_pod(pod)))
