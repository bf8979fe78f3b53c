"""Section ``containers``, the decision: from inspections and entries to steps. Pure.

attempt N missing → create, start          created → start             running → compare, update or replace
exited → left alone (unattended: start)    stop → signal once, SIGKILL after the grace
an earlier attempt that still runs is killed before N starts; one dead earlier attempt stays for its log
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..core import labels
from ..core.faults import KeyFault
from ..core.section import Due, Facets, Plan, Step
from ..entries.containers import ContainerEntry
from .cgroups import Limits
from .container_spec import (
    LIMIT_FACETS,
    Mount,
    declared_facets,
    declared_limits,
    limit_facets,
    observed_facets,
    secret_label,
)
from .service_links import forget_links, with_links_of

Inspect = Mapping[str, Any]


class Sandbox(NamedTuple):
    """A pod's pause container; ``started_at`` only where a restart of it matters (unattended)."""

    id: str
    attempt: int
    running: bool
    started_at: str = ""


class ContainerInputs(NamedTuple):
    """Everything the plan of one container looks at.

    ``mounts`` is a fault when a source cannot be used; ``unmade`` is a volume that must stand before it is created.
    """

    containers: list[Inspect]
    sandbox: Sandbox | None
    mounts: Any
    images: Mapping[str, Mapping[str, Any]]
    signalled_at: Mapping[str, float]
    now: float
    node_key: bytes
    unattended: bool
    mountless: frozenset[str] = frozenset()
    kernel: Mapping[str, Limits] = {}
    unmade: str = ""


def attempt_of(inspect: Inspect) -> int:
    """Return the attempt of a container by its label."""
    return labels.attempt_of(inspect["Config"]["Labels"])


def name_of(inspect: Inspect) -> str:
    """Return a container's Docker name."""
    return str(inspect["Name"]).lstrip("/")


def state_of(inspect: Inspect) -> str:
    """Return Docker's state word."""
    return str(inspect["State"]["Status"])


def plan_removed(plan: Plan, key: str, containers: list[Inspect]) -> None:
    """Plan away every attempt of an undeclared container."""
    for each in containers:
        plan.steps.append(Step("remove", key, name_of(each), each["Id"]))
        plan.differs(key, _brief(each), None)


def _brief(inspect: Inspect) -> Facets:
    return {"state": state_of(inspect), "attempt": str(attempt_of(inspect)), "image": inspect["Config"]["Image"]}


def wants_devices(entry: ContainerEntry, seen: ContainerInputs) -> bool:
    """Return whether the plan of a container looks at which devices it gets: not of one that has ended, or is to."""
    if not entry["devices"] or entry["stop"] is not None:
        return False
    current = next((each for each in seen.containers if attempt_of(each) == entry["attempt"]), None)
    if current is not None and state_of(current) in {"exited", "dead"}:
        return seen.unattended  # it starts again, or is made again
    return entry["state"] == "running"


def plan_container(plan: Plan, key: str, entry: ContainerEntry, seen: ContainerInputs) -> None:
    """Plan one declared container; ``entry`` is normalized."""
    steps: list[Step] = []
    try:
        _plan_others(steps, key, entry, seen)
        current = next((each for each in seen.containers if attempt_of(each) == entry["attempt"]), None)
        if current is None:
            _plan_missing(plan, steps, key, entry, seen)
        else:
            _plan_present(plan, steps, key, entry, current, seen)
    except KeyFault as fault:
        plan.errors[key] = fault
        steps = [step for step in steps if step.action == "remove"]
    plan.steps.extend(steps)
    if steps and key not in plan.after:
        last = seen.containers[-1] if seen.containers else None
        plan.differs(key, _brief(last) if last else None, {**(_brief(last) if last else {}), "steps": steps[-1].action})


def _plan_others(steps: list[Step], key: str, entry: ContainerEntry, seen: ContainerInputs) -> None:
    earlier = [each for each in seen.containers if attempt_of(each) < entry["attempt"]]
    later = [each for each in seen.containers if attempt_of(each) > entry["attempt"]]
    steps.extend(Step("remove", key, name_of(each), each["Id"]) for each in [*earlier[:-1], *later])
    if earlier and entry["state"] == "running" and state_of(earlier[-1]) in {"running", "paused", "restarting"}:
        steps.append(Step("kill", key, name_of(earlier[-1]), earlier[-1]["Id"]))


