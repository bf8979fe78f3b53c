"""What start, stop, restart, pause and the like do, and when they are refused.

Source: KubeVirt v1.4 ``pkg/virt-api/rest/subresource.go``; the refusals have its words, as virtctl's users know them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import BadRequest, Conflict, NotFound, StatusError
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.interface import Api
from minik8s_virtual_machines.api.kinds import FINAL, VM, VMI
from minik8s_virtual_machines.api.strategies import (
    ALWAYS,
    HALTED,
    MANUAL,
    ONCE,
    RERUN,
    as_spec,
    requests_of,
    strategy_of,
)
from minik8s_virtual_machines.api.validation import MIGRATION_REFUSED

_NOT_RUNNING = "VM is not running"


def conflict(kind: Any, name: str, text: str) -> StatusError:
    """Return a refusal in KubeVirt's form (``errors.NewConflict``)."""
    message = f'Operation cannot be fulfilled on {kind.singular_name}.{kind.group} "{name}": {text}'
    return StatusError(
        HTTPStatus.CONFLICT, "Conflict", message, {"name": name, "group": kind.group, "kind": kind.plural}
    )


class Machine(NamedTuple):
    """A VirtualMachine and its instance, as they are now."""

    vm: JsonObject
    instance: JsonObject | None

    @property
    def phase(self) -> str:
        """The instance's phase, "" where there is none."""
        return str(objects.status(self.instance or {}).get("phase") or "")

    @property
    def runs(self) -> bool:
        """Whether there is an instance that has not ended."""
        return self.instance is not None and self.phase not in FINAL


def machine_of(api: Api, namespace: str, name: str) -> Machine:
    """Return a machine. Raises NotFound."""
    vm = api.get(VM, name, namespace)
    try:
        instance = api.get(VMI, name, namespace)
    except NotFound:
        return Machine(vm, None)
    ours = (objects.controller_of(instance) or {}).get("uid") == objects.uid(vm)
    return Machine(vm, instance if ours else None)


def start(api: Api, machine: Machine, options: Mapping[str, Any]) -> None:
    """Start a machine. Raises StatusError."""
    vm, name, strategy = machine.vm, objects.name(machine.vm), strategy_of(machine.vm)
    if machine.phase not in FINAL | {"", "Unknown"}:
        raise conflict(VM, name, "VM is already running")
    paused = bool(options.get("paused"))
    asked = {"action": "Start", **({"data": {"paused": "true"}} if paused else {})}
    if strategy in {ALWAYS, ONCE}:
        raise conflict(VM, name, f"{strategy} does not support manual start requests")
    if strategy == HALTED and not paused:
        _set_running(api, vm, options, running=True)
        return
    if strategy == RERUN and machine.phase == "Failed":
        raise conflict(VM, name, f"{RERUN} does not support starting VM from failed state")
    _request(api, vm, [*_stopping(machine), asked], options)


def _stopping(machine: Machine) -> list[JsonObject]:
    """Return the request that an instance which has ended goes first."""
    if machine.instance is None or strategy_of(machine.vm) not in {MANUAL, RERUN}:
        return []
    return [{"action": "Stop", "uid": objects.uid(machine.instance)}]


def stop(api: Api, machine: Machine, options: Mapping[str, Any]) -> None:
    """Stop a machine. Raises StatusError."""
    vm, name, strategy = machine.vm, objects.name(machine.vm), strategy_of(machine.vm)
    grace = _grace(options.get("gracePeriod"), "gracePeriod")
    if strategy in {HALTED, MANUAL, RERUN} and not machine.runs:
        raise conflict(VM, name, _NOT_RUNNING)
    if strategy == HALTED and (grace is None or grace >= _grace_of(machine)):
        raise conflict(VM, name, f"{HALTED} only supports manual stop requests with a shorter graceperiod")
    if grace is not None and machine.runs:
        body = {"spec": {"terminationGracePeriodSeconds": grace}}
        api.patch(VMI, name, objects.namespace(vm), body, dry_run=_dry(options))
    if strategy in {ALWAYS, ONCE}:
        _set_running(api, vm, options, running=False)
    else:
        _request(api, vm, [{"action": "Stop", "uid": objects.uid(machine.instance or {})}], options)


def _grace_of(machine: Machine) -> int:
    return int(objects.spec(machine.instance or {}).get("terminationGracePeriodSeconds") or 0)


def restart(api: Api, machine: Machine, options: Mapping[str, Any]) -> None:
    """Restart a machine. Raises StatusError."""
    vm, name, strategy = machine.vm, objects.name(machine.vm), strategy_of(machine.vm)
    grace = _grace(options.get("gracePeriodSeconds"), "gracePeriodSeconds")
    if grace:
        raise BadRequest("For force restart, only gracePeriod=0 is supported for now")
    if strategy in {HALTED, ONCE}:
        raise conflict(VM, name, f"RunStategy {strategy} does not support manual restart requests")
    if machine.instance is None:
        raise conflict(VM, name, f"{_NOT_RUNNING}: {HALTED}")
    _request(api, vm, [{"action": "Stop", "uid": objects.uid(machine.instance)}, {"action": "Start"}], options)
    if grace == 0 and not _dry(options):
        _kill(api, machine.instance)


