"""Path and method of a request → what is done, once the caller may."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar

from minik8s_modules.api import objects
from minik8s_modules.api.errors import BadRequest, Conflict, MethodNotAllowed, NotFound, StatusError
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.client.interface import Api
from minik8s_modules.client.kubeconfig import Access
from minik8s_modules.controllers.core.owning import without_condition
from minik8s_modules.streams.connections import Connection
from minik8s_virtual_machines.api.defaults import with_defaults
from minik8s_virtual_machines.api.kinds import VM, VMI
from minik8s_virtual_machines.api.validation import Policy
from minik8s_virtual_machines.controllers.conditions import COMPUTE, told, with_told
from minik8s_virtual_machines.server import discovery, streams, subresources, webhooks
from minik8s_virtual_machines.server.access import authorize
from minik8s_virtual_machines.server.asked import VERBS, Answer, Asked, Target, as_json, caller_of, target_of
from minik8s_virtual_machines.server.podstreams import Where, exec_stream, forward_stream, run

VMCTL = "/usr/bin/vmctl"
ANSWER_S = 30.0
_PORTS = range(1, 65536)
_TRIES = 5
Result = TypeVar("Result")


class Served(NamedTuple):
    """What the routes work with; ``counted`` is told each request of the API group and the code of its answer."""

    api: Api
    access: Access
    policy: Policy = Policy()
    clock: Clock = SystemClock()
    counted: Callable[[str, int], None] = lambda _what, _code: None


class Routes:
    """The handler of the listener."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._consoles: dict[tuple[str, str], asyncio.Task[Any]] = {}

    async def __call__(self, client: Connection, asked: Asked) -> Answer | None:
        """Answer. Raises StatusError, TemporaryError."""
        if asked.path.startswith("/admission/"):
            return await self._review(asked)
        target = target_of(asked.path)
        if target is None:
            found = discovery.document(asked.path)
            if found is None:
                raise NotFound.path()
            return found
        try:
            answer = await self._asked(client, asked, target)
        except StatusError as error:
            self._served.counted(target.right, error.code)
            raise
        self._served.counted(target.right, 101 if answer is None else answer.code.value)
        return answer

    async def _review(self, asked: Asked) -> Answer:
        if asked.method != "POST":
            raise MethodNotAllowed(None, asked.method)
        review = asked.json()
        match asked.path:
            case "/admission/mutate":
                return as_json(webhooks.mutated(review))
            case "/admission/validate":
                return as_json(webhooks.validated(review, self._served.policy))
            case "/admission/evict":
                return as_json(await _thread(partial(webhooks.evicted, review, self._served.api)))
        raise NotFound.path()

    async def _asked(self, client: Connection, asked: Asked, target: Target) -> Answer | None:
        verb = VERBS.get(asked.method)
        if verb is None:
            raise MethodNotAllowed(None, asked.method)
        api = self._served.api
        await _thread(partial(authorize, api, caller_of(asked), verb, target))
        if target.resource == "expand-vm-spec":
            return as_json(with_defaults(asked.json()))
        if target.resource == VM.plural:
            return await self._of_machine(client, asked, target)
        return await self._of_instance(client, asked, target)

    async def _of_machine(self, client: Connection, asked: Asked, target: Target) -> Answer | None:
        api = self._served.api
        machine = await _thread(partial(subresources.machine_of, api, target.namespace, target.name))
        action = subresources.ACTIONS.get(target.subresource)
        if asked.method == "PUT" and action is not None and not target.rest:
            options = asked.json()
            await _thread(partial(_taken, action, api, machine, options, target))
            return Answer(HTTPStatus.ACCEPTED)
        if asked.method == "GET" and target.subresource == "expand-spec":
            return as_json(with_defaults(machine.vm))
        if asked.method == "GET" and target.subresource == "portforward":
            if machine.instance is None:
                raise NotFound(VMI, target.name)
            await self._forward(client, asked, target, machine.instance)
            return None
        raise NotFound.path(f"the server does not serve {target.subresource} of a VirtualMachine")

    async def _of_instance(self, client: Connection, asked: Asked, target: Target) -> Answer | None:
        instance = await _thread(partial(self._served.api.get, VMI, target.name, target.namespace))
        command = subresources.COMMANDS.get((asked.method, target.right))
        if command is not None:
            return await self._command(asked, instance, command)
        if asked.method == "GET" and target.subresource in {"console", "vnc"} and not target.rest:
            await self._screen(client, asked, target, instance)
            return None
        if asked.method == "GET" and target.subresource == "portforward":
            await self._forward(client, asked, target, instance)
            return None
        raise NotFound.path(f"the server does not serve {target.right} of a VirtualMachineInstance")

    async def _command(self, asked: Asked, instance: JsonObject, command: subresources.Command) -> Answer:
        command.check(instance)
        if "All" in (asked.json().get("dryRun") or []):
            return Answer(HTTPStatus.OK)
        where = await _thread(partial(self._where, instance))
        done = await run(self._served.access, where, [VMCTL, command.program], ANSWER_S)
        if done.code != 0:
            text = done.words or f"{command.program} failed"
            raise subresources.conflict(VMI, objects.name(instance), text)
        if command.program in {"pause", "unpause"}:
            await _thread(partial(self._say_paused, instance, paused=command.program == "pause"))
        if command.kind:
            return as_json(_listed(json.loads(done.out or b"{}"), command.kind))
        return Answer(HTTPStatus.OK, done.out, command.media) if command.media else Answer(HTTPStatus.OK)

    def _say_paused(self, instance: JsonObject, *, paused: bool) -> None:
        """Write the condition at once; the controllers find the same when they ask the launcher."""
        api, now = self._served.api, self._served.clock.now()
        for _ in range(_TRIES):
            found = objects.status(instance).get("conditions") or []
            conditions = (
                with_told(found, told("Paused", "True", "PausedByUser", "VMI was paused by user", now))
                if paused
                else without_condition(found, "Paused")
            )
            body = {**instance, "status": {**objects.status(instance), "conditions": conditions}}
            try:
                api.update(VMI, body, subresource="status")
            except Conflict:
                instance = api.get(VMI, objects.name(instance), objects.namespace(instance))
            else:
                return

    async def _screen(self, client: Connection, asked: Asked, target: Target, instance: JsonObject) -> None:
        _check_stream(asked, target, instance)
        where = await _thread(partial(self._where, instance))
        key = (objects.uid(instance), target.subresource)
        if (older := self._consoles.pop(key, None)) is not None:  # one at a time: the new one has it
            older.cancel()
        stream = exec_stream(self._served.access, where, [VMCTL, target.subresource])
        task = asyncio.ensure_future(streams.serve(client, asked, stream, streams.of_exec))
        self._consoles[key] = task
        try:
            await _until_gone(client, task)
        finally:
            if self._consoles.get(key) is task:
                del self._consoles[key]

    async def _forward(self, client: Connection, asked: Asked, target: Target, instance: JsonObject) -> None:
        subresources.check_running(instance)
        port, *protocol = target.rest or ("",)
        if not port.isdecimal() or int(port) not in _PORTS:
            raise BadRequest(f"a port is between 1 and 65535, not {port!r}")
        if protocol not in ([], ["tcp"]):
            raise BadRequest("only TCP is forwarded")
        if not asked.upgrades:
            raise BadRequest("a port is forwarded over a WebSocket")
        where = await _thread(partial(self._where, instance))
        stream = forward_stream(self._served.access, where, int(port))
        await _until_gone(client, asyncio.ensure_future(streams.serve(client, asked, stream, streams.of_forward)))

    def _where(self, instance: JsonObject) -> Where:
        # who may make pods can make one that says it is this instance's; the controllers have chosen the first
        ours = objects.status(instance).get("activePods") or {}
        pods = [pod for pod in subresources.pods_of(self._served.api, instance) if objects.uid(pod) in ours]
        running = [pod for pod in pods if objects.status(pod).get("phase") == "Running"]
        if not running:
            raise subresources.conflict(VMI, objects.name(instance), "its virt-launcher pod does not run")
        return Where(objects.namespace(running[0]), objects.name(running[0]), COMPUTE)


