"""Section ``containers``: the pods' containers in Docker. The decision is in container_plan.py.

A container joins the network and IPC namespaces of its pod's pause container. Values of secrets are read from tmpfs at
the moment of creation. A stop leaves a marker ``<run_dir>/stopping/<container id>`` whose mtime is the moment of the
signal, so that the grace counts by this node's clock whoever asks, and however often.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..core import labels, memory_events
from ..core.digests import Entries
from ..core.docker import DockerError
from ..core.faults import KeyFault
from ..core.files import read_bytes, remove_file, write_atomically
from ..core.messages import add_message, remove_message
from ..core.observations import observation_from_inspect
from ..core.paths import CSI_KIND, secret_dir, stopping_path
from ..core.sealing import known_key, node_key
from ..core.section import Context, Due, Plan, Scope, Step
from ..entries.containers import ContainerEntry, MountEntry
from ..network.sidecars import check_rules
from ..volumes import hostpath, nfs
from ..volumes.persistent import is_mount_point
from ..volumes.volumes import stands
from . import devices, pod_cgroup, sub_paths
from .cgroups import Limits, limits_of
from .container_plan import (
    ContainerInputs,
    Inspect,
    Sandbox,
    attempt_of,
    plan_container,
    plan_removed,
    wants_devices,
)
from .container_spec import (
    DEFAULT_CPU_SHARES,
    PROPAGATION,
    Mount,
    body_of,
    limits_update,
    normalized,
    plain,
    volume_root,
)
from .sandboxes import create_fault
from .security import adapted, completed

READ_ONLY_KINDS = frozenset({"configMap", "secret", "projected", "downwardAPI"})  # as in Kubernetes since 1.9.6


class ObservedContainers(NamedTuple):
    """Normalized entries, what the system holds (inspections by key, attempts ascending), and what entries point to."""

    declared: dict[str, ContainerEntry]
    containers: dict[str, list[Inspect]]
    sandboxes: dict[str, list[Sandbox]]
    images: dict[str, Mapping[str, Any]]
    mounts: dict[str, list[Mount] | KeyFault]
    signalled_at: dict[str, float]
    now: float
    node_key: bytes
    kernel: dict[str, Limits]
    mountless: frozenset[str]
    unmade: dict[str, str]
    held: list[devices.Held]
    present: dict[str, bool]


class Containers:
    """The section's observe, plan and apply."""

    name = "containers"

    def check_entry(self, key: str, entry: Mapping[str, Any]) -> None:
        """Raise KeyFault for an entry that cannot be used."""
        normalized(key, entry)

    def observe(self, context: Context, entries: Entries, scope: Scope) -> ObservedContainers:
        """Return the node's pod containers in scope with their images, sandboxes, mount sources and markers."""
        ours = {key: adapted(normalized(key, entry)) for key, entry in entries.items() if scope.covers(key)}
        listed, sandboxes = _list(context, scope)
        found = context.map(context.docker.inspect, listed)
        containers: dict[str, list[Inspect]] = {}
        for each in sorted((one for one in found if one), key=attempt_of):
            containers.setdefault(_key(each["Config"]["Labels"]), []).append(each)
        images = _images(context, [each for group in containers.values() for each in group])
        mounts = {key: _resolve_mounts(context, entry) for key, entry in ours.items()}
        secret = any(entry["secret_env"] for entry in ours.values())
        key = known_key(context.state_dir) if secret else b""
        marks = _markers(context.run_dir, containers)
        kernel = _kernel_limits(ours, containers)
        gone = _mountless(context, containers) if context.unattended else frozenset()
        unmade = {key: _unmade(context, ours[key]) for key, found in mounts.items() if not isinstance(found, KeyFault)}
        return ObservedContainers(
            ours, containers, sandboxes, images, mounts, marks, context.clock.time(), key, kernel, gone, unmade,
            *_devices(context, ours),
        )  # fmt: skip

    def plan(self, context: Context, entries: Entries, observed: ObservedContainers, scope: Scope) -> Plan:
        """Return the steps: undeclared containers go first, then each declared one."""
        plan = Plan()
        for key in sorted(set(observed.containers) - set(entries)):
            if scope.covers(key):
                plan_removed(plan, key, observed.containers[key])
        leaving = [one for one in observed.held if one.key not in entries and scope.covers(one.key)]
        pool = devices.Pool(observed.held, observed.present)
        for key, entry in observed.declared.items():
            seen = _seen(context, key, entry, observed)
            try:
                given = pool.give(key, entry) if wants_devices(entry, seen) else entry
            except KeyFault as fault:
                if devices.are_freed_by(leaving, entry):
                    plan.due.append(Due(key, devices.AGAIN_S, "DeviceInUse"))
                else:
                    plan.errors[key] = fault
            else:
                plan_container(plan, key, given, seen)
        return plan

    def apply(self, context: Context, step: Step) -> None:
        """Carry out one step."""
        context.checkpoint(f"{step.action} container")
        getattr(self, "_" + step.action)(context, step)

    def _create(self, context: Context, step: Step) -> None:
        entry, sandbox, mounts = step.data
        check_rules(context, entry["pod"]["uid"])
        secrets = {row[0]: _secret_value(context.run_dir, row) for row in entry["secret_env"]}
        key = node_key(context.state_dir) if secrets else b""
        _check_host_paths(entry)
        _check_servers(context, entry)
        sub_paths.release(context.run_dir, step.detail)
        try:
            sub_paths.bind(mounts)
            body = body_of(context.node, entry, sandbox, mounts, secrets, key)
            add_message(context.state_dir, step.detail, entry, body)
            body = completed(context, entry, sandbox, body)
            context.docker.create(step.detail, devices.opened(body, entry) if entry["devices"] else body)
        except DockerError as error:
            forget(context.state_dir, context.run_dir, step.detail)
            raise create_fault(error, entry["image"], "CreateContainerError") from error

    def _start(self, context: Context, step: Step) -> None:
        check_rules(context, step.key.partition("/")[0])
        pod_cgroup.remove_own(context.node, step.key.partition("/")[0], step.detail)  # a new start counts from 0
        try:
            context.docker.start(step.detail)
        except DockerError as error:
            raise KeyFault("RunContainerError", str(error)) from error

    def _remove(self, context: Context, step: Step) -> None:
        name = step.detail.partition(" ")[0]
        remove_message(context.state_dir, name)  # first: after a kill in between only the container brings us back here
        context.docker.remove(step.data)
        forget(context.state_dir, context.run_dir, name)
        pod_cgroup.remove_own(context.node, step.key.partition("/")[0], name)
        pod_cgroup.remove(context.node, step.key.partition("/")[0])  # where this was the last of its pod
        remove_file(stopping_path(context.run_dir, step.data))

    def _kill(self, context: Context, step: Step) -> None:
        context.docker.kill(step.data, "SIGKILL")

    def _unpause(self, context: Context, step: Step) -> None:
        context.docker.unpause(step.data)

    def _update(self, context: Context, step: Step) -> None:
        context.docker.update(step.data[0], limits_update(step.data[1]))

    def _signal(self, context: Context, step: Step) -> None:
        container, signal, now = step.data
        context.docker.kill(container, signal)
        context.checkpoint("mark stopping")
        marker = stopping_path(context.run_dir, container)
        write_atomically(marker, b"")
        os.utime(marker, (now, now))

    def status(
        self, context: Context, entries: Entries, observed: ObservedContainers, touched: frozenset[str]
    ) -> dict[str, Any]:
        """Return each declared container's observation: of its attempt, else of the newest there is."""
        names = {key: _newest(observed.containers.get(key, []), entry) for key, entry in entries.items()}
        stale = sorted(touched & frozenset(entries))
        fresh = context.map(lambda key: _look_again(context, entries[key], names[key]), stale)
        names.update(zip(stale, fresh))
        return {key: _status_of(found) if found else None for key, found in names.items()}


