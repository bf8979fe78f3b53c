"""Section ``volumes``: the directories pods mount.

emptyDir, configMap and downwardAPI stand under ``<state_dir>/pods/<uid>/volumes``, secret and projected volumes on the
tmpfs under ``<run_dir>/secrets/.volumes``; a hostPath is checked, made where its type says so, and never removed. What
has data of its own (``persistent.py``) is mounted under ``<state_dir>/pods/<uid>/mounts``, where nothing is deleted but
empty mount points.
Files (volume_entries.py says which) are written as kubelet's atomic writer does (volume_files.py), so a container sees
all of an update or nothing of it. A volume goes only when no container of its pod runs any more; until then it is due.
Removal unmounts first and follows no link.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..core import labels
from ..core.digests import Entries
from ..core.faults import KeyFault
from ..core.files import TEMPORARY
from ..core.paths import CSI_KIND, MOUNTS, TMPFS_KINDS, pod_dir, secrets_dir, split_key, volume_path
from ..core.section import TIDY, Context, Due, Facets, Plan, Scope, Step
from . import csi, csi_calls, hollow, hostpath, media, mounts, nfs, persistent, tmpfs
from .secrets import holds_secrets
from .volume_entries import FILE_KINDS, DeclaredFiles, check_entry, wanted_files
from .volume_files import DATA, File, Tree, links_for, read_tree, write_tree

SHOWN_BYTES = 400  # a longer file is told by its size and digest
REMOVE_AGAIN_S = 1.0
GROUP_MODE = 0o2777


class ObservedVolumes(NamedTuple):
    """Facets by key (None: absent), where each found volume stands, the pods that still run, wanted files."""

    facets: dict[str, Facets]
    places: dict[str, str]
    running_pods: frozenset[str]
    files: dict[str, DeclaredFiles]
    trees: dict[str, Tree]
    tmpfs_ready: bool
    tmpfs_idle: bool
    tmpfs_volumes: frozenset[str]  # the places of all volumes there, whatever the scope
    answers: Mapping[str, str] = {}  # what the servers of the declared NFS volumes answered
    groups: Mapping[str, frozenset[str]] = {}  # see persistent.groups
    hollow: Mapping[str, list[str]] = {}  # see hollow.of_pods


class Volumes:
    """The section's observe, plan and apply."""

    name = "volumes"

    def check_entry(self, key: str, entry: Mapping[str, Any]) -> None:
        """Raise KeyFault for an entry that cannot be used."""
        check_entry(key, entry)

    def observe(self, context: Context, entries: Entries, scope: Scope) -> ObservedVolumes:
        """Return the volumes on disk and tmpfs, and what the declared ones must hold."""
        among = mounts.mounts()
        everywhere = _places(context)
        places = {key: path for key, path in everywhere.items() if scope.covers(key)}
        ours = {key: entry for key, entry in entries.items() if scope.covers(key)}
        facets = {key: _look(context.state_dir, path, among) for key, path in places.items()}
        for key, entry in ours.items():
            if entry["kind"] == "hostPath":
                facets[key] = {"hostPath": entry["path"], "is": hostpath.kind_of(entry["path"])}
            elif entry["kind"] == "local":
                facets[key] = persistent.look_local(entry["path"])
        removed = set(places) - set(entries)
        uids = None if scope.keys is None else {key.partition("/")[0] for key in scope.keys}
        return ObservedVolumes(
            facets,
            places,
            _running_pods(context) if removed else frozenset(),
            {key: wanted_files(context.run_dir, entry, check=context.check) for key, entry in ours.items()},
            {
                key: read_tree(places[key])
                for key, entry in ours.items()
                if key in places and entry["kind"] in FILE_KINDS
            },
            tmpfs.is_ready(context.run_dir),
            tmpfs.can_go(context.run_dir) and not holds_secrets(context.run_dir),
            _on_tmpfs(context, everywhere),
            _answers(context, ours, places, among),
            persistent.groups(entries),
            hollow.of_pods(context.state_dir, context.run_dir, uids),
        )

    def plan(self, context: Context, entries: Entries, observed: ObservedVolumes, scope: Scope) -> Plan:
        """Return the steps; what nobody declared goes first."""
        plan = Plan()
        used = {key.partition("/")[0] for key in entries}
        for key in sorted(set(observed.places) - set(entries)):
            _plan_removal(plan, key, observed, tidy=key.partition("/")[0] not in used, check=context.check)
        for key, entry in entries.items():
            if scope.covers(key):
                _plan_volume(plan, context, key, entry, observed)
        secret = any(entry["kind"] in TMPFS_KINDS for entry in entries.values())
        if not observed.tmpfs_ready and secret:
            plan.opening.append(tmpfs.step_to_mount(context.run_dir))
        for uid in sorted(observed.hollow.keys() - used):
            plan.closing.append(Step(TIDY, uid, ", ".join(observed.hollow[uid]), observed.hollow[uid]))
        going = {step.data[0] for step in plan.all_steps() if step.action == "remove"}
        if observed.tmpfs_idle and observed.tmpfs_volumes <= going and not secret:
            plan.closing.append(tmpfs.step_to_unmount(context.run_dir))
        return plan

    def apply(self, context: Context, step: Step) -> None:
        """Carry out one step."""
        getattr(self, "_" + step.action)(context, step)

    def _mount(self, context: Context, step: Step) -> None:
        tmpfs.make_ready(context)

    def _unmount(self, context: Context, step: Step) -> None:
        tmpfs.take_away(context)

    def _check(self, context: Context, step: Step) -> None:
        hostpath.ensure(context.checkpoint, step.data["path"], step.data.get("type", ""))

    def _attach(self, context: Context, step: Step) -> None:
        persistent.attach(context.checkpoint, *step.data)

    def _publish(self, context: Context, step: Step) -> None:
        csi.publish(context.checkpoint, csi.Dirs(context.state_dir, context.run_dir), step.key, step.data)

    def _expand(self, context: Context, step: Step) -> None:
        csi.expand(context.checkpoint, csi.Dirs(context.state_dir, context.run_dir), step.key, step.data)

    def _unpublish(self, context: Context, step: Step) -> None:
        csi.unpublish(context.checkpoint, context.state_dir, step.key)

    def _own(self, context: Context, step: Step) -> None:
        persistent.own(context.checkpoint, *step.data)

    def _remove(self, context: Context, step: Step) -> None:
        path, tidy = step.data
        remove_tree(context, path)
        folders = [os.path.dirname(path)]  # the pod's directory on the tmpfs; on disk "volumes", then the pod's
        if not path.startswith(secrets_dir(context.run_dir)):
            folders.append(os.path.dirname(folders[0]))
        for folder in folders if tidy else []:
            context.checkpoint("remove empty folder")
            with contextlib.suppress(OSError):  # it still holds something
                os.rmdir(folder)

    def _tidy(self, context: Context, step: Step) -> None:
        hollow.remove(context.checkpoint, step.data)

    def _make(self, context: Context, step: Step) -> None:
        path, entry = step.data
        if os.path.lexists(path) and not os.path.isdir(path):
            remove_tree(context, path)
        if not os.path.isdir(path):
            context.checkpoint("make volume")
            make_open_directory(path)
        if entry.get("medium"):
            present = mounts.at(os.path.realpath(path), mounts.mounts())
            context.checkpoint("mount volume")
            try:
                media.mount(path, entry, present)
            except (KeyFault, OSError):
                if not present:
                    os.rmdir(path)  # it does not stand without its mount
                raise
        if entry.get("fs_group") is not None:
            context.checkpoint("give volume to its group")
            os.chown(path, -1, entry["fs_group"])
            os.chmod(path, GROUP_MODE)

    def _write(self, context: Context, step: Step) -> None:
        path, files, secret = step.data
        if secret:
            tmpfs.require(context.run_dir)
        write_tree(context.checkpoint, path, files)

    def status(
        self, context: Context, entries: Entries, observed: ObservedVolumes, touched: frozenset[str]
    ) -> dict[str, Any]:
        """Return ``{"state": "present"}``, of a driver's with its size, of each that is as declared, else None."""
        fresh = self.observe(context, entries, Scope(touched))._replace(groups=observed.groups) if touched else observed
        status: dict[str, Any] = {}
        for key, entry in entries.items():
            seen = fresh if key in touched else observed
            again = Plan()
            _plan_volume(again, context, key, entry, seen)
            status[key] = None if again.steps or again.errors else {"state": "present", **csi.size_of(entry)}
        return status

    def extras(self, context: Context) -> dict[str, Any]:
        """Return the drivers' volumes that may be mounted, as a Node lists them, and what drivers were asked."""
        calls, csi_calls.calls[:] = [*csi_calls.calls], []
        return {"in_use": csi.in_use(context.state_dir), "calls": calls}


