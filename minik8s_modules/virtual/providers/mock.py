"""``mock`` runs nothing: each Pod is Running as soon as it is created. virtual-kubelet's mock, with switches for tests.

Logs tell what became of a container, exec answers what it would run, attach and port-forward send back what they
get. Its configuration, all of it optional:

    cpu: "20"                       capacity of the node, also memory and pods
    others: {nvidia.com/gpu: "2"}   further resources
    latency: {create_pod: 0.2}      seconds that a function takes
    failures: {create_pod: 0.1}     share of its calls that fail; the same ones in every run
    random_seed: 1
"""

from __future__ import annotations

import copy
import random
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.clock import Clock, SystemClock, rfc3339, rfc3339_micro
from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.virtual.errors import NotFound, ProviderError
from minik8s_modules.virtual.provider import (
    AttachIO,
    ContainerLogOptions,
    Duplex,
    InitConfig,
    NodeCallback,
    PodCallback,
    Provider,
)

FUNCTIONS = ("create_pod", "update_pod", "delete_pod", "get_pod", "get_pod_status", "get_pods", "ping")
_FOLLOW_S = 0.5
_READ = 65536


class _Line(NamedTuple):
    at: str
    text: str


class Mock(Provider):
    """See the top of this file; thread-safe."""

    def __init__(self, config: InitConfig, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        said = Configuration(dict(config.config), config.config_path or "the provider's configuration")
        self._capacity = {
            "cpu": said.text("cpu", "20"),
            "memory": said.text("memory", "100Gi"),
            "pods": said.text("pods", "20"),
            **{name: str(amount) for name, amount in (said.mapping("others") if said.has("others") else {}).items()},
        }
        self._latency = _shares(said, "latency")
        self._failures = _shares(said, "failures")
        self._random = random.Random(said.number("random_seed", 1))  # noqa: S311 - which calls fail is no secret
        if unknown := said.unread():
            raise ConfigurationError(f"{said.file}: {', '.join(unknown)} is not a setting of the provider mock")
        self._lock = threading.Lock()
        self._pods: dict[Key, JsonObject] = {}
        self._logs: dict[tuple[Key, str], list[_Line]] = {}
        self._notify: PodCallback | None = None
        self._stopped = threading.Event()

    # ------------------------------------------------------------------ Pods

    def create_pod(self, pod: JsonObject) -> None:
        """Have ``pod`` run."""
        self._met("create_pod")
        pod = copy.deepcopy(pod)
        with self._lock:
            known = self._pods.get(objects.key(pod))
            if known is not None and objects.uid(known) == objects.uid(pod):
                return
            pod["status"] = running_status(pod, rfc3339(self._clock.now()), self._config.internal_ip)
            self._pods[objects.key(pod)] = pod
            for container in objects.containers(pod):
                self._logs[objects.key(pod), container["name"]] = []
                self._log(objects.key(pod), container["name"], f"started {container.get('image', '')}")
        self._tell(pod)

    def update_pod(self, pod: JsonObject) -> None:
        """Take over what ``pod`` says; it runs on."""
        self._met("update_pod")
        with self._lock:
            known = self._find(objects.namespace(pod), objects.name(pod))
            updated = {**copy.deepcopy(pod), "status": known["status"]}
            self._pods[objects.key(pod)] = updated
        self._tell(updated)

    def delete_pod(self, pod: JsonObject) -> None:
        """End ``pod``, tell it, and forget it."""
        self._met("delete_pod")
        with self._lock:
            known = self._find(objects.namespace(pod), objects.name(pod))
            del self._pods[objects.key(pod)]
            for container in objects.containers(known):
                self._logs.pop((objects.key(pod), container["name"]), None)
            ended = {**known, "status": ended_status(known, rfc3339(self._clock.now()))}
        self._tell(ended)

    def get_pod(self, namespace: str, name: str) -> JsonObject:
        """Return a copy of the Pod."""
        self._met("get_pod")
        with self._lock:
            return copy.deepcopy(self._find(namespace, name))

    def get_pod_status(self, namespace: str, name: str) -> JsonObject:
        """Return a copy of its status."""
        self._met("get_pod_status")
        with self._lock:
            return copy.deepcopy(objects.status(self._find(namespace, name)))

    def get_pods(self) -> list[JsonObject]:
        """Return copies of all Pods."""
        self._met("get_pods")
        with self._lock:
            return copy.deepcopy([*self._pods.values()])

    def notify_pods(self, notify: PodCallback) -> None:
        """Tell ``notify`` of every change from now on."""
        self._notify = notify

    # ------------------------------------------------------------------ the node

    def ping(self) -> None:
        """Return, unless it is told to fail."""
        self._met("ping")

    def notify_node_status(self, notify: NodeCallback) -> None:
        """Do nothing: the node never changes."""

    def configure_node(self, node: JsonObject) -> JsonObject:
        """Give the node the capacity of the configuration."""
        status = {**objects.status(node), "capacity": dict(self._capacity), "allocatable": dict(self._capacity)}
        return {**node, "status": status}

    # ------------------------------------------------------------------ extras

    def get_container_logs(
        self, namespace: str, pod: str, container: str, options: ContainerLogOptions
    ) -> Iterator[bytes]:
        """Return what became of the container."""
        key = Key(namespace, pod)
        with self._lock:
            self._find_container(namespace, pod, container)
            lines = list(self._logs[key, container])
        return self._follow(key, container, lines, options)

    def run_in_container(self, namespace: str, pod: str, container: str, command: list[str], streams: AttachIO) -> int:
        """Say what would run, and send back what is typed; ``exit 3`` exits with 3."""
        with self._lock:
            self._find_container(namespace, pod, container)
            self._log(Key(namespace, pod), container, f"exec {' '.join(command)}")
        if streams.stdout is not None:
            streams.stdout.write(f"{' '.join(command)}\n".encode())
        _echo(streams)
        return int(command[1]) if command[0] == "exit" and len(command) > 1 and command[1].isdecimal() else 0

    def attach_to_container(self, namespace: str, pod: str, container: str, streams: AttachIO) -> None:
        """Send back what is typed."""
        with self._lock:
            self._find_container(namespace, pod, container)
        if streams.stdout is not None:
            streams.stdout.write(f"attached to {container}\n".encode())
        _echo(streams)

    def port_forward(self, namespace: str, pod: str, port: int, stream: Duplex) -> None:
        """Greet with the port, then send back what comes."""
        with self._lock:
            self._find(namespace, pod)
        stream.write(f"{namespace}/{pod}:{port}\n".encode())
        while data := stream.read(_READ):
            stream.write(data)
        stream.close_write()

    def get_stats_summary(self) -> JsonObject:
        """Return that every container uses a tenth of a core and 64 MiB."""
        now = rfc3339(self._clock.now())
        with self._lock:
            pods = [_stats(pod, now) for pod in self._pods.values()]
        cpu = sum(objects.dig(pod, "cpu", "usageNanoCores") for pod in pods)
        memory = sum(objects.dig(pod, "memory", "workingSetBytes") for pod in pods)
        node = {"nodeName": self._config.node_name, "startTime": now, **_usage(now, cpu, memory)}
        return {"node": node, "pods": pods}

    def get_metrics_resource(self) -> str:
        """Return the same as ``get_stats_summary`` in Prometheus' format."""
        used = self.get_stats_summary()
        lines = ["# TYPE node_cpu_usage_seconds_total counter"]
        lines.append(f"node_cpu_usage_seconds_total {used['node']['cpu']['usageCoreNanoSeconds'] / 1e9}")
        lines.append("# TYPE node_memory_working_set_bytes gauge")
        lines.append(f"node_memory_working_set_bytes {used['node']['memory']['workingSetBytes']}")
        return "\n".join(lines) + "\n"

    def close(self) -> None:
        """End the logs that are followed."""
        self._stopped.set()

    # ------------------------------------------------------------------ parts

    def _met(self, function: str) -> None:
        if seconds := self._latency.get(function):
            time.sleep(seconds)
        with self._lock:
            fails = self._random.random() < self._failures.get(function, 0.0)
        if fails:
            raise ProviderError(f"mock: {function} fails because its configuration says so")

    def _tell(self, pod: JsonObject) -> None:
        if self._notify is not None:
            self._notify(copy.deepcopy(pod))

    def _find(self, namespace: str, name: str) -> JsonObject:
        found = self._pods.get(Key(namespace, name))
        if found is None:
            raise NotFound(f'pod "{namespace}/{name}" is not known to the provider')
        return found

    def _find_container(self, namespace: str, name: str, container: str) -> None:
        if container not in {each["name"] for each in objects.containers(self._find(namespace, name))}:
            raise NotFound(f"pod {namespace}/{name} has no container {container!r}")

    def _log(self, pod: Key, container: str, text: str) -> None:
        self._logs[pod, container].append(_Line(rfc3339_micro(self._clock.now()), text))

    def _follow(self, pod: Key, container: str, lines: list[_Line], options: ContainerLogOptions) -> Iterator[bytes]:
        sent = len(lines)
        for line in lines[-options.tail :] if options.tail > 0 else lines if options.tail < 0 else []:
            yield _written(line, options)
        while options.follow and not self._stopped.wait(_FOLLOW_S):
            with self._lock:
                present = self._logs.get((pod, container))
                news = None if present is None else present[sent:]
            if news is None:
                return
            sent += len(news)
            yield b"".join(_written(line, options) for line in news)


def make(config: InitConfig) -> Mock:
    """Return the provider; raises ConfigurationError."""
    return Mock(config)


def running_status(pod: JsonObject, now: str, address: str) -> JsonObject:
    """Return the status of a Pod all of whose containers run since ``now``."""
    conditions = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    return {
        "phase": "Running",
        "hostIP": address,
        "startTime": now,
        "conditions": [{"type": one, "status": "True", "lastTransitionTime": now} for one in conditions],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container.get("image", ""),
                "imageID": "",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            }
            for container in objects.containers(pod)
        ],
    }