def forget(state_dir: str, run_dir: str, name: str) -> None:
    """Remove what a node keeps for the container with that Docker name, which is gone."""
    remove_message(state_dir, name)
    sub_paths.release(run_dir, name)


def _status_of(inspect: Inspect) -> dict[str, Any]:
    """Return a container's observation, with what the kernel knows of its end."""
    seen = observation_from_inspect(inspect)
    if memory_events.is_open(seen):
        seen["oom_killed"] = memory_events.tells_kill(read_bytes(seen["oom_source"]) or b"")
    return seen


def _newest(found: list[Inspect], entry: Mapping[str, Any]) -> Inspect | None:
    exact = [each for each in found if attempt_of(each) == entry["attempt"]]
    return next(reversed(exact or found), None)


def _look_again(context: Context, entry: Mapping[str, Any], before: Inspect | None) -> Inspect | None:
    name = labels.container_name(entry["pod"], entry["name"], entry["attempt"])
    found = context.docker.inspect(name)
    return found or (context.docker.inspect(before["Id"]) if before else None)


def _key(marks: Mapping[str, str]) -> str:
    return f"{marks.get(labels.POD_UID, '')}/{marks.get(labels.CONTAINER, '')}"


def _list(context: Context, scope: Scope) -> tuple[list[str], dict[str, list[Sandbox]]]:
    """Return the ids of the containers in scope, and the sandboxes of their pods, from one Docker listing."""
    wanted = {labels.NODE: context.node}
    uids = {key.partition("/")[0] for key in scope.keys or ()}
    if len(uids) == 1:
        wanted[labels.POD_UID] = next(iter(uids))
    ids: list[str] = []
    sandboxes: dict[str, list[Sandbox]] = {}
    for each in context.docker.containers(wanted):
        marks = each["Labels"]
        if marks.get(labels.TYPE) == labels.SANDBOX:
            found = Sandbox(each["Id"], labels.attempt_of(marks), each["State"] == "running")
            sandboxes.setdefault(marks.get(labels.POD_UID, ""), []).append(found)
        elif scope.covers(_key(marks)):
            ids.append(each["Id"])
    return ids, _with_start(context, sandboxes)


