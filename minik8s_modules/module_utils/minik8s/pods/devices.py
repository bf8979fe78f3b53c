"""Devices of a node that are counted and given to containers (``minik8s_devices``): the setting, and who has which.

An administrator names a node's devices; a pod asks for a number of a resource and never for a path. Which device of
several a container gets is decided here, on the node, where its containers say what they have: each carries its
devices in a label, written by the call that makes it, so nothing is remembered elsewhere and nothing is given twice. A
later attempt of a container keeps what the one before it had.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..core import labels
from ..core.faults import KeyFault
from ..entries.containers import ContainerEntry, DeviceEntry

_RESOURCE = re.compile(
    r"(?=.{1,253}/)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
    r"/(?=.{1,63}\Z)[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?\Z"
)
_PERMISSIONS = ("r", "w", "rw", "m", "rm", "wm", "rwm")
_FIELDS = ("resource", "path", "count", "paths", "beside", "permissions")
MOST = 10_000
"""Of one device; a typing error beyond it."""
AGAIN_S = 0.5
"""After a pass that removes a container whose device another one is to get."""
_ENDED = frozenset({"exited", "dead"})


class Device(NamedTuple):
    """A resource of a node.

    A container that asks for a ``shared`` one gets its single path, as up to ``amount`` at a time may; of another one
    it gets as many paths as it asks for, which nobody else has. ``beside`` comes along with either.
    """

    resource: str
    paths: tuple[str, ...]
    amount: int
    shared: bool
    beside: tuple[str, ...] = ()
    permissions: str = "rw"

    def as_json(self) -> dict[str, Any]:
        """Return it as it is set."""
        given = {"path": self.paths[0], "count": self.amount} if self.shared else {"paths": list(self.paths)}
        more = {"beside": list(self.beside)} if self.beside else {}
        return {"resource": self.resource, **given, **more, "permissions": self.permissions}

    def left(self, present: Iterable[str]) -> int:
        """Return how many a node has on which the paths ``present`` are devices."""
        there = frozenset(present)
        if not there.issuperset(self.beside):
            return 0
        found = len(there.intersection(self.paths))
        return self.amount * found if self.shared else found


def parse(found: Any, where: str) -> tuple[Device, ...]:
    """Return what a setting says.

    Raises:
        ValueError: it cannot be used; the message says which part, and why.
    """
    if not isinstance(found, (list, tuple)):
        raise ValueError(f"{where} must be a list of devices, not {type(found).__name__}")  # noqa: TRY004 - as below
    devices = tuple(_device(one, f"{where}[{number}]") for number, one in enumerate(found))
    _check_unique([one.resource for one in devices], where, "resource")
    _check_unique([path for one in devices for path in one.paths], where, "path")
    return devices


def problems(found: Any) -> list[str]:
    """Return what is wrong with the setting of a node."""
    try:
        parse(found, "minik8s_devices")
    except ValueError as error:
        return [str(error)]
    return []


def _device(found: Any, where: str) -> Device:
    if not isinstance(found, Mapping):
        raise ValueError(f"{where} must have resource, and path or paths; it is {found!r:.80}")  # noqa: TRY004
    # Ansible fills in what its argument spec names
    given = {name: value for name, value in found.items() if value is not None}
    if unknown := sorted(set(given) - set(_FIELDS)):
        raise ValueError(f"{where}.{unknown[0]} is not known; there are {', '.join(_FIELDS)}")
    shared = "path" in given
    if shared == ("paths" in given):
        raise ValueError(f"{where} must have either path, which containers share, or paths, each for one container")
    if "count" in given and not shared:
        raise ValueError(f"{where}.count goes with path; each of paths counts once")
    paths = _paths([given["path"]], f"{where}.path") if shared else _paths(given["paths"], f"{where}.paths")
    if not paths:
        raise ValueError(f"{where}.paths is empty")
    permissions = given.get("permissions", "rw")
    if permissions not in _PERMISSIONS:
        raise ValueError(f"{where}.permissions must be of r, w and m, in this order, not {permissions!r:.80}")
    count = _count(given.get("count", 1), f"{where}.count") if shared else len(paths)
    beside = _paths(given.get("beside", ()), f"{where}.beside")
    if both := sorted(set(beside).intersection(paths)):
        raise ValueError(f"{where}.beside names {both[0]}, which is counted")
    return Device(_resource(given.get("resource"), f"{where}.resource"), paths, count, shared, beside, permissions)


def _resource(found: Any, where: str) -> str:
    if not isinstance(found, str) or not _RESOURCE.match(found):
        raise ValueError(f"{where} must be like example.com/dongle, not {found!r:.80}")
    domain = found.partition("/")[0]
    if domain == "kubernetes.io" or domain.endswith(".kubernetes.io") or domain.startswith("requests."):
        raise ValueError(f"{where} is {found}: kubernetes.io and requests. are Kubernetes' own; use another domain")
    return found


def _count(found: Any, where: str) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not 0 < found <= MOST:
        raise ValueError(f"{where} must be a number from 1 to {MOST}, not {found!r:.80}")
    return found


def _paths(found: Any, where: str) -> tuple[str, ...]:
    if not isinstance(found, (list, tuple)):
        raise ValueError(f"{where} must be a list of paths below /dev, not {found!r:.80}")  # noqa: TRY004
    for path in found:
        if not isinstance(path, str) or not re.fullmatch(r"/dev(/[A-Za-z0-9_.:+@-]+)+", path):
            raise ValueError(f"{where} must be of paths below /dev, not {path!r:.80}")
        if os.path.normpath(path) != path:
            raise ValueError(f"{where}: write {path} without . and ..")
    _check_unique(found, where, "path")
    return tuple(found)


def _check_unique(names: Sequence[str], where: str, what: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{where}: {what} {name} is there twice")


def present(devices: Iterable[Device]) -> list[str]:
    """Return the paths of ``devices`` at which the node has one."""
    return sorted({path for one in devices for path in (*one.paths, *one.beside) if is_device(path)})


def is_device(path: str) -> bool:
    """Return whether a device stands there."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


