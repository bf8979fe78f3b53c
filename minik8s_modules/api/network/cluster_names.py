"""The names below the cluster's own domain, and which hosts would stand in their way. Pure.

``<service>.<namespace>.svc`` and ``<address>.<namespace>.pod`` are Kubernetes' (DNS specification 1.1.0). Beside them
stand ``<host>.<namespace>.hosts``, which the pods of that namespace search, so a host that was not granted answers
nobody else, and ``<service>.nodes``, which nodes search for the short names of the namespaces that have a HostGrant
for them. The label before ``hosts`` is the namespace, which has no dot in it: no host can stand for another namespace.
"""

from __future__ import annotations

CLUSTER_DOMAIN = "cluster.local"
SERVICES, PODS, HOSTS, NODES = "svc", "pod", "hosts", "nodes"
LONGEST_NAME = 253
_OWN = (CLUSTER_DOMAIN, SERVICES, PODS, HOSTS, NODES, "localhost", "minik8s.internal")
"""Pods find ``web.other.svc`` by their search list, with or without the domain; RFC 6761 gives localhost to itself."""


def name_within(namespace: str, host: str) -> str:
    """Return the name, below the cluster's domain, of a host that answers in one namespace alone."""
    return f"{host}.{namespace}.{HOSTS}"


def short_name(service: str) -> str:
    """Return the name, below the cluster's domain, that nodes know a Service's short name by."""
    return f"{service}.{NODES}"


def is_own(host: str) -> bool:
    """Return whether a host's name is one of the cluster itself, or below one."""
    return any(host == name or host.endswith(f".{name}") for name in _OWN)


def is_too_long(namespace: str, host: str) -> bool:
    """Return whether a host has no name left in its namespace."""
    return len(f"{name_within(namespace, host)}.{CLUSTER_DOMAIN}") > LONGEST_NAME