def _with_start(context: Context, sandboxes: dict[str, list[Sandbox]]) -> dict[str, list[Sandbox]]:
    """Add the moment of start where it matters: unattended, a sandbox may have been started again."""
    if not context.unattended:
        return sandboxes
    for found in sandboxes.values():
        for at, each in enumerate(found):
            inspect = context.docker.inspect(each.id)
            if inspect:
                found[at] = each._replace(started_at=inspect["State"]["StartedAt"])
    return sandboxes


def _devices(context: Context, entries: Mapping[str, ContainerEntry]) -> tuple[list[devices.Held], dict[str, bool]]:
    """Return what containers of the node have, out of scope too, and which of the wanted devices are there."""
    wanted = {
        path for entry in entries.values() for one in entry["devices"] for path in (*one["paths"], *one["beside"])
    }
    found = context.docker.containers({labels.NODE: context.node}) if wanted else []
    return devices.held(found), {path: devices.is_device(path) for path in wanted}


def _images(context: Context, containers: list[Inspect]) -> dict[str, Mapping[str, Any]]:
    ids = sorted({each["Image"] for each in containers if each["State"]["Status"] in {"created", "running", "paused"}})
    found = zip(ids, context.map(context.docker.image, ids))
    return {image_id: image.get("Config") or {} for image_id, image in found if image}


def _mountless(context: Context, containers: Mapping[str, list[Inspect]]) -> frozenset[str]:
    """Return the containers that cannot start again, because something they mount is no longer there."""
    everyone = [one for group in containers.values() for one in group]
    found = set(sub_paths.lost(context.run_dir, everyone))
    ours = os.path.join(context.state_dir, "pods") + os.sep  # a hostPath may lie in a folder of the same name
    for each in everyone:
        sources = [mount["Source"] for mount in each.get("Mounts") or [] if mount["Type"] == "bind"]
        mounted = {one for one in sources if one.startswith(ours) and is_mount_point(one)}
        if not all(nfs.is_mounted(one) if one in mounted else os.path.exists(one) for one in sources):
            found.add(each["Id"])
    return frozenset(found)


def _kernel_limits(entries: Entries, containers: Mapping[str, list[Inspect]]) -> dict[str, Limits]:
    found = {}
    for key, entry in entries.items():
        for each in containers.get(key, []):
            if each["State"]["Status"] in {"running", "paused"}:
                found[each["Id"]] = limits_of(each["State"]["Pid"], entry["cpu_shares"] or DEFAULT_CPU_SHARES)
    return found


def _markers(run_dir: str, containers: Mapping[str, list[Inspect]]) -> dict[str, float]:
    found = {}
    for group in containers.values():
        for each in group:
            try:
                found[each["Id"]] = os.stat(stopping_path(run_dir, each["Id"])).st_mtime
            except FileNotFoundError:
                continue
    return found


