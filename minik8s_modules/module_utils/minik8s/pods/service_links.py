"""Environment variables that tell a container the Services there were when it was made (``enableServiceLinks``).

They are given once and never compared: Services come and go, and no container is replaced for it. A label says that a
container has some; they are recognized by their names. Source of the names: kubernetes ``pkg/kubelet/envvars``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..core import labels
from ..core.section import Facets

_NAME = re.compile(
    r"[A-Z][A-Z0-9_]*_(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?)"
)
_FACET = "env "


def is_link(name: str) -> bool:
    """Return whether a variable of this name may tell of a Service."""
    return _NAME.fullmatch(name) is not None


def with_links_of(entry: Mapping[str, Any], config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entry with the links of the container that it replaces; ``config`` is that one's Config."""
    if not config["Labels"].get(labels.SERVICE_LINKS):
        return entry
    pairs = (each.partition("=")[::2] for each in config.get("Env") or [])
    return {**entry, "links": [[name, value] for name, value in pairs if is_link(name)]}


def forget_links(entry: Mapping[str, Any], config: Mapping[str, Any], facets: tuple[Facets, Facets]) -> None:
    """Take links that the entry does not declare as variables out of both sides of a comparison."""
    if not config["Labels"].get(labels.SERVICE_LINKS):
        return
    declared = {row[0] for row in (*entry["env"], *entry["secret_env"])}
    for side in facets:
        for facet in [one for one in side if one.startswith(_FACET)]:
            name = facet[len(_FACET) :]
            if name not in declared and is_link(name):
                del side[facet]