def _check_stream(asked: Asked, target: Target, instance: JsonObject) -> None:
    """Refuse a console or screen. 400 has virtctl try again, anything else does not."""
    devices = objects.dig(instance, "spec", "domain", "devices") or {}
    phase = objects.status(instance).get("phase")
    if phase == "Failed":
        raise subresources.conflict(VMI, target.name, "VMI is in failed status")
    if phase != "Running":
        raise BadRequest("VMI is not running")
    if target.subresource == "console" and devices.get("autoattachSerialConsole") is False:
        raise BadRequest("No serial consoles are present.")
    uml = objects.dig(instance, "spec", "domain", "machine", "type") == "uml"
    if target.subresource == "vnc" and (uml or devices.get("autoattachGraphicsDevice") is False):
        raise BadRequest("No graphics devices are present.")
    if not asked.upgrades:
        raise BadRequest(f"{target.subresource} is a WebSocket")


def _taken(
    action: Callable[[Api, subresources.Machine, Mapping[str, Any]], None],
    api: Api,
    machine: subresources.Machine,
    options: Mapping[str, Any],
    target: Target,
) -> None:
    """Take an action; one that loses a race against the controllers is taken again on what is there then."""
    for _ in range(_TRIES):
        try:
            action(api, machine, options)
        except Conflict:
            machine = subresources.machine_of(api, target.namespace, target.name)
        else:
            return
    raise subresources.conflict(VM, target.name, "it changes all the time; try again")


def _listed(found: Any, kind: str) -> JsonObject:
    whole: JsonObject = found if isinstance(found, dict) else {"items": found}
    return {"apiVersion": VMI.api_version, "kind": kind, **({"metadata": {}} if "items" in whole else {}), **whole}


async def _until_gone(client: Connection, task: asyncio.Task[None]) -> None:
    gone = asyncio.ensure_future(client.closed())
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in (task, gone):
            each.cancel()
        ended = await asyncio.gather(task, gone, return_exceptions=True)
    if isinstance(ended[0], Exception) and not isinstance(ended[0], OSError):
        raise ended[0]


async def _thread(call: Callable[[], Result]) -> Result:
    return await asyncio.get_running_loop().run_in_executor(None, call)
