"""Section ``folders``: a folder for each volume that was made for a claim, on the machine that has the data.

What was made is on record, ``<state_dir>/folders/<owner>.json``, before it is there; only what is on record, under the
same path and owner, is ever deleted. No part of a path may be a symbolic link: every folder on the way is opened as
such, and what is done is done below the open one. A folder that is to go is renamed first, so that nobody finds half of
it, and deleted by a program of its own: that holds the record locked, and a pass does not wait for it. What is no
longer declared (a volume that is retained) stays, with its record.

A folder with a size is in a project of its own before it is in its place (``project_quotas.py``); its number is on the
record, too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..core.digests import Entries, canonical
from ..core.faults import KeyFault
from ..core.files import read_json, remove_file, write_atomically
from ..core.paths import NAME_LIMIT, component, folder_record_path
from ..core.schema import Schema, check_fields, schema_of
from ..core.section import Context, Due, Facets, Plan, Scope, Step
from ..entries.folders import FolderEntry
from .exported import clients
from .hostpath import MISSING
from .project_quotas import BLOCK, Limit, ProjectQuotas, blocks_of, project_of

ABSENT = "absent"
ASIDE = ".minik8s-deleted-"
MADE = ".minik8s-made-"
ROOT_MODE = 0o711  # who cannot list it has to know a volume's name, which has the claim's UID in it
MODE = 0o777  # whoever a container runs as, also nobody under root_squash
WAIT_S = 1.0  # a small folder is gone by then; a large one goes on being deleted
AGAIN_S = 1.0
SAID_BYTES = 4096
SCHEMA: Schema = schema_of(FolderEntry)
_NOT_EXPORTED = (
    "this machine does not export {} (exportfs -v): put it into the group nfs_server and the folder into "
    "nfs_server_paths, run site.yml, and check that nfs-server runs"
)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z")
_deleting: list[subprocess.Popen[bytes]] = []
"""Programs of this process that go on when their pass is over."""


class ObservedFolder(NamedTuple):
    """What stands in the place of a volume's folder; whether one was put aside, it is on record, and can be mounted.

    ``exported`` are the machines that can, None where that is not known or asked; ``limit`` is that of a folder which
    is there and has a size.
    """

    kind: str
    aside: bool
    recorded: bool
    exported: tuple[str, ...] | None = None
    limit: Limit = Limit(0, 0)

    def facets(self) -> Facets | None:
        """Return what a person wants to see of it."""
        if self.kind == MISSING:
            return {"is": "being deleted"} if self.aside else None
        return {"is": self.kind, **_size(self.limit.size_bytes)}


def _size(size_bytes: int) -> Facets:
    return {"size": str(size_bytes)} if size_bytes else {}


def _wanted(entry: Mapping[str, Any]) -> int:
    """Return the limit of a folder in bytes as the kernel tells it, 0 for none."""
    return blocks_of(entry.get("size_bytes") or 0) * BLOCK


class Folders:
    """The section's observe, plan and apply."""

    name = "folders"

    def __init__(self, quotas: ProjectQuotas | None = None) -> None:
        self._quotas = quotas or ProjectQuotas()

    def check_entry(self, key: str, entry: Mapping[str, Any]) -> None:
        """Raise KeyFault for an entry that cannot be used."""
        check_fields(key, entry, SCHEMA)
        component(key)
        component(entry["owner"])
        root, name = entry["root"], entry["name"]
        if not root.startswith("/") or root == "/" or os.path.normpath(root) != root or "\0" in root:
            raise KeyFault("InvalidEntry", f"{key}.root {root!r:.80} must be absolute, plain, and more than '/'")
        if not _NAME.match(name) or len(name) > NAME_LIMIT:
            raise KeyFault("InvalidEntry", f"{key}.name {name!r:.80} is not a valid name of a volume's folder")
        if (entry.get("size_bytes") or 1) <= 0:
            raise KeyFault("InvalidEntry", f"{key}.size_bytes is {entry['size_bytes']}; it must be more than 0")

    def observe(self, context: Context, entries: Entries, scope: Scope) -> dict[str, ObservedFolder | KeyFault]:
        """Return what there is of each declared folder."""
        return {key: self._look_safely(context, entry) for key, entry in entries.items() if scope.covers(key)}

    def plan(
        self, context: Context, entries: Entries, observed: Mapping[str, ObservedFolder | KeyFault], scope: Scope
    ) -> Plan:
        """Return the steps."""
        plan = Plan()
        for key, entry in entries.items():
            if not scope.covers(key):
                continue
            found = observed[key]
            if isinstance(found, KeyFault):
                plan.errors[key] = found
            elif entry["state"] == ABSENT:
                _plan_absent(plan, key, entry, found)
            else:
                _plan_present(plan, key, entry, found)
        return plan

    def apply(self, context: Context, step: Step) -> None:
        """Carry out one step."""
        if step.action == "make":
            self._make(context, step.data)
        elif step.action == "limit":
            self._limit(context, step.data)
        elif step.action == "remove":
            _remove(context, step.data)
        else:
            self._forget(context, step.data)

    def status(
        self,
        context: Context,
        entries: Entries,
        observed: Mapping[str, ObservedFolder | KeyFault],
        touched: frozenset[str],
    ) -> dict[str, Any]:
        """Return ``present`` or ``absent`` of what is so."""
        found = {
            key: self._look_safely(context, entry) if key in touched else observed[key]
            for key, entry in entries.items()
        }
        return {key: _state(entry, found[key]) for key, entry in entries.items()}

    def _look_safely(self, context: Context, entry: Mapping[str, Any]) -> ObservedFolder | KeyFault:
        try:
            return self._look(context, entry)
        except KeyFault as fault:
            return fault
        except OSError as error:
            return KeyFault("NodeError", f"{_path(entry)}: {error.strerror or error}")

    def _look(self, context: Context, entry: Mapping[str, Any]) -> ObservedFolder:
        record = _record(context, entry["owner"])
        recorded = (record.get("owner"), record.get("path")) == (entry["owner"], _path(entry))
        allowed = clients(entry["root"]) if entry.get("exported") else None
        exported = None if allowed is None else tuple(allowed)
        try:
            with _opened(entry["root"]) as root:
                aside = _kind_of(ASIDE + entry["owner"], root) != MISSING
                found = ObservedFolder(_kind_of(entry["name"], root), aside, recorded, exported)
                limit = self._limit_of(entry, root, found.kind)
                return found._replace(limit=limit if limit.project == record.get("project") else Limit(0, 0))
        except FileNotFoundError:
            return ObservedFolder(MISSING, aside=False, recorded=recorded, exported=exported)

    def _limit_of(self, entry: Mapping[str, Any], root: int, kind: str) -> Limit:
        if not entry.get("size_bytes") or entry["state"] == ABSENT:
            return Limit(0, 0)
        self._quotas.require(entry["root"], root)
        if kind != "directory":
            return Limit(0, 0)
        with _inner(entry["name"], root) as folder:
            return self._quotas.limit(folder)

    def _make(self, context: Context, entry: Mapping[str, Any]) -> None:
        """Put it on record, make it beside its place with its mode and size, and move it there."""
        project = _noted(context, entry)
        context.checkpoint("make folder")
        with _opened(entry["root"], make=True) as root:
            made = MADE + entry["owner"]
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(made, dir_fd=root)  # of a pass that was killed; nothing else goes, and no link is followed
            os.mkdir(made, 0o700, dir_fd=root)
            with _inner(made, root) as folder:
                os.fchmod(folder, MODE)
                if project:
                    self._quotas.require(entry["root"], root)
                    self._enforce(context, folder, project, entry["size_bytes"])
            context.checkpoint("place folder")
            os.rename(made, entry["name"], src_dir_fd=root, dst_dir_fd=root)

    def _limit(self, context: Context, entry: Mapping[str, Any]) -> None:
        """Give a folder that is there its size."""
        project = _noted(context, entry)
        with _opened(entry["root"]) as root, _inner(entry["name"], root) as folder:
            if self._quotas.limit(folder).project == project:
                context.checkpoint("limit project")
                self._quotas.set_limit(folder, project, entry["size_bytes"])
            else:
                self._enforce(context, folder, project, entry["size_bytes"])

    def _enforce(self, context: Context, folder: int, project: int, size_bytes: int) -> None:
        """Limit the project before anything is in it, and the folder last: until then it counts as without a size."""
        context.checkpoint("limit project")
        self._quotas.set_limit(folder, project, size_bytes)
        context.checkpoint("place folder in project")
        self._quotas.place(folder, project)

    def _forget(self, context: Context, entry: Mapping[str, Any]) -> None:
        project = _record(context, entry["owner"]).get("project")
        if project:
            context.checkpoint("lift limit")
            with contextlib.suppress(OSError, KeyFault), _opened(entry["root"]) as root:  # a number is left, no data
                self._quotas.set_limit(root, project, 0)
        context.checkpoint("forget folder")
        remove_file(folder_record_path(context.state_dir, entry["owner"]))


