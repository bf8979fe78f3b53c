"""What runs the Pods of a virtual node: the interface of virtual-kubelet (``node``, ``node/nodeutil``) in Python.

A provider derives from ``Provider`` and writes the six functions of ``PodLifecycleHandler``. It may also be a
``PodNotifier`` (it tells of changes itself, instead of being asked every five seconds) and a ``NodeProvider`` (it says
whether its back end lives, and what the node's status is). What it does not do stays as it is here: ``Unsupported``.

Pods and Nodes are plain JSON. What is given to a provider is a copy that it may keep and change; what it returns
or notifies must be a copy that it does not change any more: several threads read them (VK-04). Its functions are
called from several threads at once, but never for one Pod by two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from queue import SimpleQueue
from typing import NamedTuple, Protocol, runtime_checkable

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.metrics import Registry
from minik8s_modules.virtual.errors import Unsupported

PodCallback = Callable[[JsonObject], None]
"""Takes the whole Pod whose status has changed; may block for a moment."""
NodeCallback = Callable[[JsonObject], None]
"""Takes the whole Node; its status, labels and annotations replace those told before."""


class PodLifecycleHandler(Protocol):
    """What every provider does. Pods are known by namespace and name; the uid tells a new Pod from its predecessor."""

    def create_pod(self, pod: JsonObject) -> None:
        """Run ``pod``, whose environment variables are resolved.

        A call with a uid that is there already changes nothing: after a crash nobody knows whether the first came
        through.
        """

    def update_pod(self, pod: JsonObject) -> None:
        """Take over containers, initContainers, activeDeadlineSeconds, tolerations, labels and annotations.

        Called only where one of these differs from what ``get_pod`` answers.
        """

    def delete_pod(self, pod: JsonObject) -> None:
        """End ``pod``; may be called more than once. ``NotFound`` is success.

        Afterwards its status is terminal, phase and every container: it is notified or, without ``PodNotifier``, found
        by ``get_pod_status``, or the Pod is not found any more.
        """

    def get_pod(self, namespace: str, name: str) -> JsonObject:
        """Return the Pod as it was given last, with its present status; may come from a cache.

        Raises:
            NotFound: there is none. Only then it is created; after any other error that is asked again.
        """

    def get_pod_status(self, namespace: str, name: str) -> JsonObject:
        """Return the Pod's ``status``. Raises NotFound."""

    def get_pods(self) -> list[JsonObject]:
        """Return all Pods of this node that the back end has, also those it has from before a restart."""


@runtime_checkable
class PodNotifier(Protocol):
    """A provider that tells of changes of its own accord."""

    def notify_pods(self, notify: PodCallback) -> None:
        """Remember ``notify`` and return; call it with the whole Pod at every change of its status. Called once."""


@runtime_checkable
class NodeProvider(Protocol):
    """A provider that answers for the node itself."""

    def ping(self) -> None:
        """Return if the back end lives; called every ten seconds, one at a time.

        Raises:
            Exception: it does not. Neither Lease nor status is renewed then: the control plane sees a dead node.
        """

    def notify_node_status(self, notify: NodeCallback) -> None:
        """Remember ``notify`` and return; call it with the Node whenever the back end changes what it is."""


class Resources(Protocol):
    """What a provider may look up in the cluster: Pods of its node from a copy, the rest by asking the API."""

    def pods(self) -> list[JsonObject]:
        """Return the Pods that are bound to this node. Do not change them."""

    def config_map(self, namespace: str, name: str) -> JsonObject | None:
        """Return the ConfigMap, None where there is none."""

    def secret(self, namespace: str, name: str) -> JsonObject | None:
        """Return the Secret (its data in base64), None where there is none."""

    def fill_config_map(self, config_map: JsonObject) -> None:
        """Replace the data of a ConfigMap that takes results, and that a Pod of this node names for its own.

        Raises:
            StatusError: the API refused, with Conflict where it was changed meanwhile.
        """


@dataclass(frozen=True)
class InitConfig:
    """What a provider is made with.

    Attributes:
        node_name: of the node it is made for; each node has a provider of its own.
        config: what the provider's configuration file says, ``{}`` without one.
        config_path: that file, "" without one: relative paths in it are meant from its directory.
        operating_system: of the node, ``linux`` unless told otherwise.
        internal_ip: the node's address.
        daemon_port: at which the node's own HTTP API is served, 0 where it is not.
        cluster_domain: of Services' names.
        resources: looks up what Pods refer to.
        state_dir: where this node may keep files over restarts, "" where nothing may be kept.
        metrics: the process's; a provider's families have a label for the node, as the process may carry many.
    """

    node_name: str
    resources: Resources
    config: Mapping[str, object] = field(default_factory=dict)
    config_path: str = ""
    operating_system: str = "linux"
    internal_ip: str = ""
    daemon_port: int = 0
    cluster_domain: str = "cluster.local"
    state_dir: str = ""
    metrics: Registry = field(default_factory=Registry, compare=False)


