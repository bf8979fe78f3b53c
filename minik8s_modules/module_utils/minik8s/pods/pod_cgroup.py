"""A pod's own cgroup: the parent of its containers' cgroups, with limits for all of them together.

Docker makes it on the way to the pause container (``--cgroup-parent``), with either cgroup driver and version; this
file finds it through that container's process, writes the limits into it, and removes it after the pod. Pods of a node
lie flat under ``/minik8s/<8 hex of the node's name>/pod<uid>``: what kubelet's level of QoS classes does there is told
by each pod's own CPU shares. With the systemd driver the same is a slice, and its files are systemd's, which writes
them again at any ``daemon-reload``: limits become properties of the slice, and the slice is stopped after its pod.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..core.files import read_bytes
from ..core.memory_events import SLICE, is_own, own_parent, path_of
from . import huge_pages
from .cgroups import CPU_PERIOD_US, ROOT, limits_of_paths, membership, same_memory, weight_of

TOP = "minik8s"
SYSTEMD_WORDS = "should be a valid slice"
SWAP = "memory.swap.max"
"""Of version 2, where the kernel has swap."""
CONTROL = "/run/systemd/system.control"
"""Where systemd keeps the properties of slices."""


def _node_part(node: str) -> str:
    return hashlib.sha256(node.encode()).hexdigest()[:8]


def parent_of(node: str, uid: str) -> str:
    """Return the pod's cgroup for Docker's cgroupfs driver."""
    return f"/{TOP}/{_node_part(node)}/pod{uid}"


def slice_of(node: str, uid: str) -> str:
    """Return the pod's cgroup for Docker's systemd driver, where a dash is a level."""
    return f"{TOP}-{_node_part(node)}-pod{uid.replace('-', '_')}.slice"


def paths_of(node: str, uid: str, pid: int) -> dict[str, str]:
    """Return by controller ("" for version 2) the pod's cgroup, as the process ``pid`` of a container of it tells.

    Docker was asked for the number a while ago: where the process has ended and another pod's has its number now, {}.
    """
    above = {name: os.path.dirname(path) for name, path in membership(pid).items()}
    above = {name: os.path.dirname(path) if is_own(path) else path for name, path in above.items()}
    group, name_of_slice = parent_of(node, uid), slice_of(node, uid)
    return {
        name: path for name, path in above.items() if path.endswith(group) or os.path.basename(path) == name_of_slice
    }


def found(node: str, uid: str, pid: int, declared: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the limits the kernel holds for the pod, in the words of the entry; None without a cgroup."""
    paths = paths_of(node, uid, pid)
    if not paths:
        return None
    seen = limits_of_paths(paths, declared["cpu_shares"])
    memory = seen.memory_bytes
    if memory is not None and same_memory(declared["memory_bytes"], memory):
        memory = declared["memory_bytes"]
    limits = seen._replace(memory_bytes=memory)._asdict()
    shown = {name: value if limits.get(name) is None else limits[name] for name, value in declared.items()}
    huge = huge_pages.different(huge_pages.directory(ROOT, paths), declared.get("huge_pages") or {})
    return shown | _swap(paths) | ({} if huge is None else {"huge_pages": huge})


def _swap(paths: Mapping[str, str]) -> dict[str, Any]:
    """Return how much swap the pod may use where that is more than none, which only version 2 limits by itself."""
    text = b"" if "cpu" in paths else read_bytes(f"{ROOT}{paths.get('', '/')}/{SWAP}") or b""
    return {} if text.strip() in {b"", b"0"} else {"swap_bytes": text.strip().decode()}


def write(node: str, uid: str, pid: int, declared: Mapping[str, Any]) -> None:
    """Give the pod of ``pid`` its limits; nothing happens where that process is none of the pod's any more.

    Raises:
        OSError: the kernel or systemd refuses them.
    """
    paths = paths_of(node, uid, pid)
    slices = {os.path.basename(path) for path in paths.values() if path.endswith(SLICE)}
    for name in sorted(slices):
        _systemctl("set-property", "--runtime", name, *properties(declared, version_2="cpu" not in paths))
    # systemd writes them as well, but a moment later
    for path, text in _files(paths, declared):
        if os.path.exists(path):
            with open(path, "w", encoding="ascii") as target:
                target.write(text)
    if directory := huge_pages.directory(ROOT, paths):
        huge_pages.write(directory, declared.get("huge_pages") or {})


def properties(declared: Mapping[str, Any], *, version_2: bool) -> list[str]:
    """Return the limits as properties of a slice, see systemd.resource-control(5)."""
    quota, memory, shares = declared["cpu_quota_us"], declared["memory_bytes"], declared["cpu_shares"]
    words = [f"CPUQuota={100 * quota / CPU_PERIOD_US:.2f}%" if quota else "CPUQuota="]
    words.append(f"{'MemoryMax' if version_2 else 'MemoryLimit'}={memory or 'infinity'}")
    words += [f"CPUWeight={weight_of(shares)}", "MemorySwapMax=0"] if version_2 else [f"CPUShares={shares}"]
    return words + ([f"TasksMax={declared['pids'] or 'infinity'}"] if "pids" in declared else [])


