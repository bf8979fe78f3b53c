"""The provider: what there is stands in the runs' folders, so a restarted provider knows all of it.

A Pod that names neither a role nor a playbook is a unit of systemd (``ansible_units``).
"""

from __future__ import annotations

import contextlib
import copy
import signal
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.pods.units import GROUP, USERS, is_unit
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.virtual.errors import InvalidInput, NotFound, Unsupported
from minik8s_modules.virtual.provider import AttachIO, ContainerLogOptions, InitConfig, Provider
from minik8s_modules.virtual.providers.ansible_runs import settings
from minik8s_modules.virtual.providers.ansible_runs.requests import STEERING, asked, remarks
from minik8s_modules.virtual.providers.ansible_runs.runs import Command, Runs, ansible_command, told
from minik8s_modules.virtual.providers.ansible_units.machines import AnsibleMachines
from minik8s_modules.virtual.providers.ansible_units.pods import Making, UnitPods
from minik8s_modules.virtual.providers.ansible_units.statuses import summary
from minik8s_modules.virtual.providers.reaching import limited


class AnsibleProvider(Provider):
    """See the top of this file; thread-safe."""

    def __init__(self, config: InitConfig, command: Command | None = None, machines: Making = AnsibleMachines) -> None:
        if not config.state_dir:
            raise ConfigurationError("provider ansible: runs need a directory that stays: give state_dir (--state-dir)")
        self._settings = settings.read(config)
        command = command or ansible_command(self._settings)
        self._runs = Runs(Path(config.state_dir) / "runs", command, self._settings.roles)
        self._lock = threading.Lock()
        self._timers: list[threading.Timer] = []
        self._node = config.node_name
        self._units = UnitPods(config, self._settings, machines) if self._settings.users else None
        for pod in self._runs.pods():  # begun before a crash, and not all of them started
            with contextlib.suppress(InvalidInput):  # what is configured now allows it no more; if it began, it goes on
                self._runs.begin(pod, asked(pod, self._settings))

    def create_pod(self, pod: JsonObject) -> None:
        """Begin the run, or have the unit started."""
        if self._units is not None and is_unit(pod):
            self._units.create(pod)
            return
        request = asked(pod, self._settings)
        with self._lock:
            self._runs.begin(pod, request)

    def remarks(self, pod: JsonObject) -> Iterator[str]:
        """Yield what is not done as the Pod says."""
        if self._units is None or not is_unit(pod):
            yield from remarks(pod)

    def update_pod(self, pod: JsonObject) -> None:
        """Take over labels and annotations; the run goes on as it began.

        Raises:
            InvalidInput: an annotation asks for another run.
        """
        if (units := self._units_of(objects.key(pod))) is not None:
            units.update(pod)
            return
        said = objects.annotations(pod)
        with self._lock:
            before = objects.annotations(self._found(objects.key(pod)))
            if changed := [name for name in STEERING if name in said and said[name] != before.get(name)]:
                text = "a run that has begun is not changed: delete the Pod and create it again"
                raise InvalidInput(f"annotation {changed[0]}: {text}")
            self._runs.note(pod)

    def delete_pod(self, pod: JsonObject) -> None:
        """Ask the run to end, and end it when its grace is over."""
        if (units := self._units_of(objects.key(pod))) is not None:
            units.delete(pod)
            return
        with self._lock:
            uid = objects.uid(self._found(objects.key(pod)))
            self._runs.end(uid, signal.SIGTERM)
        grace_s = float(objects.metadata(pod).get("deletionGracePeriodSeconds") or 1)
        timer = threading.Timer(grace_s, self._runs.end, (uid, signal.SIGKILL))
        timer.daemon = True
        timer.start()
        with self._lock:
            self._timers = [each for each in self._timers if each.is_alive()] + [timer]

    def get_pod(self, namespace: str, name: str) -> JsonObject:
        """Return the Pod with its present status."""
        if (units := self._units_of(Key(namespace, name))) is not None:
            return units.get(Key(namespace, name))
        with self._lock:
            return self._with_status(self._found(Key(namespace, name)))

    def get_pod_status(self, namespace: str, name: str) -> JsonObject:
        """Return its status."""
        return objects.status(self.get_pod(namespace, name))

    def get_pods(self) -> list[JsonObject]:
        """Return the Pods of all runs and units."""
        with self._lock:
            runs = [self._with_status(pod) for pod in self._runs.pods()]
        return [*runs, *(self._units.pods() if self._units is not None else ())]

    def configure_node(self, node: JsonObject) -> JsonObject:
        """Give the node its capacity, the group's name, and as whom units may run."""
        said = self._settings
        capacity = {"cpu": said.cpu, "memory": said.memory, "pods": str(said.pods)}
        made = copy.deepcopy(node)
        made.setdefault("status", {}).update(capacity=capacity, allocatable=dict(capacity))
        made["metadata"]["labels"] = {**objects.labels(node), GROUP: said.group}
        if said.users:
            made["metadata"]["annotations"] = {**objects.annotations(node), USERS: ",".join(said.users)}
        return made

    def get_container_logs(
        self, namespace: str, pod: str, container: str, options: ContainerLogOptions
    ) -> Iterator[bytes]:
        """Return what Ansible, or the unit, printed."""
        if (units := self._units_of(Key(namespace, pod))) is not None:
            return units.logs(Key(namespace, pod), container, options)
        with self._lock:
            found = self._found(Key(namespace, pod))
        if container not in {each["name"] for each in objects.containers(found)}:
            raise NotFound(f"pod {namespace}/{pod} has no container {container!r}")
        if options.previous:
            raise NotFound(f"pod {namespace}/{pod}: a run has no previous container")
        if options.timestamps or options.since_seconds or options.since_time is not None:
            raise Unsupported("no time of a line is known: leave out --timestamps, --since, --since-time")
        uid = objects.uid(found)
        follow = (lambda: self._runs.state(uid).code is None) if options.follow else None
        return limited(self._runs.output(uid, options.tail, follow), options.limit_bytes)

    def run_in_container(
        self,
        namespace: str,
        pod: str,
        container: str,
        command: list[str],
        streams: AttachIO,  # noqa: ARG002 - nobody is connected
    ) -> int:
        """Refuse it: a Pod here has nothing that a command could enter."""
        raise Unsupported(
            f"{namespace}/{pod} {container} is a program of its host or a run of Ansible, with no container to run"
            f" {command[:1]} in: log in to the host"
        )

    def get_stats_summary(self) -> JsonObject:
        """Return what the units use; of runs nothing is known."""
        if self._units is None:
            raise Unsupported("of roles and playbooks no figures are known")
        now = _time(time.time())
        return summary(self._node, [*self._units.usage()], now)

    def close(self) -> None:
        """Runs go on; what was to be ended by force later is ended by the next process, or by itself."""
        for timer in self._timers:
            timer.cancel()
        if self._units is not None:
            self._units.close()

    def _units_of(self, key: Key) -> UnitPods | None:
        return self._units if self._units is not None and self._units.has(key) else None

    def _found(self, key: Key) -> JsonObject:
        found = [pod for pod in self._runs.pods() if objects.key(pod) == key]
        if not found:
            raise NotFound(f"no run of the Pod {key} is known")
        return min(found, key=self._runs.is_deleted)  # its predecessor of the same name may still be ending

    def _with_status(self, pod: JsonObject) -> JsonObject:
        return {**pod, "status": told(pod, self._runs.state(objects.uid(pod)), _time)}


def _time(seconds: float) -> str:
    return rfc3339(datetime.fromtimestamp(seconds, UTC))


def make(config: InitConfig) -> AnsibleProvider:
    """Return the provider; raises ConfigurationError."""
    return AnsibleProvider(config)
