"""The tests that every provider passes, for those of this package and for those who write their own.

Derive a class whose name begins with ``Test`` from ``ProviderContract``, write ``make``, and let pytest collect it:

    class TestMine(ProviderContract):
        def make(self, config: InitConfig) -> Provider:
            return Mine(config)

``config.state_dir`` is the same directory for all providers that one test makes, so a provider whose back end outlives
it finds its Pods again; say so with ``survives_restarts = True``. What a provider does not do (``Unsupported``) is not
tried. Each test makes Pods of its own and deletes them.
"""

from __future__ import annotations

import copy
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.virtual.errors import NotFound, Unsupported, is_not_found
from minik8s_modules.virtual.provider import ContainerLogOptions, InitConfig, NodeProvider, PodNotifier, Provider

NODE = "contract"
TERMINAL = frozenset({"Succeeded", "Failed"})


class NoResources:
    """``Resources`` of a cluster that has nothing but ``config_maps`` and ``secrets``, by ``namespace/name``."""

    def __init__(
        self, config_maps: Mapping[str, JsonObject] | None = None, secrets: Mapping[str, JsonObject] | None = None
    ) -> None:
        self._config_maps = dict(config_maps or {})
        self._secrets = secrets or {}

    def pods(self) -> list[JsonObject]:
        """Return no Pods."""
        return []

    def config_map(self, namespace: str, name: str) -> JsonObject | None:
        """Return the ConfigMap, None where there is none."""
        return self._config_maps.get(f"{namespace}/{name}")

    def secret(self, namespace: str, name: str) -> JsonObject | None:
        """Return the Secret, None where there is none."""
        return self._secrets.get(f"{namespace}/{name}")

    def fill_config_map(self, config_map: JsonObject) -> None:
        """Replace a ConfigMap."""
        self._config_maps[f"{objects.namespace(config_map)}/{objects.name(config_map)}"] = config_map