def _systemctl(*arguments: str) -> None:
    done = subprocess.run(["systemctl", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"systemctl {' '.join(arguments)}: {done.stderr.strip()}")


def _files(paths: Mapping[str, str], declared: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    quota, memory = declared["cpu_quota_us"], declared["memory_bytes"]
    if "pids" in declared:  # a document from before the upgrade says nothing of them
        base = f"{ROOT}/pids{paths['pids']}" if "pids" in paths else ROOT + paths.get("", "/")
        yield f"{base}/pids.max", str(declared["pids"] or "max")
    if "cpu" in paths:
        cpu = f"{ROOT}/cpu{paths['cpu']}"
        yield f"{cpu}/cpu.shares", str(declared["cpu_shares"])
        yield f"{cpu}/cpu.cfs_period_us", str(CPU_PERIOD_US)
        yield f"{cpu}/cpu.cfs_quota_us", str(quota or -1)
        yield f"{ROOT}/memory{paths.get('memory', '/')}/memory.limit_in_bytes", str(memory or -1)
    elif "" in paths:
        base = ROOT + paths[""]
        yield f"{base}/cpu.weight", str(weight_of(declared["cpu_shares"]))
        yield f"{base}/cpu.max", f"{quota or 'max'} {CPU_PERIOD_US}"
        yield f"{base}/memory.max", str(memory or "max")
        yield f"{base}/{SWAP}", "0"


def _directories(node: str, uid: str | None = None) -> Iterator[str]:
    """Yield a pod's directories in every hierarchy, a cgroup's or a slice's, and its properties'; None: all pods'."""
    part, pattern = _node_part(node), "*" if uid is None else glob.escape(uid)
    name = slice_of(node, pattern)
    for path in (f"{TOP}/{part}/pod{pattern}", f"{TOP}{SLICE}/{TOP}-{part}{SLICE}/{name}"):
        yield from glob.glob(f"{ROOT}/{path}")
        yield from glob.glob(f"{ROOT}/*/{path}")
    yield from glob.glob(f"{CONTROL}/{name}.d")


def _uid_of(directory: str) -> str:
    name = _unit_of(directory)
    if not name.endswith(SLICE):
        return name.removeprefix("pod")
    return name.removesuffix(SLICE).partition("-pod")[2].replace("_", "-")


def _unit_of(directory: str) -> str:
    return os.path.basename(directory).removesuffix(".d")


def left_over(node: str, uids: Iterable[str]) -> list[str]:
    """Return the uids of pods that have a cgroup here and are none of ``uids``."""
    return sorted({_uid_of(path) for path in _directories(node)} - set(uids))


def is_idle(node: str, uid: str) -> bool:
    """Return whether something of the pod's cgroup is here, and nothing runs in it."""
    found = [*_directories(node, uid)]
    return bool(found) and not any(_runs_in(path) for path in found)


def _runs_in(path: str) -> bool:
    """Return whether a process is in a cgroup or below it.

    Not whether there is a container's directory: Docker says that a container is gone while a busy systemd has not
    removed its scope yet.
    """
    for folder, _, _ in os.walk(path):
        try:
            if read_bytes(f"{folder}/cgroup.procs"):
                return True
        except OSError as error:
            if error.errno != errno.ENODEV:  # it went meanwhile
                return True
    return False


def _own_of(node: str, uid: str, name: str) -> Iterator[str]:
    """Yield the directory that is the own cgroup of a pod's container with that Docker name, if it is there."""
    for pod in (slice_of(node, uid), parent_of(node, uid)):
        path = ROOT + path_of(own_parent(pod, name))
        if os.path.isdir(path):
            yield path


def remove_own(node: str, uid: str, name: str) -> None:
    """Remove the own cgroup of a container that is gone, and with it what it counted."""
    for path in _own_of(node, uid, name):
        if path.endswith(SLICE):
            _forget_slice(os.path.basename(path), revert=False)
        else:
            with contextlib.suppress(OSError):
                os.rmdir(path)


def remove(node: str, uid: str) -> None:
    """Remove the pod's cgroup; one that something runs in stays, and so may others while systemd or Docker is busy."""
    found = sorted(_directories(node, uid))
    slices = {_unit_of(path) for path in found if _unit_of(path).endswith(SLICE)}
    for path in [path for path in found if not _unit_of(path).endswith(SLICE)]:
        for own in filter(is_own, glob.glob(f"{path}/c*")):
            with contextlib.suppress(OSError):
                os.rmdir(own)
        with contextlib.suppress(OSError):  # busy: a container is still ending; the kernel keeps it safe
            os.rmdir(path)
        for above in (os.path.dirname(path), os.path.dirname(os.path.dirname(path))):
            with contextlib.suppress(OSError):
                os.rmdir(above)
    # to stop a slice ends what runs in it
    if slices and is_idle(node, uid):
        _forget_slice(slice_of(node, uid))


def slices_above(node: str) -> list[str]:
    """Return the slices above those of the node's pods that are here and hold nobody else's, the lower first.

    They stay when pods go: a pod that is just being made may need them.
    """
    own, top = f"{TOP}-{_node_part(node)}{SLICE}", f"{TOP}{SLICE}"
    found = [*glob.glob(f"{ROOT}/{top}"), *glob.glob(f"{ROOT}/*/{top}")]
    inside = {os.path.basename(os.path.dirname(child)) for path in found for child in glob.glob(f"{path}/*/")}
    return [*([own] if own in inside else []), *([top] if found and inside <= {own} else [])]


def _forget_slice(name: str, *, revert: bool = True) -> None:
    """Stop an empty slice, those in it too, and drop its properties without the reload that costs every other unit."""
    for arguments in (("stop", name), *([("--no-reload", "revert", name)] if revert else [])):
        with contextlib.suppress(OSError):  # it is gone, or systemd does not answer: who needs to know looks
            _systemctl(*arguments)