def _record(context: Context, owner: str) -> dict[str, Any]:
    found = read_json(folder_record_path(context.state_dir, owner))
    return found if isinstance(found, dict) else {}


def _noted(context: Context, entry: Mapping[str, Any]) -> int:
    """Put a folder on record before it is touched; return its project, 0 for none."""
    owner, before = entry["owner"], _record(context, entry["owner"])
    record = {"owner": owner, "path": _path(entry)}
    if entry.get("size_bytes"):
        record["project"] = before.get("project") or project_of(owner, _projects(context))
    if record != before:
        context.checkpoint("record folder")
        write_atomically(folder_record_path(context.state_dir, owner), canonical(record), sync=True)
    return int(record.get("project") or 0)


def _projects(context: Context) -> frozenset[int]:
    """Return the projects that volumes have on this machine."""
    folder = os.path.dirname(folder_record_path(context.state_dir, "any"))
    with contextlib.suppress(FileNotFoundError):
        owners = [name[:-5] for name in os.listdir(folder) if name.endswith(".json")]
        return frozenset(int(_record(context, owner).get("project") or 0) for owner in owners)
    return frozenset()


@contextlib.contextmanager
def _inner(name: str, folder: int) -> Iterator[int]:
    """Open a folder in another one, no link followed."""
    held = os.open(name, _FOLDER, dir_fd=folder)
    try:
        yield held
    finally:
        os.close(held)