def _seen(context: Context, key: str, entry: ContainerEntry, observed: ObservedContainers) -> ContainerInputs:
    attempts = observed.sandboxes.get(entry["pod"]["uid"], [])
    sandbox = next((each for each in attempts if each.attempt == entry["sandbox_attempt"]), None)
    if sandbox is None and context.check:
        # the section before this one would have made it by now
        sandbox = Sandbox("(new)", entry["sandbox_attempt"], running=True)
    return ContainerInputs(
        observed.containers.get(key, []),
        sandbox,
        observed.mounts[key],
        observed.images,
        observed.signalled_at,
        observed.now,
        observed.node_key,
        context.unattended,
        observed.mountless,
        observed.kernel,
        observed.unmade.get(key, ""),
    )


def _resolve_mounts(context: Context, entry: ContainerEntry) -> list[Mount] | KeyFault:
    try:
        name = labels.container_name(entry["pod"], entry["name"], entry["attempt"])
        place = sub_paths.folder(context.run_dir, name)
        found = [
            _resolve(context, entry["pod"]["uid"], mount, os.path.join(place, str(number)))
            for number, mount in enumerate(entry["mounts"])
        ]
    except KeyFault as fault:
        return fault
    return sorted(found, key=lambda mount: mount.target)


def _resolve(context: Context, uid: str, mount: MountEntry, bound: str) -> Mount:
    root, target = volume_root(context.state_dir, context.run_dir, uid, mount), plain(mount["target"])
    read_only = mount["read_only"] or mount["kind"] in READ_ONLY_KINDS
    if not mount["sub_path"]:
        return Mount(root, target, read_only, root, propagation=PROPAGATION[mount["propagation"]])
    if mount["kind"] in {
        nfs.KIND,
        CSI_KIND,
    }:  # its server may be away: nobody looks there, and links on the way are refused later
        real_root = nfs.real(root)
        source = os.path.normpath(os.path.join(real_root, mount["sub_path"]))
    else:
        real_root = os.path.realpath(root)
        source = os.path.realpath(os.path.join(real_root, mount["sub_path"]))
    if source != real_root and not source.startswith(real_root.rstrip("/") + "/"):
        raise KeyFault(
            "CreateContainerConfigError", f"subPath {mount['sub_path']!r} points outside of volume {mount['volume']!r}"
        )
    held = bound if source != real_root else ""
    return Mount(source, target, read_only, real_root, held, PROPAGATION[mount["propagation"]])


def _unmade(context: Context, entry: ContainerEntry) -> str:
    """Return a volume that the container mounts and that does not stand yet, "" for none.

    The section before this one makes volumes; what it put off, or could not make, must not be mounted half made. In a
    check it would have made them by now.
    """
    uid = entry["pod"]["uid"]
    for mount in () if context.check else entry["mounts"]:
        if mount["kind"] == "hostPath":
            missing = bool(
                hostpath.would_make(mount["host_path"], hostpath.kind_of(mount["host_path"]), mount["host_type"])
            )
        else:
            root = volume_root(context.state_dir, context.run_dir, uid, mount)
            missing = not stands(context.state_dir, mount["kind"], root)
        if missing:
            return mount["volume"]
    return ""


def _check_host_paths(entry: ContainerEntry) -> None:
    """Refuse a hostPath that is not what its type asks for: what stands there must not be mounted all the same."""
    for mount in entry["mounts"]:
        if mount["kind"] == "hostPath" and mount["host_type"]:
            found = hostpath.fault(mount["host_path"], hostpath.kind_of(mount["host_path"]), mount["host_type"])
            if found:
                volume = mount["volume"]
                raise KeyFault(found.reason, f'MountVolume.SetUp failed for volume "{volume}" : {found}')


def _check_servers(context: Context, entry: ContainerEntry) -> None:
    """Refuse an NFS volume whose server is away: Docker would wait for it, and the node's other pods for Docker."""
    for mount in entry["mounts"]:
        root = volume_root(context.state_dir, context.run_dir, entry["pod"]["uid"], mount)
        if mount["kind"] == nfs.KIND and nfs.answer(root):
            raise KeyFault("VolumeMissing", f"the NFS server of volume {mount['volume']!r} does not answer")


def _secret_value(run_dir: str, row: list[str]) -> str:
    value = read_bytes(os.path.join(secret_dir(run_dir, row[1]), row[2]))
    if value is None:
        raise KeyFault(
            "CreateContainerConfigError", f"couldn't find key {row[2]} in Secret {row[1]} for variable {row[0]}"
        )
    return value.decode("utf-8", "surrogateescape")
