"""The guest's network by masquerade: a bridge with a tap device in the pod's network, and rules that pass its ports on.

Made as root in the init container, once; the machine then opens a tap device that belongs to its user. The guest is
10.0.2.2 behind 10.0.2.1, as with KubeVirt, and is reached at the pod's address. Probes dial from the pod's own network,
so what the pod sends to its own address goes to the guest as well.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

from minik8s_virtual_machines.launcher import paths
from minik8s_virtual_machines.launcher.errors import Unusable
from minik8s_virtual_machines.launcher.guest import Guest, Interface

BRIDGE, TAP = "k6t-eth0", "tap0"
GATEWAY, ADDRESS, LENGTH = "10.0.2.1", "10.0.2.2", 24
_TUNSETIFF, _TUNSETPERSIST, _TUNSETOWNER, _TUNSETGROUP = 0x400454CA, 0x400454CB, 0x400454CC, 0x400454CE
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
_SIOCGIFADDR = 0x8915
_BUSYBOX = "/bin/busybox"


class Uplink(NamedTuple):
    """The pod's own interface."""

    name: str
    address: str
    mtu: int


def set_up(guest: Guest) -> None:
    """Make it; again is the same, where a node was cut off in the middle.

    Raises:
        Unusable: the pod may not, or its network is none that can be shared.
    """
    if guest.interface is None:
        return
    up = uplink()
    if Path("/proc/sys/net/ipv4/ip_forward").read_text(encoding="ascii").strip() != "1":
        raise Unusable("the pod's network does not forward (net.ipv4.ip_forward is 0, as on its node)")
    present = {path.name for path in Path("/sys/class/net").iterdir()}
    if BRIDGE not in present:
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("addr", "add", f"{GATEWAY}/{LENGTH}", "dev", BRIDGE)
    if TAP not in present:
        _make_tap()
    _ip("link", "set", TAP, "mtu", str(up.mtu), "master", BRIDGE)
    for name in (TAP, BRIDGE):
        _ip("link", "set", name, "up")
    _run(["/bin/nft", "-f", "-"], rules(guest.interface, up))
    paths.NETWORK.write_text(json.dumps(up._asdict()), encoding="utf-8")
    paths.NETWORK.chmod(0o644)


def uplink() -> Uplink:
    """Return the interface that the default route leads by.

    Raises:
        Unusable: there is none.
    """
    for line in Path("/proc/net/route").read_text(encoding="ascii").splitlines()[1:]:
        name, destination, *_ = line.split()
        if destination == "00000000":
            mtu = int(Path(f"/sys/class/net/{name}/mtu").read_text(encoding="ascii"))
            return Uplink(name, _address(name), mtu)
    raise Unusable("the pod's network has no default route, so a guest cannot share it")


def _address(name: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16s24x", name.encode())
        return socket.inet_ntoa(fcntl.ioctl(any_socket, _SIOCGIFADDR, request)[20:24])


def _make_tap() -> None:
    """Make a tap device that stays and that the machine's user may open."""
    try:
        tun = os.open("/dev/net/tun", os.O_RDWR)
    except OSError as error:
        raise Unusable(f"/dev/net/tun: {error.strerror}; a guest's network needs it on the node") from error
    try:
        fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", TAP.encode(), _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR))
        fcntl.ioctl(tun, _TUNSETOWNER, paths.USER)
        fcntl.ioctl(tun, _TUNSETGROUP, paths.USER)
        fcntl.ioctl(tun, _TUNSETPERSIST, 1)
    finally:
        os.close(tun)


def rules(interface: Interface, up: Uplink) -> str:
    """Return nft's script: whole, in place of what was there. Pure."""
    wanted = [f"{protocol} dport {port} dnat to {ADDRESS}" for protocol, port in interface.ports]
    wanted = wanted or [f"dnat to {ADDRESS}"]
    return "\n".join(
        [
            "table ip kubevirt",
            "delete table ip kubevirt",
            "table ip kubevirt {",
            " chain prerouting { type nat hook prerouting priority -100;",
            *(f'  iifname "{up.name}" {rule}' for rule in wanted),
            " }",
            " chain output { type nat hook output priority -100;",
            *(f"  ip daddr {up.address} {rule}" for rule in wanted),
            " }",
            " chain postrouting { type nat hook postrouting priority 100;",
            f'  ip saddr {ADDRESS} oifname "{up.name}" masquerade',
            " }",
            "}",
            "",
        ]
    )


def _ip(*words: str) -> None:
    _run([_BUSYBOX, "ip", *words])


def _run(argv: list[str], given: str = "") -> None:
    done = subprocess.run(argv, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unusable(f"{' '.join(argv)}: {(done.stderr or done.stdout).strip()}")


def kept() -> Uplink | None:
    """Return what the init container found, None for a guest without network."""
    if not paths.NETWORK.exists():
        return None
    return Uplink(**json.loads(paths.NETWORK.read_text(encoding="utf-8")))