def ended_status(pod: JsonObject, now: str) -> JsonObject:
    """Return the status of a Pod whose containers have all been ended, as asked, at ``now``."""
    before = objects.status(pod)
    ended = []
    for container_status in before.get("containerStatuses") or []:
        began = objects.dig(container_status, "state", "running", "startedAt") or now
        terminated = {
            "exitCode": 0,
            "reason": "MockProviderPodContainerDeleted",
            "message": "the mock provider ended the container",
            "startedAt": began,
            "finishedAt": now,
        }
        ended.append({**container_status, "ready": False, "started": False, "state": {"terminated": terminated}})
    return {**before, "phase": "Succeeded", "reason": "MockProviderPodDeleted", "containerStatuses": ended}


def _shares(said: Configuration, key: str) -> dict[str, float]:
    found = said.mapping(key) if said.has(key) else {}
    for function, value in found.items():
        if function not in FUNCTIONS:
            raise ConfigurationError(f"{said.file}: {key}.{function}: there are {', '.join(FUNCTIONS)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise ConfigurationError(f"{said.file}: {key}.{function} must be a number, not {value!r}")
    return {function: float(value) for function, value in found.items()}


def _written(line: _Line, options: ContainerLogOptions) -> bytes:
    return f"{line.at} {line.text}\n".encode() if options.timestamps else f"{line.text}\n".encode()


def _echo(streams: AttachIO) -> None:
    if streams.stdin is None or streams.stdout is None:
        return
    while data := streams.stdin.read(_READ):
        streams.stdout.write(data)


def _usage(now: str, nanocores: int, memory: int) -> JsonObject:
    return {
        "cpu": {"time": now, "usageNanoCores": nanocores, "usageCoreNanoSeconds": nanocores},
        "memory": {"time": now, "workingSetBytes": memory, "usageBytes": memory},
    }


def _stats(pod: JsonObject, now: str) -> JsonObject:
    one = 100_000_000, 64 << 20
    containers = [{"name": each["name"], "startTime": now, **_usage(now, *one)} for each in objects.containers(pod)]
    reference = {"namespace": objects.namespace(pod), "name": objects.name(pod), "uid": objects.uid(pod)}
    many = len(containers)
    return {
        "podRef": reference,
        "startTime": objects.status(pod).get("startTime"),
        "containers": containers,
        **_usage(now, one[0] * many, one[1] * many),
    }
