"""What a node tells of itself for its registration: machine, system, Docker, addresses, and where it stands.

Names are those of Kubernetes' Node ``status.nodeInfo`` and ``status.addresses`` in snake case. Numbers come from
/proc; the machine id is systemd's where there is one, else one of our own that stays in the state directory.
"""

from __future__ import annotations

import glob
import os
import platform
import uuid
from collections.abc import Iterable
from typing import Any

from ..core.docker import Docker, DockerError
from ..core.documents import stored_digest
from ..core.fencing import stored_token
from ..core.files import read_bytes, write_atomically
from ..core.sections import SECTIONS
from ..network.netlink import Netlink
from ..pods.devices import Device, present

HUGE_PAGES = "/sys/kernel/mm/hugepages"


def _text(path: str) -> str:
    return (read_bytes(path) or b"").decode("utf-8", "replace").strip()


def parse_os_release(text: str) -> str:
    """Return PRETTY_NAME of os-release(5), else NAME, else ""."""
    rows = dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)
    return (rows.get("PRETTY_NAME") or rows.get("NAME") or "").strip("\"'")


def parse_memory_bytes(text: str) -> int:
    """Return MemTotal of /proc/meminfo in bytes."""
    for line in text.splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def huge_pages(folder: str = HUGE_PAGES) -> dict[str, int]:
    """Return by size of page, in bytes, how many bytes the kernel has set aside; {} where it has no huge pages.

    Sizes are texts, as JSON has no other keys.
    """
    found = {}
    for path in sorted(glob.glob(f"{folder}/hugepages-*kB/nr_hugepages")):
        size = int(os.path.basename(os.path.dirname(path))[len("hugepages-") : -len("kB")]) * 1024
        found[str(size)] = size * int(_text(path) or 0)
    return found


def disk_bytes(path: str) -> int:
    """Return the size of the file system that holds ``path``; 0 where that cannot be told."""
    try:
        found = os.statvfs(path)
    except OSError:
        return 0
    return found.f_blocks * found.f_frsize


def machine_id(state_dir: str, *, check: bool = False) -> str:
    """Return the machine's id, 32 hex digits; one is made under ``state_dir`` where the system has none."""
    found = _text("/etc/machine-id") or _text(os.path.join(state_dir, "machine-id"))
    if not found:
        found = uuid.uuid4().hex
        if not check:
            write_atomically(os.path.join(state_dir, "machine-id"), found.encode() + b"\n", 0o644, sync=True)
    return found


def addresses() -> list[dict[str, str]]:
    """Return the IPv4 addresses that are not loopback or of our bridges: ``[{"device", "ip", "cidr"}]``."""
    with Netlink() as netlink:
        names = {link.ifindex: link for link in netlink.links().values()}
        found = [each for each in netlink.addresses() if each.ifindex in names]
    rows = []
    for each in found:
        link = names[each.ifindex]
        if link.name != "lo" and not link.alias.startswith("minik8s "):
            rows.append({"device": link.name, "ip": each.ip, "cidr": f"{each.ip}/{each.prefix_length}"})
    return rows


def internal_ip() -> str:
    """Return the address of the device with the default route, "" when there is none."""
    with Netlink() as netlink:
        devices = [route.ifindex for route in netlink.routes() if route.destination == "default"]
        return next((each.ip for each in netlink.addresses() if devices and each.ifindex == devices[0]), "")


def internal_ipv6() -> str:
    """Return the IPv6 address of the device with the default route of IPv6, else of IPv4; "" when there is none."""
    with Netlink() as netlink:
        defaults = [route for route in netlink.routes(ipv6=True) if route.destination == "default"]
        found: dict[int, str] = {}
        for each in netlink.machine_addresses():
            found.setdefault(each.ifindex, each.ip)
    devices = [route.ifindex for route in sorted(defaults, key=lambda one: ":" not in one.gateway)]
    return next((found[device] for device in devices if device in found), "")


def _docker(docker: Docker) -> dict[str, Any]:
    try:
        version, info = docker.call("GET", "/version"), docker.call("GET", "/info")
    except DockerError as error:
        return {"docker_version": "", "container_runtime_version": "", "docker_error": str(error)}
    return {
        "docker_version": version["Version"],
        "container_runtime_version": "docker://" + version["Version"],
        "docker_root": info["DockerRootDir"],
        "disk_bytes": disk_bytes(info["DockerRootDir"]),
        "cgroup_version": info.get("CgroupVersion", "1"),
        "live_restore": info["LiveRestoreEnabled"],
        "docker_error": "",
    }


def gather(state_dir: str, docker: Docker, *, check: bool = False, devices: Iterable[Device] = ()) -> dict[str, Any]:
    """Return the facts of this node, with which of ``devices`` are there.

    A Docker that does not answer is told in ``docker_error``.
    """
    token = stored_token(state_dir)
    return {
        "hostname": platform.node(),
        "cpus": os.cpu_count() or 1,
        "huge_pages": huge_pages(),
        "memory_bytes": parse_memory_bytes(_text("/proc/meminfo")),
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        "operating_system": "linux",
        "kernel_version": platform.release(),
        "os_image": parse_os_release(_text("/etc/os-release")),
        "boot_id": _text("/proc/sys/kernel/random/boot_id"),
        "machine_id": machine_id(state_dir, check=check),
        "internal_ip": internal_ip(),
        "internal_ipv6": internal_ipv6(),
        "addresses": addresses(),
        "devices": present(devices),
        "token": token,
        "epoch": token[0] if token else 0,
        "digests": {section: stored_digest(state_dir, section) for section in SECTIONS},
        **_docker(docker),
    }