# Who has which


class Held(NamedTuple):
    """The devices of a container that is there, by its label; ``alive``: it was not ended."""

    key: str
    paths: frozenset[str]
    alive: bool


def held(listed: Iterable[Mapping[str, Any]]) -> list[Held]:
    """Return the devices of a Docker listing's containers."""
    found = []
    for each in listed:
        marks = each["Labels"]
        if paths := marks.get(labels.DEVICES, "").split():
            key = f"{marks.get(labels.POD_UID, '')}/{marks.get(labels.CONTAINER, '')}"
            found.append(Held(key, frozenset(paths), each["State"] not in _ENDED))
    return found


def are_freed_by(leaving: Iterable[Held], entry: ContainerEntry) -> bool:
    """Return whether containers that the pass removes have devices that the entry may get, so that it waits for them.

    Keys are dealt with side by side, and a removal may fail: until they are gone the devices are theirs.
    """
    wanted = {path for one in entry["devices"] if not one["shared"] for path in one["paths"]}
    return any(one.alive and not wanted.isdisjoint(one.paths) for one in leaving)


class Pool:
    """The devices of a node while a pass is planned; what is given in it counts at once."""

    def __init__(self, known: Iterable[Held], is_there: Mapping[str, bool]) -> None:
        self._known = list(known)
        self._is_there = is_there

    def give(self, key: str, entry: ContainerEntry) -> ContainerEntry:
        """Return the entry with only the paths that its container gets.

        Raises:
            KeyFault: DeviceMissing, there are not enough that are free.
        """
        if not entry["devices"]:
            return entry
        chosen = [self._choose(key, one) for one in entry["devices"]]
        self._known.append(Held(key, frozenset(path for one in chosen for path in one["paths"]), alive=True))
        return {**entry, "devices": chosen}

    def _choose(self, key: str, wanted: DeviceEntry) -> DeviceEntry:
        if gone := [path for path in wanted["beside"] if not self._is_there.get(path)]:
            raise KeyFault("DeviceMissing", f"{wanted['resource']} needs {gone[0]}, which is no device of this node")
        there = [path for path in wanted["paths"] if self._is_there.get(path)]
        if wanted["shared"]:
            if not there:
                raise KeyFault("DeviceMissing", f"{wanted['resource']}: {wanted['paths'][0]} is no device of this node")
            return wanted
        taken = self._of(lambda one: one.key != key and one.alive)
        free = [path for path in there if path not in taken]
        if len(free) < wanted["count"]:
            text = f"{len(there) - len(free)} of {len(there)} are taken, {wanted['count']} wanted"
            raise KeyFault("DeviceMissing", f"{wanted['resource']}: {text}")
        own, pods = self._of(lambda one: one.key == key), key.partition("/")[0]
        same_pod = self._of(lambda one: one.key.partition("/")[0] == pods)
        ended = self._of(lambda one: one.key != key)
        # its own, then what an ended container of its pod had, then what nobody had: others may start again
        free.sort(key=lambda path: (path not in own, path not in same_pod, path in ended, wanted["paths"].index(path)))
        kept = set(free[: wanted["count"]])
        return {**wanted, "paths": [path for path in wanted["paths"] if path in kept]}

    def _of(self, counts: Any) -> set[str]:
        return {path for one in self._known if counts(one) for path in one.paths}


def paths_of(entry: ContainerEntry) -> dict[str, str]:
    """Return the paths that a container gets, each with what may be done there."""
    return {path: one["permissions"] for one in entry["devices"] for path in (*one["paths"], *one["beside"])}


def counted_paths(entry: ContainerEntry) -> list[str]:
    """Return the paths that only this container gets: what its label holds."""
    return sorted(path for one in entry["devices"] if not one["shared"] for path in one["paths"])


def opened(body: dict[str, Any], entry: ContainerEntry) -> dict[str, Any]:
    """Return Docker's create request with the groups that the devices are open to, and others are not.

    A program that is not root may then use what its container was given.
    """
    groups = {str(seen.st_gid) for seen in map(os.stat, paths_of(entry)) if _opens_to_group(seen)}
    host = body["HostConfig"]
    return {**body, "HostConfig": {**host, "GroupAdd": sorted({*(host.get("GroupAdd") or []), *groups})}}


def _opens_to_group(seen: os.stat_result) -> bool:
    return bool(seen.st_gid and seen.st_mode & 0o060 and not seen.st_mode & 0o006)