def _usable_sandbox(key: str, entry: ContainerEntry, seen: ContainerInputs) -> Sandbox:
    sandbox = seen.sandbox
    if sandbox is None or sandbox.attempt != entry["sandbox_attempt"] or not sandbox.running:
        raise KeyFault(
            "SandboxMissing", f"{key} needs the running sandbox attempt {entry['sandbox_attempt']} of its pod"
        )
    return sandbox


def _mounts(seen: ContainerInputs) -> list[Mount]:
    if isinstance(seen.mounts, KeyFault):
        raise seen.mounts
    return list(seen.mounts)


def _mounts_to_create(key: str, seen: ContainerInputs) -> list[Mount]:
    """Return the mounts of a container about to be created; what it mounts must stand first."""
    if seen.unmade:
        raise KeyFault("VolumeMissing", f"{key} needs volume {seen.unmade!r} of its pod, which is not made yet")
    return _mounts(seen)


def _plan_missing(plan: Plan, steps: list[Step], key: str, entry: ContainerEntry, seen: ContainerInputs) -> None:
    if entry["state"] != "running" or entry["stop"] is not None:
        return
    sandbox, mounts = _usable_sandbox(key, entry, seen), _mounts_to_create(key, seen)
    name = labels.container_name(entry["pod"], entry["name"], entry["attempt"])
    steps.append(Step("create", key, name, (entry, sandbox.id, mounts)))
    steps.append(Step("start", key, name))
    had = seen.containers[-1] if seen.containers else None
    wanted = declared_facets(entry, {}, sandbox.id, mounts, "new" if entry["secret_env"] else "")
    plan.differs(key, _brief(had) if had else None, {"state": "running", "attempt": str(entry["attempt"]), **wanted})


def _plan_present(
    plan: Plan, steps: list[Step], key: str, entry: ContainerEntry, current: Inspect, seen: ContainerInputs
) -> None:
    state = state_of(current)
    if state == "paused":
        steps.append(Step("unpause", key, name_of(current), current["Id"]))
        state = "running"
    stop = entry["stop"]
    if stop is not None:
        if state in {"running", "restarting"}:
            _plan_stop(plan, steps, key, stop["grace_s"], current, seen)
    elif entry["state"] == "running" or (seen.unattended and state in {"exited", "dead"}):
        # unattended, nobody will answer with the next attempt: one that is kept through its back-off starts again
        _plan_running(plan, steps, key, entry, current, seen, state)
    elif state == "running":
        _plan_limits(plan, steps, key, entry, current, seen)


def _plan_limits(
    plan: Plan, steps: list[Step], key: str, entry: ContainerEntry, current: Inspect, seen: ContainerInputs
) -> None:
    """Plan the limits of a container that is left as it is in all else."""
    before = limit_facets(current["HostConfig"], entry, seen.kernel.get(current["Id"], Limits()))
    after = declared_limits(entry)
    if differing := sorted(name for name in after if before[name] != after[name]):
        plan.differs(key, before, after)
        steps.append(Step("update", key, ", ".join(differing), (current["Id"], entry)))


def _plan_stop(
    plan: Plan, steps: list[Step], key: str, grace_s: float, current: Inspect, seen: ContainerInputs
) -> None:
    signalled_at = seen.signalled_at.get(current["Id"])
    if signalled_at is None and grace_s > 0:
        signal = current["Config"].get("StopSignal") or "SIGTERM"
        steps.append(Step("signal", key, f"{signal} to {name_of(current)}", (current["Id"], signal, seen.now)))
        plan.due.append(Due(key, grace_s, "GracePeriod"))
        return
    left_s = min(grace_s, grace_s - (seen.now - signalled_at)) if signalled_at is not None else 0  # clocks may jump
    if left_s > 0:
        plan.due.append(Due(key, round(left_s, 3), "GracePeriod"))
    else:
        steps.append(Step("kill", key, name_of(current), current["Id"]))