class ProviderContract:
    """See the top of this file.

    Attributes:
        patience_s: how long a Pod may take to run, or to end.
        survives_restarts: whether Pods outlive the provider that made them.
        config: what the provider's configuration file would say.
    """

    patience_s = 30.0
    survives_restarts = False
    config: Mapping[str, object] = {}

    def make(self, config: InitConfig) -> Provider:
        """Return a new provider; override it."""
        raise NotImplementedError("write `make` to return your provider")

    def pod(self, name: str, **spec: Any) -> JsonObject:
        """Return a Pod that runs until it is deleted; override it where the back end wants something particular."""
        return new_pod(name, **spec)

    # ------------------------------------------------------------------ what a test begins and ends with

    def setup_method(self) -> None:
        """Forget what the test before had."""
        self._made: list[Provider] = []
        self._pods: list[JsonObject] = []

    def teardown_method(self) -> None:
        """Delete the test's Pods and let go of its providers."""
        provider = self._made[-1] if self._made else None
        for pod in self._pods:
            try:
                if provider is not None:
                    provider.delete_pod(copy.deepcopy(pod))
            except Exception as error:  # noqa: BLE001 - any cause of NotFound is success
                must(is_not_found(error), f"deleting {objects.name(pod)} after the test raised {error!r}")
        for made in self._made:
            made.close()

    def provider(self, tmp_path: Path) -> Provider:
        """Return a provider that lives as long as the test."""
        config = InitConfig(NODE, NoResources(), self.config, internal_ip="192.0.2.10", state_dir=str(tmp_path))
        self._made.append(self.make(config))
        return self._made[-1]

    def created(self, provider: Provider, name: str = "one") -> JsonObject:
        """Return a Pod that ``provider`` was given."""
        pod = self.pod(name)
        self._pods.append(pod)
        provider.create_pod(copy.deepcopy(pod))
        return pod

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until ``holds()``, at most ``patience_s``."""
        end = time.monotonic() + self.patience_s
        while not holds():
            must(time.monotonic() < end, f"{what} did not happen within {self.patience_s:.0f} s")
            time.sleep(0.02)

    # ------------------------------------------------------------------ Pods

    def test_a_created_pod_is_found(self, tmp_path: Path) -> None:
        """``get_pod`` and ``get_pods`` answer what ``create_pod`` was given."""
        provider = self.provider(tmp_path)
        pod = self.created(provider)
        found = provider.get_pod("default", "one")
        must(objects.uid(found) == objects.uid(pod), f"get_pod answers another uid: {objects.metadata(found)}")
        must(_names(found) == _names(pod), f"get_pod answers other containers: {_names(found)}")
        uids = [objects.uid(each) for each in provider.get_pods()]
        must(uids.count(objects.uid(pod)) == 1, f"get_pods answers the uids {uids}, not {objects.uid(pod)} once")

    def test_what_is_not_there_is_not_found(self, tmp_path: Path) -> None:
        """An unknown Pod is ``NotFound`` to every function."""
        provider = self.provider(tmp_path)
        must_raise_not_found(lambda: provider.get_pod("default", "never"), "get_pod")
        must_raise_not_found(lambda: provider.get_pod_status("default", "never"), "get_pod_status")
        must_raise_not_found(lambda: provider.delete_pod(self.pod("never")), "delete_pod")

    def test_nothing_is_shared(self, tmp_path: Path) -> None:
        """Who changes what was given or answered changes nothing of the provider's (VK-04)."""
        provider = self.provider(tmp_path)
        given = self.pod("one")
        self._pods.append(copy.deepcopy(given))
        provider.create_pod(given)
        spoil(given)
        spoil(provider.get_pod("default", "one"))
        for each in provider.get_pods():
            spoil(each)
        provider.get_pod_status("default", "one")["phase"] = "Spoilt"
        found = provider.get_pod("default", "one")
        must("spoilt" not in objects.labels(found), "get_pod answers an object that somebody else has, too")
        must(objects.status(found).get("phase") != "Spoilt", "get_pod_status answers an object of the provider's own")
        must(_names(found) == _names(self.pod("one")), f"the containers are {_names(found)}")

    def test_a_pod_runs(self, tmp_path: Path) -> None:
        """Its phase becomes Running (or is over), with a status of each container and a start time."""
        provider = self.provider(tmp_path)
        pod = self.created(provider)
        self.until(lambda: self._phase(provider, "one") in {"Running", *TERMINAL}, "phase Running")
        status = provider.get_pod_status("default", "one")
        reported = {each["name"] for each in status.get("containerStatuses") or []}
        must(reported == set(_names(pod)), f"containerStatuses names {reported}, the Pod {set(_names(pod))}")
        must(bool(status.get("startTime")), "status.startTime is missing")

    def test_creating_a_pod_twice_makes_one(self, tmp_path: Path) -> None:
        """After a crash nobody knows whether a Pod was created: doing it again changes nothing."""
        provider = self.provider(tmp_path)
        pod = self.created(provider)
        provider.create_pod(copy.deepcopy(pod))
        uids = [objects.uid(each) for each in provider.get_pods()]
        must(uids.count(objects.uid(pod)) == 1, f"the Pod is there {uids.count(objects.uid(pod))} times")

    def test_an_updated_pod_is_answered_as_updated(self, tmp_path: Path) -> None:
        """``get_pod`` answers the labels and annotations that ``update_pod`` brought, else it is updated for ever."""
        provider = self.provider(tmp_path)
        pod = self.created(provider)
        pod["metadata"]["labels"] = {"contract": "updated"}
        pod["metadata"]["annotations"] = {"contract": "updated"}
        provider.update_pod(copy.deepcopy(pod))
        found = provider.get_pod("default", "one")
        must(objects.labels(found) == {"contract": "updated"}, f"labels are {objects.labels(found)}")
        must(objects.annotations(found) == {"contract": "updated"}, f"annotations are {objects.annotations(found)}")

    def test_a_deleted_pod_ends(self, tmp_path: Path) -> None:
        """Its phase and every container become terminal, or it is not found any more; deleting again is no error."""
        provider = self.provider(tmp_path)
        notified = self._notified(provider)
        pod = self.created(provider)
        self.until(lambda: self._phase(provider, "one") in {"Running", *TERMINAL}, "phase Running")
        provider.delete_pod(copy.deepcopy(pod))
        if isinstance(provider, PodNotifier):
            self.until(lambda: any(is_over(each) for each in notified), "a notification of the end")
        else:
            self.until(lambda: self._ended(provider, "one"), "the end of the Pod")
        try:
            provider.delete_pod(copy.deepcopy(pod))
        except Exception as error:  # noqa: BLE001 - any cause of NotFound is success
            must(is_not_found(error), f"deleting again raised {error!r}")

    def test_a_pod_may_come_back_under_its_name(self, tmp_path: Path) -> None:
        """A successor of another uid runs once the first was deleted."""
        provider = self.provider(tmp_path)
        first = self.created(provider)
        provider.delete_pod(copy.deepcopy(first))
        self.until(lambda: self._ended(provider, "one"), "the end of the first Pod")
        second = self.created(provider)
        self.until(lambda: self._phase(provider, "one") in {"Running", *TERMINAL}, "phase Running")
        found = provider.get_pod("default", "one")
        must(objects.uid(found) == objects.uid(second), "get_pod answers the Pod that was deleted")

    def test_pods_outlive_a_provider_that_says_so(self, tmp_path: Path) -> None:
        """The next provider finds the Pods of the one before, with their uids, and makes none twice."""
        if not self.survives_restarts:
            return
        provider = self.provider(tmp_path)
        pod = self.created(provider)
        provider.close()
        self._made.pop()
        provider = self.provider(tmp_path)
        uids = [objects.uid(each) for each in provider.get_pods()]
        must(uids.count(objects.uid(pod)) == 1, f"after a restart get_pods answers the uids {uids}")
        provider.create_pod(copy.deepcopy(pod))
        must(len(provider.get_pods()) == len(uids), "creating the Pod again after a restart made another")

    # ------------------------------------------------------------------ what is told

    def test_whole_pods_are_notified(self, tmp_path: Path) -> None:
        """A notification has name, namespace, uid and status: the Pod, not only what changed."""
        provider = self.provider(tmp_path)
        notified = self._notified(provider)
        if not isinstance(provider, PodNotifier):
            return
        pod = self.created(provider)
        self.until(
            lambda: any(_phase_of(each) in {"Running", *TERMINAL} for each in notified), "a notification of the run"
        )
        for each in notified:
            must(objects.key(each) == objects.key(pod), f"a notification names {objects.key(each)}")
            must(objects.uid(each) == objects.uid(pod), f"a notification has the uid {objects.uid(each)!r}")

    def test_a_node_provider_answers_for_its_node(self, tmp_path: Path) -> None:
        """``ping`` of a back end that lives returns, and ``notify_node_status`` does not block."""
        provider = self.provider(tmp_path)
        if isinstance(provider, NodeProvider):
            provider.ping()
            provider.notify_node_status(lambda _: None)

    def test_a_configured_node_can_be_scheduled_to(self, tmp_path: Path) -> None:
        """``configure_node`` returns a Node with capacity and a Ready condition, and keeps its name."""
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {}}, "spec": {}, "status": {}}
        configured = self.provider(tmp_path).configure_node(copy.deepcopy(node))
        must(objects.name(configured) == NODE, f"the Node's name became {objects.name(configured)!r}")
        capacity = objects.status(configured).get("capacity") or {}
        must({"cpu", "memory", "pods"} <= set(capacity), f"capacity names only {sorted(capacity)}")

    # ------------------------------------------------------------------ extras

    def test_logs_of_what_is_not_there_are_not_found(self, tmp_path: Path) -> None:
        """Nobody gets an empty log of a Pod or container that does not exist."""
        provider = self.provider(tmp_path)

        def read(pod: str, container: str) -> None:
            for _ in provider.get_container_logs("default", pod, container, ContainerLogOptions(tail=1)):
                pass

        try:
            read("never", "app")
        except Unsupported:
            return
        except Exception as error:  # noqa: BLE001 - any cause of NotFound is right
            must(is_not_found(error), f"logs of an unknown Pod raised {error!r}")
        else:
            must(holds=False, why="logs of an unknown Pod were answered")
        self.created(provider)
        must_raise_not_found(lambda: read("one", "never"), "get_container_logs of an unknown container")

    def test_figures_have_the_kubelets_form(self, tmp_path: Path) -> None:
        """``/stats/summary`` names node and pods; ``/metrics/resource`` is text."""
        provider = self.provider(tmp_path)
        pod = self.created(provider)
        try:
            summary, metrics = provider.get_stats_summary(), provider.get_metrics_resource()
        except Unsupported:
            return
        must(objects.dig(summary, "node", "nodeName") == NODE, f"node.nodeName is {objects.dig(summary, 'node')}")
        named = {objects.dig(each, "podRef", "name") for each in summary.get("pods") or []}
        must(objects.name(pod) in named, f"pods names {named}, not {objects.name(pod)}")
        must(metrics.endswith("\n") or not metrics, "the metrics do not end with a newline")

    # ------------------------------------------------------------------ parts of the above

    def _notified(self, provider: Provider) -> list[JsonObject]:
        notified: list[JsonObject] = []
        if isinstance(provider, PodNotifier):
            provider.notify_pods(notified.append)
        return notified

    def _phase(self, provider: Provider, name: str) -> str:
        return str(provider.get_pod_status("default", name).get("phase") or "")

    def _ended(self, provider: Provider, name: str) -> bool:
        try:
            return is_over({"status": provider.get_pod_status("default", name)})
        except NotFound:
            return True


