"""What a program is kept from: everything, except what its declaration names, with the reason. Pure.

One declaration is rendered for systemd (``directives``, systemd.exec(5)) and for the launcher under supervisor
(``launcher_options``), which has the part that setpriv(1) and a mount namespace can give: no new privileges, no
capabilities, no core files, a private /tmp, no homes, a read-only system.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_STRICT = {
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "ProtectClock": "yes",
    "ProtectControlGroups": "yes",
    "ProtectHostname": "yes",
    "ProtectKernelLogs": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectProc": "invisible",
    "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6",
    "RestrictNamespaces": "yes",
    "RestrictRealtime": "yes",
    "RestrictSUIDSGID": "yes",
    "LockPersonality": "yes",
    "MemoryDenyWriteExecute": "yes",
    "SystemCallArchitectures": "native",
    "SystemCallFilter": "@system-service",
    "SystemCallErrorNumber": "EPERM",
    "KeyringMode": "private",
    "RemoveIPC": "yes",
    "UMask": "0077",
    "LimitCORE": "0",
}
_MOUNT_NAMESPACE = frozenset(
    {
        "ProtectSystem",
        "ProtectHome",
        "PrivateTmp",
        "PrivateDevices",
        "ProtectControlGroups",
        "ProtectHostname",
        "ProtectKernelLogs",
        "ProtectKernelModules",
        "ProtectKernelTunables",
        "ProtectProc",
    }
)
# what the kernel lets a user set only together with NoNewPrivileges (seccomp(2)), and what would bind root after sudo
_NO_NEW_PRIVILEGES = frozenset(
    {
        "NoNewPrivileges",
        "PrivateDevices",
        "ProtectClock",
        "ProtectHostname",
        "ProtectKernelLogs",
        "ProtectKernelModules",
        "ProtectKernelTunables",
        "RestrictAddressFamilies",
        "RestrictNamespaces",
        "RestrictRealtime",
        "RestrictSUIDSGID",
        "LockPersonality",
        "MemoryDenyWriteExecute",
        "SystemCallArchitectures",
        "SystemCallFilter",
        "SystemCallErrorNumber",
    }
)
EXCEPTIONS: Mapping[str, frozenset[str]] = {
    # becomes root by sudo
    "new-privileges": _NO_NEW_PRIVILEGES,
    # what it mounts others must see
    "shared-mounts": _MOUNT_NAMESPACE,
    # reads what is mounted after its start: systemd hands that on, a machine without systemd does not
    "later-mounts": frozenset(),
    # asks the kernel for its addresses
    "netlink": frozenset(),
    # others read what it writes
    "common-umask": frozenset({"UMask"}),
    # looks at processes of others
    "all-processes": frozenset({"ProtectProc"}),
    # root with all its rights
    "all-capabilities": frozenset(),
    # makes containers
    "everything": frozenset(_STRICT),
}
_CAPABILITY = re.compile(r"[a-z][a-z_]*\Z")
_PEER = re.compile(r"[a-z0-9.:/-]+\Z")
_PATH = re.compile(r"/[A-Za-z0-9/._-]*\Z")
_UNBOUND = frozenset({"new-privileges", "all-capabilities", "everything"})


class Confinement(NamedTuple):
    """What a program may, beside what every confined program may; all else is kept from it.

    ``exceptions`` are names of ``EXCEPTIONS`` with the reason; ``writes`` the only directories it may write to (under
    systemd); ``capabilities`` the ones it has, in setpriv's words; ``peers`` the only addresses it may talk to (systemd
    on kernels with BPF), none given for no limit.
    """

    writes: Sequence[str] = ()
    capabilities: Sequence[str] = ()
    peers: Sequence[str] = ()
    exceptions: Mapping[str, str] = {}


def check(name: str, confinement: Confinement) -> None:
    """Raise ValueError for what cannot be written down, an unknown exception, or one without a reason."""
    for exception, reason in confinement.exceptions.items():
        if exception not in EXCEPTIONS:
            raise ValueError(f"daemon {name}: exception {exception!r} must be one of {', '.join(sorted(EXCEPTIONS))}")
        if not reason.strip():
            raise ValueError(f"daemon {name}: exception {exception!r} must say why")
    for path in confinement.writes:
        if not _PATH.match(path):
            raise ValueError(f"daemon {name}: {path!r} must be an absolute path of letters, digits and '._-'")
    for peer in confinement.peers:
        if not _PEER.match(peer):
            raise ValueError(f"daemon {name}: peer {peer!r} must be an address, a network or localhost")
    for capability in confinement.capabilities:
        if not _CAPABILITY.match(capability):
            raise ValueError(f"daemon {name}: capability {capability!r} must be written as net_bind_service is")


def directives(user: str, confinement: Confinement) -> list[str]:
    """Return the lines of a unit's section [Service]."""
    dropped = frozenset().union(*(EXCEPTIONS[one] for one in confinement.exceptions))
    families = " AF_NETLINK" if "netlink" in confinement.exceptions else ""
    values = {**_STRICT, "RestrictAddressFamilies": _STRICT["RestrictAddressFamilies"] + families}
    lines = [f"{name}={value}" for name, value in values.items() if name not in dropped]
    if confinement.writes and "ProtectSystem" not in dropped:
        lines.append(f"ReadWritePaths={' '.join(f'-{path}' for path in confinement.writes)}")
    if not _UNBOUND & set(confinement.exceptions):
        held = " ".join(f"CAP_{one.upper()}" for one in confinement.capabilities)
        lines += [f"CapabilityBoundingSet={held}", f"AmbientCapabilities={held if user != 'root' else ''}"]
    if confinement.peers:
        lines += ["IPAddressDeny=any", f"IPAddressAllow={' '.join(confinement.peers)}"]
    return lines


def launcher_options(confinement: Confinement) -> list[str]:
    """Return the same in the launcher's words (``roles/service_manager/files/launch``)."""
    exceptions = set(confinement.exceptions)
    if "everything" in exceptions:
        return []
    options = ["--umask=0022" if "common-umask" in exceptions else "--umask=0077"]
    if "new-privileges" not in exceptions:
        options.append("--no-new-privs")
    if not _UNBOUND & exceptions:
        options.append(f"--capabilities={','.join(confinement.capabilities)}")
    if not exceptions & {"shared-mounts", "later-mounts"}:
        options.append("--private-mounts")
    return options
