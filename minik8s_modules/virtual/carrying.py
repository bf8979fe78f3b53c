"""A process that carries virtual nodes: providers made, controllers started, and all of it stopped again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import CONFIG_MAP, SECRET, SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock, SystemClock, rfc3339
from minik8s_modules.base.metrics import Registry
from minik8s_modules.client.interface import Api
from minik8s_modules.reconcile.pods.service_links import link_variables
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import BY_NAMESPACE, Informers
from minik8s_modules.runtime.queue_metrics import QueueMetrics
from minik8s_modules.virtual import registry
from minik8s_modules.virtual.figures import Figures
from minik8s_modules.virtual.nodes.controller import Carried, NodeController, Timing
from minik8s_modules.virtual.nodes.declared import Wishes, new_node
from minik8s_modules.virtual.pods.controller import PodController
from minik8s_modules.virtual.pods.environment import Problem, Surroundings, resolved
from minik8s_modules.virtual.provider import InitConfig, Provider
from minik8s_modules.virtual.wishes import Wish

COMPONENT = "virtual-kubelet"


class Options(NamedTuple):
    """What all nodes of a process have in common.

    Attributes:
        api_address: HOST:PORT at which Pods reach the API server, "" where they are not told.
        cluster_domain: of Services' names.
        state_dir: below which each node has a directory of its own, "" for none.
        port: of the nodes' HTTP API, 0 where it is not served.
        internal_ip: of nodes that name none.
        timing: of pings, Leases and statuses.
        role_label: whether nodes have the label ``kubernetes.io/role``, which a node may not give itself.
    """

    api_address: str = ""
    cluster_domain: str = "cluster.local"
    state_dir: str = ""
    port: int = 0
    internal_ip: str = ""
    timing: Timing = Timing()
    role_label: bool = True


_PLAIN = Options()


class Lookups:
    """``Resources`` of one node."""

    def __init__(self, client: Api, pods: Callable[[], list[JsonObject]]) -> None:
        self._client = client
        self._pods = pods

    def pods(self) -> list[JsonObject]:
        """Return the node's Pods."""
        return self._pods()

    def config_map(self, namespace: str, name: str) -> JsonObject | None:
        """Return the ConfigMap, None where there is none."""
        try:
            return self._client.get(CONFIG_MAP, name, namespace)
        except NotFound:
            return None

    def secret(self, namespace: str, name: str) -> JsonObject | None:
        """Return the Secret, None where there is none."""
        try:
            return self._client.get(SECRET, name, namespace)
        except NotFound:
            return None

    def fill_config_map(self, config_map: JsonObject) -> None:
        """Replace the data of a ConfigMap."""
        self._client.update(CONFIG_MAP, config_map)


class Carrier:
    """Carries the nodes of ``wishes`` from ``start`` to ``stop``.

    Args:
        client: of the API.
        wishes: the nodes.
        options: what they have in common.
        metrics: the process's.
        clock: of everything.
    """

    def __init__(
        self,
        client: Api,
        wishes: Sequence[Wish],
        options: Options = _PLAIN,
        metrics: Registry | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._client, self._options, self._clock = client, options, clock or SystemClock()
        self._wishes = {wish.name: wish for wish in wishes}
        self._metrics = metrics if metrics is not None else Registry()
        figures, queues = Figures(self._metrics, self._clock), QueueMetrics(self._metrics, self._clock)
        self._lookups: dict[str, Lookups] = {}
        self.providers = {name: self._provider(wish) for name, wish in self._wishes.items()}
        self._nodes = {name: self._node(wish) for name, wish in self._wishes.items()}
        self._informers = Informers(client, self._clock)
        self._services = self._informers.of(SERVICE, BY_NAMESPACE) if self._resolving() else None
        self._recorder = EventRecorder(client, COMPONENT, clock=self._clock)
        self.pods = PodController(client, self._recorder, self.providers, self._resolved, self._clock, figures, queues)
        carried = {name: Carried(self._nodes[name], self.providers[name]) for name in self._wishes}
        self.nodes = NodeController(client, carried, self._clock, figures, queues, options.timing)

    def find(self, namespace: str, name: str) -> JsonObject | None:
        """Return a Pod, None where there is none on these nodes."""
        pod = self.pods.informer.get(namespace, name)
        return pod if pod is not None and pod["spec"].get("nodeName") in self.providers else None

    def pods_of(self, node: str) -> list[JsonObject]:
        """Return the Pods of a node."""
        return self.pods.pods_of(node)

    def start(self) -> None:
        """Begin; returns at once."""
        self._recorder.start()
        self._informers.start()
        self.pods.start()
        self.nodes.start()

    def stop(self) -> None:
        """End: Nodes stay, Pods run on."""
        self.nodes.stop()
        self.pods.stop()
        self._informers.stop()
        for provider in self.providers.values():
            with contextlib.suppress(Exception):  # the others are to be let go, too
                provider.close()
        self._recorder.stop()

    def _provider(self, wish: Wish) -> Provider:
        state = ""
        if self._options.state_dir:
            folder = Path(self._options.state_dir) / wish.name
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            state = str(folder)
        self._lookups[wish.name] = Lookups(self._client, lambda: self.pods.pods_of(wish.name))
        config = InitConfig(
            wish.name,
            self._lookups[wish.name],
            wish.config,
            wish.config_path,
            wish.operating_system,
            wish.internal_ip or self._options.internal_ip,
            self._options.port,
            self._options.cluster_domain,
            state,
            self._metrics,
        )
        return registry.factory(wish.provider)(config)

    def _node(self, wish: Wish) -> JsonObject:
        labels = dict(wish.labels)
        if not self._options.role_label:
            labels.setdefault("kubernetes.io/role", "")
        said = Wishes(
            wish.name,
            wish.provider,
            labels,
            wish.taint,
            wish.operating_system,
            wish.internal_ip or self._options.internal_ip,
            self._options.port,
        )
        return self.providers[wish.name].configure_node(new_node(said, rfc3339(self._clock.now())))

    def _resolving(self) -> bool:
        return any(provider.resolves_environment for provider in self.providers.values())

    def _resolved(self, pod: JsonObject, tell: Callable[[Problem], None]) -> JsonObject:
        node = str(pod["spec"]["nodeName"])
        if not self.providers[node].resolves_environment:
            return pod
        around = Surroundings(self._nodes[node], self._options.api_address, self._links)
        return resolved(pod, self._lookups[node], around, tell)

    def _links(self, namespace: str) -> Mapping[str, str]:
        return link_variables(self._services.by_index(BY_NAMESPACE, namespace)) if self._services is not None else {}