def new_pod(name: str, **spec: Any) -> JsonObject:
    """Return a Pod of one container ``app`` that runs until it is deleted; ``spec`` overrides fields."""
    app = {"name": "app", "image": "pause", "command": ["sleep", "infinity"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "default", "name": name, "uid": str(uuid.uuid4()), "labels": {}, "annotations": {}},
        "spec": {"nodeName": NODE, "restartPolicy": "Always", "containers": [app], **spec},
        "status": {"phase": "Pending"},
    }


def is_over(pod: JsonObject) -> bool:
    """Return whether phase and every container of ``pod`` are terminal."""
    containers = objects.status(pod).get("containerStatuses") or []
    return _phase_of(pod) in TERMINAL and all("terminated" in (each.get("state") or {}) for each in containers)


def must(holds: bool, why: str) -> None:  # noqa: FBT001 - reads as assert does
    """Fail with ``why`` unless ``holds``; asserts outside test files would tell less."""
    if not holds:
        raise AssertionError(why)


def must_raise_not_found(call: Callable[[], object], what: str) -> None:
    """Fail unless ``call`` raises ``NotFound``, or something caused by it."""
    try:
        answer = call()
    except Exception as error:  # noqa: BLE001 - which one it is, is the question
        must(is_not_found(error), f"{what} raised {error!r} instead of NotFound")
        return
    must(holds=False, why=f"{what} answered {answer!r} instead of raising NotFound")


def spoil(pod: JsonObject) -> None:
    """Change ``pod`` all over."""
    objects.metadata(pod).setdefault("labels", {})["spoilt"] = "yes"
    pod["spec"]["containers"].clear()
    pod.setdefault("status", {})["phase"] = "Spoilt"


def _names(pod: JsonObject) -> list[str]:
    return [each["name"] for each in objects.containers(pod)]


def _phase_of(pod: JsonObject) -> str:
    return str(objects.status(pod).get("phase") or "")
