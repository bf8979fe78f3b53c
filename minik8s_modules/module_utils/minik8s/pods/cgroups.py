"""The limits the kernel holds for a process: what ``docker inspect`` tells is only what Docker once asked for.

Both cgroup versions; a weight of version 2 is compared in its own coarse steps (runc's conversion of shares).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..core import memory_events
from ..core.files import read_bytes

ROOT = memory_events.ROOT
CPU_PERIOD_US = 100_000  # kubelet's cpuCFSQuotaPeriod
NO_MEMORY_LIMIT = (1 << 63) - 4096  # what the kernel shows for "none": the largest whole page count
PAGE = 4096
LEAST_SHARES = 2


class Limits(NamedTuple):
    """Limits in Docker's terms, 0 for none; None where the kernel did not tell."""

    cpu_shares: int | None = None
    cpu_quota_us: int | None = None
    memory_bytes: int | None = None
    pids: int | None = None


def parse_membership(text: str) -> dict[str, str]:
    """Return the cgroup path by controller from /proc/<pid>/cgroup; version 2 stands under ""."""
    found = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = path
    return found


def _number(path: str) -> int | None:
    text = (read_bytes(path) or b"").split()
    return int(text[0]) if text and text[0].lstrip(b"-").isdigit() else None


def weight_of(shares: int) -> int:
    """Return cgroup v2's weight for v1 shares, as runc converts them."""
    return 1 + (max(shares, LEAST_SHARES) - LEAST_SHARES) * 9999 // 262142


def _quota(quota_us: int | None, period_us: int | None) -> int | None:
    if quota_us is None or not period_us:
        return None
    return max(0, quota_us) * CPU_PERIOD_US // period_us  # -1 is no limit


def _version_1(paths: Mapping[str, str]) -> Limits:
    cpu, memory = f"{ROOT}/cpu{paths['cpu']}", f"{ROOT}/memory{paths.get('memory', '/')}"
    limit = _number(f"{memory}/memory.limit_in_bytes")
    return Limits(
        _number(f"{cpu}/cpu.shares"),
        _quota(_number(f"{cpu}/cpu.cfs_quota_us"), _number(f"{cpu}/cpu.cfs_period_us")),
        limit if limit is None or limit < NO_MEMORY_LIMIT else 0,
        _pids(f"{ROOT}/pids{paths.get('pids', '/')}"),
    )


def _version_2(path: str, declared_shares: int) -> Limits:
    base = ROOT + path
    weight, limit = _number(f"{base}/cpu.weight"), (read_bytes(f"{base}/memory.max") or b"").strip()
    words = (read_bytes(f"{base}/cpu.max") or b"").split()
    shares = None
    if weight is not None:
        same = weight == weight_of(declared_shares)
        shares = declared_shares if same else LEAST_SHARES + (weight - 1) * 262142 // 9999
    quota = None
    if len(words) == len(("quota", "period")):
        quota = 0 if words[0] == b"max" else _quota(int(words[0]), int(words[1]))
    return Limits(shares, quota, 0 if limit == b"max" else int(limit) if limit.isdigit() else None, _pids(base))


def _pids(base: str) -> int | None:
    text = (read_bytes(f"{base}/pids.max") or b"").strip()
    return 0 if text == b"max" else int(text) if text.isdigit() else None


def membership(pid: int) -> dict[str, str]:
    """Return the cgroups a process is in, by controller; {} when it has ended."""
    text = (read_bytes(f"/proc/{pid}/cgroup") or b"").decode("utf-8", "replace")
    return parse_membership(text) if text else {}


def limits_of(pid: int, declared_shares: int) -> Limits:
    """Return the limits a process lives under; ``declared_shares`` resolves what version 2 rounds."""
    return limits_of_paths(membership(pid), declared_shares)


def limits_of_paths(paths: Mapping[str, str], declared_shares: int) -> Limits:
    """Return the limits of the cgroups ``paths``, by controller ("" for version 2)."""
    if "cpu" in paths:
        return _version_1(paths)
    return _version_2(paths[""], declared_shares) if "" in paths else Limits()


def same_memory(declared: int, found: int) -> bool:
    """Return whether two memory limits are one: the kernel cuts to whole pages."""
    return declared // PAGE == found // PAGE