def _plan_running(
    plan: Plan,
    steps: list[Step],
    key: str,
    entry: ContainerEntry,
    current: Inspect,
    seen: ContainerInputs,
    state: str,
) -> None:
    error = current["State"].get("Error")
    if state == "created" and error and not seen.unattended:
        raise KeyFault("RunContainerError", error)
    if state not in {"created", "running", "restarting"}:
        if seen.unattended and restarts(entry, current):
            _plan_restart(steps, key, entry, current, seen)
        return
    sandbox, mounts = _usable_sandbox(key, entry, seen), _mounts(seen)
    before, after = _compare(entry, current, sandbox, mounts, seen)
    _plan_drift(plan, steps, key, (entry, sandbox.id, mounts), current, (before, after), seen)
    if steps and steps[-1].action == "start":
        return
    if state == "created":
        steps.append(Step("start", key, name_of(current)))
    elif seen.unattended and sandbox.started_at > current["State"]["StartedAt"]:
        steps.append(Step("kill", key, name_of(current), current["Id"]))
        steps.append(Step("start", key, name_of(current)))


def _plan_restart(steps: list[Step], key: str, entry: ContainerEntry, current: Inspect, seen: ContainerInputs) -> None:
    """Plan an exited container's start; one whose mount is gone (a sub path of an updated volume) is made again."""
    sandbox = _usable_sandbox(key, entry, seen)
    if current["Id"] in seen.mountless:
        mounts = _mounts_to_create(key, seen)
        steps.append(Step("remove", key, f"{name_of(current)} (a mount's source is gone)", current["Id"]))
        again = with_links_of(entry, current["Config"])
        steps.append(Step("create", key, name_of(current), (again, sandbox.id, mounts)))
    steps.append(Step("start", key, name_of(current)))


def _compare(
    entry: ContainerEntry, current: Inspect, sandbox: Sandbox, mounts: list[Mount], seen: ContainerInputs
) -> tuple[Facets, Facets]:
    marks = current["Config"]["Labels"].get(labels.SECRET_ENV, "")
    label = expected_label(entry, marks)
    image = seen.images.get(current["Image"])
    before = observed_facets(current, entry, mounts, seen.node_key, seen.kernel.get(current["Id"], Limits()))
    after = declared_facets(entry, image or {}, sandbox.id, mounts, label)
    if image is None:  # deleted by force: what came from it cannot be told apart from drift
        for name in ("entrypoint", "cmd", "working_dir", "user"):
            after[name] = before[name]
        after.update({name: text for name, text in before.items() if name.startswith("env ") and name not in after})
    # given when it is made, by the requests it had then: a resize leaves it, as kubelet does
    after["oom_score_adj"] = before["oom_score_adj"]
    forget_links(entry, current["Config"], (before, after))
    return before, after


def expected_label(entry: ContainerEntry, found: str) -> str:
    """Return the secret label a container must have, given the one it has: declared HMACs again, values as recorded."""
    if not entry["secret_env"]:
        return ""
    return secret_label(entry["secret_env"], {}, b"").partition(":")[0] + ":" + found.partition(":")[2]


def _plan_drift(
    plan: Plan,
    steps: list[Step],
    key: str,
    wanted: tuple[ContainerEntry, str, list[Mount]],
    current: Inspect,
    facets: tuple[Facets, Facets],
    seen: ContainerInputs,
) -> None:
    before, after = facets
    differing = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    if not differing:
        return
    plan.differs(key, before, after)
    what = ", ".join(sorted(differing))
    if differing <= LIMIT_FACETS:
        steps.append(Step("update", key, what, (current["Id"], wanted[0])))
        return
    _mounts_to_create(key, seen)  # what runs stays until its successor can be created
    steps.append(Step("remove", key, f"{name_of(current)} (differs: {what})", current["Id"]))
    name = labels.container_name(wanted[0]["pod"], wanted[0]["name"], wanted[0]["attempt"])
    steps.append(Step("create", key, name, (with_links_of(wanted[0], current["Config"]), *wanted[1:])))
    steps.append(Step("start", key, name))


def restarts(entry: ContainerEntry, exited: Inspect) -> bool:
    """Return whether an exited container is started again without a reconciler (default: apps always, inits never)."""
    policy = entry["restart_policy"] or ("Always" if entry["type"] == "app" else "Never")
    return policy == "Always" or (policy == "OnFailure" and exited["State"]["ExitCode"] != 0)