def stands(state_dir: str, kind: str, path: str) -> bool:
    """Return whether a volume of ``kind`` at ``path`` was made whole; files are once ``..data`` leads to them."""
    if kind == nfs.KIND:
        return nfs.is_mounted(path)
    if kind == CSI_KIND:
        return csi.is_ready(state_dir, path)
    return os.path.exists(os.path.join(path, DATA)) if kind in FILE_KINDS else os.path.isdir(path)


def _plan_removal(plan: Plan, key: str, observed: ObservedVolumes, *, tidy: bool, check: bool) -> None:
    """Plan an undeclared volume away; what a killed run was building goes first, before its name is used again.

    A check does not wait for the containers of a pod of which nothing is declared: they go in the same change.
    """
    uid, _, name = key.partition("/")
    leftover = name.startswith(TEMPORARY)
    if uid in observed.running_pods and not leftover and not (check and tidy):
        plan.due.append(Due(key, REMOVE_AGAIN_S, "PodStillRunning"))
        return
    path = observed.places[key]
    action = "unpublish" if csi.is_target(path) else "remove"
    step = Step(action, key, path, (path, tidy))
    (plan.opening if leftover else plan.steps).append(step)
    plan.differs(key, observed.facets[key], None)


def _on_tmpfs(context: Context, places: Mapping[str, str]) -> frozenset[str]:
    base = secrets_dir(context.run_dir) + "/"
    return frozenset(path for path in places.values() if path.startswith(base))