@dataclass(frozen=True)
class ContainerLogOptions:
    """What part of a log is wanted; the fields of PodLogOptions.

    Attributes:
        tail: the last so many lines; -1 for all.
        limit_bytes: at most so many bytes; 0 for all.
        timestamps: each line begins with the time it was written, RFC 3339.
        follow: go on until the container ends.
        previous: of the container before the last restart.
        since_seconds: only lines younger than that; 0 for all.
        since_time: only lines from then on.
    """

    tail: int = -1
    limit_bytes: int = 0
    timestamps: bool = False
    follow: bool = False
    previous: bool = False
    since_seconds: int = 0
    since_time: datetime | None = None


class TermSize(NamedTuple):
    """A terminal's size in characters."""

    width: int
    height: int


class Input(Protocol):
    """What somebody types."""

    def read(self, size: int, /) -> bytes:
        """Return at most ``size`` bytes, as soon as there are some; b"" at the end, and when the client has gone."""


class Output(Protocol):
    """What somebody sees."""

    def write(self, data: bytes, /) -> object:
        """Send ``data`` at once. Raises BrokenPipeError when the client has gone."""


@dataclass(frozen=True)
class AttachIO:
    """The streams of an exec or attach; None where the client does not want one.

    With ``tty`` there is no ``stderr``, and ``resize`` yields the terminal's sizes, the first one at the beginning.
    """

    stdin: Input | None = None
    stdout: Output | None = None
    stderr: Output | None = None
    tty: bool = False
    resize: SimpleQueue[TermSize] = field(default_factory=SimpleQueue)


class Duplex(Input, Output, Protocol):
    """One forwarded connection."""

    def close_write(self) -> None:
        """Say that nothing more will be written; reading goes on."""


class Provider(ABC, PodLifecycleHandler):
    """The base of every provider; see the top of this file.

    Attributes:
        resolves_environment: whether ``create_pod`` wants variables with their values. Where it does not, ``env`` and
            ``envFrom`` come as they were written, and no ConfigMap or Secret is looked up.
        tells_success: whether an Event says of each Pod that it was created, updated or deleted here. A provider for
            thousands of Pods a minute had better not: each is a request. Failures are told in any case.
    """

    resolves_environment = True
    tells_success = True

    @abstractmethod
    def create_pod(self, pod: JsonObject) -> None:
        """See ``PodLifecycleHandler``."""

    @abstractmethod
    def update_pod(self, pod: JsonObject) -> None:
        """See ``PodLifecycleHandler``."""

    @abstractmethod
    def delete_pod(self, pod: JsonObject) -> None:
        """See ``PodLifecycleHandler``."""

    @abstractmethod
    def get_pod(self, namespace: str, name: str) -> JsonObject:
        """See ``PodLifecycleHandler``."""

    @abstractmethod
    def get_pod_status(self, namespace: str, name: str) -> JsonObject:
        """See ``PodLifecycleHandler``."""

    @abstractmethod
    def get_pods(self) -> list[JsonObject]:
        """See ``PodLifecycleHandler``."""

    def remarks(self, pod: JsonObject) -> Iterable[str]:  # noqa: ARG002 - of most there is nothing to say
        """Return what ``pod`` asks for that is not done as it says; each becomes an Event when it was created."""
        return ()

    def configure_node(self, node: JsonObject) -> JsonObject:
        """Return ``node`` with capacity, allocatable, conditions and addresses, before it is registered."""
        return node

    def get_container_logs(
        self, namespace: str, pod: str, container: str, options: ContainerLogOptions
    ) -> Iterator[bytes]:
        """Return the log's chunks; the iterator's ``close`` is called when nobody wants more, if it has one.

        Who follows and has nothing new yields b"" once a second, so that it is noticed when the client goes.

        Raises:
            NotFound: there is no such Pod or container.
        """
        raise Unsupported(f"this provider has no logs; {namespace}/{pod} {container} {options} was asked for")

    def run_in_container(
        self,
        namespace: str,
        pod: str,
        container: str,
        command: list[str],
        streams: AttachIO,  # noqa: ARG002 - for those who derive
    ) -> int:
        """Run ``command`` in the container until it ends; return its exit code. Raises NotFound."""
        raise Unsupported(f"this provider runs no commands; {command} in {namespace}/{pod} {container} was asked for")

    def attach_to_container(
        self,
        namespace: str,
        pod: str,
        container: str,
        streams: AttachIO,  # noqa: ARG002 - for those who derive
    ) -> None:
        """Connect ``streams`` to the container's process until it ends or the client goes. Raises NotFound."""
        raise Unsupported(f"this provider attaches to nothing; {namespace}/{pod} {container} was asked for")

    def port_forward(
        self,
        namespace: str,
        pod: str,
        port: int,
        stream: Duplex,  # noqa: ARG002 - for those who derive
    ) -> None:
        """Carry bytes between ``stream`` and the Pod's TCP ``port`` until either side ends. Raises NotFound."""
        raise Unsupported(f"this provider forwards no ports; {port} of {namespace}/{pod} was asked for")

    def get_stats_summary(self) -> JsonObject:
        """Return kubelet's ``/stats/summary`` (stats/v1alpha1 Summary): node and pods."""
        raise Unsupported("this provider measures nothing (get_stats_summary)")

    def get_metrics_resource(self) -> str:
        """Return kubelet's ``/metrics/resource`` in Prometheus' text format."""
        raise Unsupported("this provider measures nothing (get_metrics_resource)")

    def close(self) -> None:
        """Let go of threads and connections; Pods run on. Nothing is called afterwards."""