def _path(entry: Mapping[str, Any]) -> str:
    return f"{entry['root']}/{entry['name']}"


def _state(entry: Mapping[str, Any], found: ObservedFolder | KeyFault) -> dict[str, str] | None:
    if isinstance(found, KeyFault):
        return None
    if entry["state"] == ABSENT:
        return {"state": ABSENT} if found.kind == MISSING and not found.aside else None
    return {"state": "present"} if found.kind == "directory" else None


def _plan_present(plan: Plan, key: str, entry: Mapping[str, Any], found: ObservedFolder) -> None:
    if found.kind == MISSING:
        plan.steps.append(Step("make", key, _path(entry), entry))
        whom = {"exported to": " ".join(found.exported)} if found.exported else {}
        plan.differs(key, None, {"is": "directory", **_size(_wanted(entry)), **whom})
    elif found.kind == "directory" and entry.get("size_bytes") and not found.recorded:
        why = f"{_path(entry)} was not made by minik8s for this volume, and gets no limit; move it away"
        plan.errors[key] = KeyFault("NotOurs", why)
    elif found.kind == "directory" and entry.get("size_bytes") and found.limit.size_bytes != _wanted(entry):
        plan.steps.append(Step("limit", key, f"{_path(entry)} to {_wanted(entry)} bytes", entry))
        plan.differs(key, found.facets(), {"is": "directory", **_size(_wanted(entry))})
    elif found.kind != "directory":
        plan.errors[key] = KeyFault("FailedMount", f"{_path(entry)} is a {found.kind}, not a directory")
    if found.exported == () and key not in plan.errors:
        plan.errors[key] = KeyFault("NotExported", _NOT_EXPORTED.format(entry["root"]))


