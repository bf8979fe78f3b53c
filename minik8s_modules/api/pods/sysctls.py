"""Kernel parameters a pod may set: those of its own namespaces that cannot harm its neighbours.

Source: kubernetes ``pkg/kubelet/sysctl/safe_sysctls.go`` and ``pkg/apis/core/validation`` (names).
"""

from __future__ import annotations

import re

SAFE = frozenset(
    {
        "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
    }
)  # fmt: skip
NAME = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?")
LONGEST_NAME = 253
_OF_IPC = ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")


def is_safe(name: str, *, host_network: bool, host_ipc: bool) -> bool:
    """Return whether a pod may set ``name`` (with dots); not where the namespace it is of is the node's."""
    if host_network and name.startswith("net."):
        return False
    return name in SAFE and not (host_ipc and name.startswith(_OF_IPC))
