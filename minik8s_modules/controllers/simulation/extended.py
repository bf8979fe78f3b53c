"""Deciders that installed packages offer: what their operators do, for ``plan``.

A package offers some by an entry point of the group ``minik8s.deciders``: a function that returns a mapping of its
kinds to deciders (``simulated_cluster.Decider``). It is installed beside the reconciler, which answers plans and finds
it without a restart: the folder of packages is looked at for each plan. One that cannot be loaded is left out, with a
line in the log: plans of everything else go on.
"""

from __future__ import annotations

import importlib
import logging
import site
import sysconfig
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from minik8s_modules.api.kind import Registry
from minik8s_modules.api.kinds import KINDS, Kind
from minik8s_modules.api.network.authorization import AUTHORIZATION_POLICY
from minik8s_modules.api.network.gateway_api import GATEWAY_KINDS
from minik8s_modules.api.objects import JsonObject

log = logging.getLogger(__name__)

GROUP = "minik8s.deciders"


def extended() -> Mapping[Kind, Any]:
    """Return the deciders of packages, by kind; a kind that is built in is nobody's to decide on."""
    return _found(_stamp())[0]


def known_kinds() -> Registry:
    """Return the kinds that deciders know: those built in, Gateway API's and Istio's, and those of packages."""
    return _found(_stamp())[1]


def is_decided(obj: JsonObject) -> bool:
    """Return whether anybody here knows what an object leads to: no node has anything of other custom kinds.

    They must not get further, since a Service of somebody's own group is none of ours.
    """
    version = str(obj.get("apiVersion") or "")
    return not version or known_kinds().by_api_version(version, str(obj.get("kind"))) is not None


def _stamp() -> int:
    """Return what changes when a package comes or goes."""
    try:
        return Path(sysconfig.get_path("purelib")).stat().st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=1)
def _found(_stamp: int) -> tuple[Mapping[Kind, Any], Registry]:
    site.addsitedir(sysconfig.get_path("purelib"))  # the paths in .pth files that came since the start
    importlib.invalidate_caches()
    found: dict[Kind, Any] = {}
    for point in entry_points(group=GROUP):
        try:
            found |= {kind: decide for kind, decide in point.load()().items() if not _built_in(kind)}
        except Exception:  # a stranger's code: whatever it raises
            log.exception("deciders %s: %s cannot be loaded; plans do without them", point.name, point.value)
    return found, KINDS.with_custom([*GATEWAY_KINDS, AUTHORIZATION_POLICY, *found])


def _built_in(kind: Kind) -> bool:
    ours = (GATEWAY_KINDS.gateways.group, AUTHORIZATION_POLICY.group)
    return KINDS.by_kind(kind.group, kind.version, kind.kind) is not None or kind.group in ours
