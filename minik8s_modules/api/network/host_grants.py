"""HostGrants: which namespaces may have which hosts for the whole cluster. Pure.

A HostGrant names namespaces, and hosts that are theirs: an exact name, ``*.suffix`` for all names below one, or ``*``
for all. ``shortNames`` lets nodes resolve the short names of the namespaces' Services. Grants only add.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import HOST_GRANT
from minik8s_modules.api.objects import JsonObject

EVERY_HOST = "*"


class HostGrants:
    """What all HostGrants come to."""

    def __init__(self, grants: Iterable[JsonObject] = ()) -> None:
        self._patterns: dict[str, list[tuple[str, str]]] = {}
        short: set[str] = set()
        for grant in sorted(grants, key=objects.name):
            if objects.is_deleting(grant):
                continue
            spec = objects.spec(grant)
            for namespace in spec.get("namespaces") or []:
                rows = [(str(host), objects.name(grant)) for host in spec.get("hosts") or []]
                self._patterns.setdefault(str(namespace), []).extend(rows)
                short |= {str(namespace)} if spec.get("shortNames") else set()
        self.short_names = frozenset(short)
        """Namespaces whose Services nodes find by their names alone."""

    def of(self, namespace: str, host: str) -> str:
        """Return the HostGrant that gives a namespace a host (or ``*.domain``, or "_" for any), "" for none."""
        return next((name for pattern, name in self._patterns.get(namespace, ()) if _covers(pattern, host)), "")


def _covers(pattern: str, host: str) -> bool:
    return pattern in (EVERY_HOST, host) or (pattern.startswith("*.") and host.endswith(pattern[1:]))


def confinement(namespace: str, hosts: Sequence[str]) -> list[str]:
    """Return why those hosts of a DNS object answer in its own namespace alone, and what to do."""
    where = f"in the pods of namespace {namespace} alone"
    short = [host for host in hosts if "." not in host]
    longer = [host for host in hosts if "." in host]
    found = [f"host {host} answers {where}: a single-label name belongs to each namespace" for host in short]
    if longer:
        shown = f"hosts {', '.join(longer)} answer" if len(longer) > 1 else f"host {longer[0]} answers"
        detail = "no HostGrant allows more; a cluster administrator can create one:"
        found.append(f"{shown} {where}: {detail} {_how_to_grant(namespace, longer)}")
    return found


def _how_to_grant(namespace: str, hosts: Iterable[str]) -> str:
    """Return the command by which hosts are given to a namespace."""
    grant = {
        "apiVersion": HOST_GRANT.api_version,
        "kind": HOST_GRANT.kind,
        "metadata": {"generateName": f"{namespace}-"},
        "spec": {"namespaces": [namespace], "hosts": sorted(hosts)},
    }
    return f"echo '{json.dumps(grant)}' | kubectl create -f -"