def _kill(api: Api, instance: JsonObject) -> None:
    """Delete the launcher's pod with the shortest grace that still lets it end in order."""
    for pod in pods_of(api, instance):
        try:
            api.delete(POD, objects.name(pod), objects.namespace(pod), uid=objects.uid(pod), grace_s=1)
        except (NotFound, Conflict):
            continue


def pods_of(api: Api, instance: JsonObject) -> list[JsonObject]:
    """Return the pods that an instance controls."""
    marks = f"kubevirt.io=virt-launcher,kubevirt.io/created-by={objects.uid(instance)}"  # only the daemon writes them
    found = api.list(POD, objects.namespace(instance), label_selector=marks)
    return [pod for pod in found.items if (objects.controller_of(pod) or {}).get("uid") == objects.uid(instance)]


def migrate(_api: Api, machine: Machine, _options: Mapping[str, Any]) -> None:
    """Refuse: there is no live migration. Raises StatusError."""
    raise conflict(VM, objects.name(machine.vm), MIGRATION_REFUSED)


ACTIONS: Mapping[str, Callable[[Api, Machine, Mapping[str, Any]], None]] = {
    "start": start,
    "stop": stop,
    "restart": restart,
    "migrate": migrate,
}


def _grace(value: Any, field: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadRequest(f"{field} has to be an integer greater or equal to 0")
    return value


def _dry(options: Mapping[str, Any]) -> bool:
    return "All" in (options.get("dryRun") or [])


def _set_running(api: Api, vm: JsonObject, options: Mapping[str, Any], *, running: bool) -> None:
    api.patch(VM, objects.name(vm), objects.namespace(vm), as_spec(vm, running=running), dry_run=_dry(options))


def _request(api: Api, vm: JsonObject, changes: Sequence[JsonObject], options: Mapping[str, Any]) -> None:
    """Write requests for the controller into the status, if nobody else does (``getChangeRequestJson``)."""
    known = requests_of(vm)
    only_stop = len(changes) == 1 and changes[0]["action"] == "Stop"
    if known and not only_stop:
        raise conflict(VM, objects.name(vm), "unable to complete request: stop/start already underway")
    status = {**objects.status(vm), "stateChangeRequests": [*changes]}
    status.pop("startFailure", None)  # who asks by hand waits for no back-off
    body = {**vm, "status": status}  # with its resourceVersion: refused when it has changed meanwhile
    api.update(VM, body, subresource="status", dry_run=_dry(options))


# --- of instances ----------------------------------------------------------------------------------------------------


def check_running(instance: JsonObject) -> None:
    """Refuse what needs a guest that runs. Raises StatusError."""
    if objects.status(instance).get("phase") != "Running":
        raise conflict(VMI, objects.name(instance), _NOT_RUNNING)


def is_paused(instance: JsonObject) -> bool:
    """Return whether the guest stands still."""
    return (objects.condition(instance, "Paused") or {}).get("status") == "True"


def check_pause(instance: JsonObject) -> None:
    """Refuse to pause. Raises StatusError."""
    check_running(instance)
    if "livenessProbe" in objects.spec(instance):
        text = "Pausing VMIs with LivenessProbe is currently not supported"
        raise StatusError(
            HTTPStatus.FORBIDDEN, "Forbidden", f'{VMI.resource} "{objects.name(instance)}" is forbidden: {text}'
        )
    if is_paused(instance):
        raise conflict(VMI, objects.name(instance), "VMI is already paused")


def check_unpause(instance: JsonObject) -> None:
    """Refuse to go on. Raises StatusError."""
    check_running(instance)
    if not is_paused(instance):
        raise conflict(VMI, objects.name(instance), "VMI is not paused")


def check_not_paused(instance: JsonObject) -> None:
    """Refuse what a guest that stands still cannot do. Raises StatusError."""
    check_running(instance)
    if is_paused(instance):
        raise conflict(VMI, objects.name(instance), "VMI is paused")


def check_agent(instance: JsonObject) -> None:
    """Refuse what a guest agent answers, while there is none. Raises StatusError."""
    check_running(instance)
    if (objects.condition(instance, "AgentConnected") or {}).get("status") != "True":
        raise conflict(VMI, objects.name(instance), "VMI does not have guest agent connected")


class Command(NamedTuple):
    """A program of the launcher that does what a subresource asks, and what refuses it before.

    Attributes:
        media: of what it prints; "" where that is nothing.
        kind: of the object that is answered, for JSON.
    """

    program: str
    check: Callable[[JsonObject], None]
    media: str = ""
    kind: str = ""


_JSON = "application/json"
COMMANDS: Mapping[tuple[str, str], Command] = {
    ("PUT", "pause"): Command("pause", check_pause),
    ("PUT", "unpause"): Command("unpause", check_unpause),
    ("PUT", "softreboot"): Command("softreboot", check_not_paused),
    ("PUT", "freeze"): Command("freeze", check_agent),
    ("PUT", "unfreeze"): Command("unfreeze", check_agent),
    ("GET", "vnc/screenshot"): Command("screenshot", check_running, "image/png"),
    ("GET", "guestosinfo"): Command("guestosinfo", check_agent, _JSON, "VirtualMachineInstanceGuestAgentInfo"),
    ("GET", "filesystemlist"): Command("filesystemlist", check_agent, _JSON, "VirtualMachineInstanceFileSystemList"),
    ("GET", "userlist"): Command("userlist", check_agent, _JSON, "VirtualMachineInstanceGuestOSUserList"),
}