def _running_pods(context: Context) -> frozenset[str]:
    listed = context.docker.containers({labels.NODE: context.node})
    busy = [each["Labels"] for each in listed if each["State"] in {"running", "paused", "restarting"}]
    return frozenset(marks.get(labels.POD_UID, "") for marks in busy if marks.get(labels.TYPE) != labels.SANDBOX)


def _list(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _places(context: Context) -> dict[str, str]:
    """Return every volume on the node by key, leftovers of killed runs among them."""
    found: dict[str, str] = dict(csi.places(context.state_dir))
    on_disk = os.path.join(context.state_dir, "pods")
    for uid in _list(on_disk):
        for kind in ("volumes", MOUNTS):
            folder = os.path.join(pod_dir(context.state_dir, uid), kind)
            found.update({f"{uid}/{name}": os.path.join(folder, name) for name in _list(folder)})
    on_tmpfs = os.path.join(secrets_dir(context.run_dir), ".volumes")
    for uid in _list(on_tmpfs):
        folder = os.path.join(on_tmpfs, uid)
        found.update({f"{uid}/{name}": os.path.join(folder, name) for name in _list(folder)})
    return found


def _answers(
    context: Context, entries: Entries, places: Mapping[str, str], among: list[mounts.Mount]
) -> dict[str, str]:
    """Ask the server of each NFS volume that is mounted, side by side."""
    asked = [
        key
        for key, entry in entries.items()
        if entry["kind"] == nfs.KIND and key in places and nfs.is_mounted(places[key], among)
    ]
    return dict(zip(asked, context.map(lambda key: nfs.answer(places[key]), asked)))


def _show_file(file: File, *, secret: bool) -> str:
    data, mode = file.data, file.mode
    owner = f" {file.uid}:{file.gid}" if file.uid or file.gid else ""
    if secret:
        return f"{mode:04o}{owner} (secret)"
    try:
        text = data.decode() if len(data) <= SHOWN_BYTES else None
    except UnicodeDecodeError:
        text = None
    return f"{mode:04o}{owner} " + (
        repr(text) if text is not None else f"{len(data)} bytes {hashlib.sha256(data).hexdigest()}"
    )


def _look(state_dir: str, path: str, among: list[mounts.Mount]) -> Facets:
    if csi.is_target(path):
        return csi.facets(state_dir, path, among)
    if persistent.is_mount_point(path):
        return nfs.facets(path, among)
    if not os.path.isdir(path) or os.path.islink(path):
        return {"is": "no directory"}
    found = media.seen(mounts.at(os.path.realpath(path), among))
    status = os.stat(path)
    return {**found, "group": str(status.st_gid)} if status.st_mode & stat.S_ISGID else found


def _plan_volume(plan: Plan, context: Context, key: str, entry: Mapping[str, Any], observed: ObservedVolumes) -> None:
    kind = entry["kind"]
    if kind == "hostPath":
        _plan_hostpath(plan, key, entry, observed)
        return
    if kind == "local":
        persistent.plan_local(plan, key, entry, observed.facets[key] or {}, observed.groups)
        return
    uid, name = split_key(key)
    path = volume_path(context.state_dir, context.run_dir, uid, name, kind)
    other = observed.places.get(key)
    if other is not None and other != path:  # it was of another kind
        plan.steps.append(Step("unpublish" if csi.is_target(other) else "remove", key, other, (other, False)))
    if kind == CSI_KIND:
        csi.plan(plan, key, entry, observed.facets.get(key) if other == path else None)
    elif kind == nfs.KIND:
        before = observed.facets.get(key) if other == path else None
        persistent.plan_nfs(plan, key, path, entry, (before, observed.answers.get(key, "")))
    elif kind == "emptyDir":
        before = observed.facets.get(key) if other == path else None
        wanted = _wanted_directory(entry, before or {})
        if before != wanted:
            plan.steps.append(Step("make", key, path, (path, entry)))
            plan.differs(key, before, wanted)
    else:
        _plan_files(plan, key, path, observed, secret=kind in TMPFS_KINDS)


def _wanted_directory(entry: Mapping[str, Any], before: Facets) -> Facets:
    """Return an emptyDir's facets; a size or group that nobody asked for is whatever it is."""
    group = entry.get("fs_group")
    shown = before.get("group") if group is None else str(group)
    return {**media.wanted(entry, before), **({} if shown is None else {"group": shown})}


def _plan_hostpath(plan: Plan, key: str, entry: Mapping[str, Any], observed: ObservedVolumes) -> None:
    found, declared = observed.facets[key]["is"], entry.get("type", "")
    makes = hostpath.would_make(entry["path"], found, declared)
    fault = hostpath.fault(entry["path"], found, declared)
    if makes:
        plan.steps.append(Step("check", key, f"{declared or 'Directory'} {entry['path']}", entry))
        plan.differs(key, observed.facets[key], {"hostPath": entry["path"], "is": makes})
    elif fault:
        plan.errors[key] = fault


def _plan_files(plan: Plan, key: str, path: str, observed: ObservedVolumes, *, secret: bool) -> None:
    files = observed.files[key]
    if isinstance(files, KeyFault):
        plan.errors[key] = files
        return
    files = files or {}
    tree = observed.trees.get(key) if observed.places.get(key) == path else None
    if tree is not None and tree.files == files and tree.links == links_for(files) and not tree.leftovers:
        return
    present = tree.files if tree else {}
    before = {f"file {name}": _show_file(row, secret=secret) for name, row in sorted(present.items())}
    after = {f"file {name}": _show_file(row, secret=secret) for name, row in sorted(files.items())}
    for name in set(before) & set(after):
        if secret and present.get(name[5:]) != files[name[5:]]:
            after[name] += " changed"
    plan.steps.append(Step("write", key, f"{len(files)} files in {path}", (path, files, secret)))
    plan.differs(key, before if tree else None, after)


def make_open_directory(path: str) -> None:
    """Make a directory anyone in the pod may write (0777, as kubelet does), whole or not at all."""
    folder, name = os.path.split(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    building = os.path.join(folder, TEMPORARY + name)
    shutil.rmtree(building, ignore_errors=True)
    os.mkdir(building)
    os.chmod(building, 0o777)  # noqa: S103  (kubelet's mode of an emptyDir)
    os.rename(building, path)


def remove_tree(context: Context, path: str) -> None:
    """Unmount everything at and below ``path``, then delete it without following a link; a mount point, if empty."""
    if persistent.is_mount_point(path):
        persistent.detach(context.checkpoint, path)
        return
    for mount in mounts.under(os.path.realpath(os.path.dirname(path)) + "/" + os.path.basename(path), mounts.mounts()):
        context.checkpoint("unmount volume")
        mounts.unmount(mount.point)
    context.checkpoint("remove volume")
    if os.path.islink(path) or not os.path.isdir(path):
        os.unlink(path)
    else:
        shutil.rmtree(path)