def _plan_absent(plan: Plan, key: str, entry: Mapping[str, Any], found: ObservedFolder) -> None:
    if found.kind == MISSING and not found.aside:
        if found.recorded:
            plan.steps.append(Step("forget", key, _path(entry), entry))
            plan.differs(key, {"is": "deleted"}, None)
    elif not found.recorded:
        why = f"{_path(entry)} was not made by minik8s for this volume, and stays; delete it yourself, or move it away"
        plan.errors[key] = KeyFault("NotOurs", why)
    else:
        plan.steps.append(Step("remove", key, _path(entry), entry))
        plan.differs(key, found.facets(), None)
        plan.due.append(Due(key, AGAIN_S, "DeletesFolder"))


def _kind_of(name: str, folder: int) -> str:
    """Return what stands there, no link followed."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return MISSING
    if stat.S_ISLNK(mode):
        return "symbolic link"
    return "directory" if stat.S_ISDIR(mode) else "file"


@contextlib.contextmanager
def _opened(path: str, *, make: bool = False) -> Iterator[int]:
    """Open a folder, no part of its path a link.

    Raises:
        FileNotFoundError: it is not there.
        KeyFault: InvalidEntry, for a part that is no folder.
    """
    held = os.open("/", _FOLDER)
    try:
        for part in path.strip("/").split("/"):
            new = make and _kind_of(part, held) == MISSING
            if new:
                os.mkdir(part, ROOT_MODE, dir_fd=held)
            try:
                inner = os.open(part, _FOLDER, dir_fd=held)
            except NotADirectoryError:
                why = f"{part} in {path} is a symbolic link or no folder; name the folder itself in the StorageClass"
                raise KeyFault("InvalidEntry", why) from None
            os.close(held)
            held = inner
            if new:
                os.fchmod(held, ROOT_MODE)  # whatever the umask
        yield held
    finally:
        os.close(held)


def _remove(context: Context, entry: Mapping[str, Any]) -> None:
    """Put it aside and have it deleted; raise KeyFault where that fails at once."""
    aside = ASIDE + entry["owner"]
    with _opened(entry["root"]) as root:
        if _kind_of(aside, root) == MISSING:
            context.checkpoint("put folder aside")
            os.rename(entry["name"], aside, src_dir_fd=root, dst_dir_fd=root)
        context.checkpoint("delete folder")
        _delete(aside, root, folder_record_path(context.state_dir, entry["owner"]))


def _delete(name: str, root: int, record: str) -> None:
    """Delete a folder in ``root`` unless somebody does, as whoever has ``record`` locked."""
    _deleting[:] = [each for each in _deleting if each.poll() is None]  # reaps those that have ended
    with open(record, "rb") as held, tempfile.TemporaryFile() as said:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        # a program: users can nest folders deeper than Python recurses, and it may take longer than a pass
        done = subprocess.Popen(
            ("rm", "-rf", "--one-file-system", "--", name),
            cwd=f"/proc/self/fd/{root}",
            pass_fds=(root, held.fileno()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,  # a file: whoever reads a pipe may be gone when it fills
            start_new_session=True,
            env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
        )
        try:
            done.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            _deleting.append(done)
            return  # the next pass looks again
        said.seek(0)
        errors = said.read(SAID_BYTES).decode("utf-8", "replace").splitlines()
    if done.returncode:
        raise KeyFault("VolumeFailedDelete", (errors or ["rm failed without a message"])[0])
