"""Runs a workload of kube-scheduler's scheduler_perf as upstream's YAML describes it, against any API server.

    python -m tests.benchmarks.deciding.scheduler_perf KUBECONFIG FILE SchedulingBasic 500Nodes

FILE is test/integration/scheduler_perf/misc/performance-config.yaml of Kubernetes 1.32, in its folder. The scheduler
runs already. Measured is as upstream does: a watch sees pods get their nodes, samples are taken each second, the first
one and those without a pod are left out. Operations for dynamic resources, and such that change objects (updateAny),
are refused. Source: scheduler_perf.go.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.errors import AlreadyExists, NotFound
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import KINDS, NAMESPACE, NODE, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.informer import Informer

_THREADS = 16
_SAMPLE_S = 1.0
_PATIENCE_S = 600.0


class Workload:
    """One workload at work.

    Args:
        client: reaches the API server with all rights.
        file: the configuration it is from; templates are named relative to it.
        case: its ``workloadTemplate`` and more.
        params: the workload's numbers.
    """

    def __init__(self, client: ApiClient, file: Path, case: JsonObject, params: dict[str, int]) -> None:
        self._client, self._folder, self._case, self._params = client, file.parent, case, params
        self._numbers, self._run = itertools.count(), uuid.uuid4().hex[:6]
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._made: dict[str, int] = {}
        self._placed: dict[str, set[str]] = {}
        self.samples: list[float] = []
        self._informer = Informer(client, POD, transform=_node_only)
        self._informer.add_handler(self._on_pod)

    def run(self) -> None:
        """Do all operations in their order."""
        self._informer.start()
        self._informer.wait_synced(_PATIENCE_S)
        try:
            for index, operation in enumerate(self._case["workloadTemplate"]):
                code = operation["opcode"]
                known: dict[str, Callable[[JsonObject, int], None]] = {
                    "createNodes": self._create_nodes, "createNamespaces": self._create_namespaces,
                    "createPods": self._create_pods, "createPodSets": self._create_pod_sets, "barrier": self._barrier,
                    "sleep": self._sleep, "churn": self._churn, "deletePods": self._delete_pods,
                    "createAny": self._create_any,
                }  # fmt: skip
                if code not in known:
                    raise SystemExit(f"{code} is not understood; there are {', '.join(known)}")
                known[code](operation, index)
        finally:
            self._ended.set()
            for thread in self._threads:
                thread.join(_PATIENCE_S)
            self._informer.stop()

    def _on_pod(self, _old: JsonObject | None, new: JsonObject | None) -> None:
        if new is not None and objects.spec(new).get("nodeName"):
            with self._lock:
                self._placed.setdefault(objects.namespace(new), set()).add(objects.uid(new))

    def _count(self, told: JsonObject, name: str = "count") -> int:
        if f"{name}Param" in told:
            return int(self._params[told[f"{name}Param"].lstrip("$")])
        return int(told.get(name) or 0)

    def _template(self, path: str) -> JsonObject:
        found: JsonObject = yaml.safe_load((self._folder / path).read_text())
        return found

    def _all(self, what: Callable[[int], Any], count: int) -> None:
        with ThreadPoolExecutor(_THREADS) as threads:
            for _ in threads.map(what, range(count)):
                pass

    def _create_nodes(self, told: JsonObject, _index: int) -> None:
        template = self._template(told.get("nodeTemplatePath") or "../templates/node-default.yaml")
        labels: JsonObject = told.get("labelNodePrepareStrategy") or {}
        unique = (told.get("uniqueNodeLabelStrategy") or {}).get("labelKey")

        def one(number: int) -> None:
            node = yaml.safe_load(yaml.safe_dump(template))
            name = f"{node['metadata'].pop('generateName', '')}{self._run}-{next(self._numbers):05}"
            own = node["metadata"].setdefault("labels", {})
            node["metadata"].setdefault("name", name)
            if labels:
                own[labels["labelKey"]] = labels["labelValues"][number % len(labels["labelValues"])]
            if unique:
                own[unique] = name
            made = self._client.create(NODE, node)
            if not objects.status(made).get("conditions"):
                body = {"status": {**node["status"], "allocatable": node["status"]["capacity"]}}
                self._client.patch(NODE, objects.name(made), "", body, subresource="status")

        self._all(one, self._count(told))

    def _create_namespaces(self, told: JsonObject, _index: int) -> None:
        template = self._template(told["namespaceTemplatePath"]) if told.get("namespaceTemplatePath") else {}
        for number in range(self._count(told)):
            meta = {**(template.get("metadata") or {}), "name": f"{told['prefix']}-{number}"}
            meta.pop("generateName", None)
            with suppress(AlreadyExists):
                self._client.create(NAMESPACE, {"metadata": meta})

    def _create_pods(self, told: JsonObject, index: int) -> None:
        space = str(told.get("namespace") or f"namespace-{index}")
        template = self._template(told.get("podTemplatePath") or self._case["defaultPodTemplatePath"])
        with suppress(AlreadyExists):
            self._client.create(NAMESPACE, {"metadata": {"name": space}})
        count = self._count(told)
        with self._lock:
            there = len(self._placed.get(space, ()))  # also those of an earlier run on this server
            self._made[space] = max(self._made.get(space, 0), there) + count
        sampling = threading.Thread(target=self._sample, args=(space,))
        if told.get("collectMetrics"):
            sampling.start()
        self._all(lambda _: self._client.create(POD, _in(template, space)), count)
        if not told.get("skipWaitToCompletion"):
            self._wait(space)
        if told.get("collectMetrics"):
            sampling.join(_PATIENCE_S)

    def _create_pod_sets(self, told: JsonObject, index: int) -> None:
        inner = told["createPodsOp"]
        for number in range(self._count(told)):
            self._create_pods({**inner, "namespace": f"{told['namespacePrefix']}-{number}"}, index)

    def _sample(self, space: str) -> None:
        """Take samples until all pods of the namespace have a node."""
        before, begun = self._seen(space), time.monotonic()
        while self._seen(space) < self._made[space] and not self._ended.is_set():
            time.sleep(_SAMPLE_S)
            now, at = self._seen(space), time.monotonic()
            if now > before:
                self.samples.append((now - before) / (at - begun))
            before, begun = now, at

    def _seen(self, space: str) -> int:
        with self._lock:
            return len(self._placed.get(space, ()))

    def _wait(self, space: str) -> None:
        end = time.monotonic() + _PATIENCE_S
        while self._seen(space) < self._made[space]:
            if time.monotonic() > end:
                raise SystemExit(f"{space}: only {self._seen(space)} of {self._made[space]} pods have a node")
            time.sleep(0.05)

    def _barrier(self, told: JsonObject, _index: int) -> None:
        if told.get("stageRequirement") != "Attempted":
            for space in told.get("namespaces") or list(self._made):
                self._wait(space)

    def _sleep(self, told: JsonObject, _index: int) -> None:
        text = str(told["duration"])
        time.sleep(float(text.removesuffix("ms")) / 1000 if text.endswith("ms") else float(text.removesuffix("s")))

    def _delete_pods(self, told: JsonObject, _index: int) -> None:
        rate = float(told.get("deletePodsPerSecond") or 0)
        names = [objects.name(one) for one in self._client.list(POD, told["namespace"]).items]

        def delete() -> None:
            for name in names:
                if self._ended.wait(1 / rate if rate else 0):
                    return
                with suppress(NotFound):
                    self._client.delete(POD, name, told["namespace"], grace_s=0)

        self._beside(delete, wait=not told.get("skipWaitToCompletion"))

    def _churn(self, told: JsonObject, index: int) -> None:
        templates = [self._template(path) for path in told["templatePaths"]]
        space = f"namespace-{index}"
        with suppress(AlreadyExists):
            self._client.create(NAMESPACE, {"metadata": {"name": space}})
        interval = int(told.get("intervalMilliseconds") or 500) / 1000

        def churn() -> None:
            made: list[tuple[Kind, str]] = []
            limit = int(told.get("number") or 0)
            for number in itertools.count():
                if self._ended.wait(interval) or (limit and told["mode"] == "create" and number >= limit):
                    return
                for kind, name in made if told["mode"] == "recreate" else ():
                    with suppress(NotFound):
                        self._client.delete(kind, name, space if kind.namespaced else "", grace_s=0)
                made = [self._put(template, space) for template in templates]

        self._beside(churn, wait=False)

    def _create_any(self, told: JsonObject, index: int) -> None:
        space = str(told.get("namespace") or f"namespace-{index}")
        for _ in range(self._count(told) or 1):
            self._put(self._template(told["templatePath"]), space)

    def _put(self, template: JsonObject, space: str) -> tuple[Kind, str]:
        kind = KINDS.by_api_version(template["apiVersion"], template["kind"])
        if kind is None:
            raise SystemExit(f"{template['kind']} is not served here")
        made = self._client.create(kind, _in(template, space) if kind.namespaced else template)
        return kind, objects.name(made)

    def _beside(self, what: Callable[[], None], *, wait: bool) -> None:
        thread = threading.Thread(target=what, daemon=True)
        thread.start()
        if wait:
            thread.join(_PATIENCE_S)
        else:
            self._threads.append(thread)


def _in(template: JsonObject, space: str) -> JsonObject:
    return {**template, "metadata": {**objects.metadata(template), "namespace": space}}


def _node_only(pod: JsonObject) -> JsonObject:
    return {"metadata": pod["metadata"], "spec": {"nodeName": objects.spec(pod).get("nodeName")}}


def chosen(file: Path, case: str, workload: str) -> Iterator[tuple[JsonObject, dict[str, int]]]:
    """Yield the case and the numbers of the workload of these names."""
    for one in yaml.safe_load(file.read_text()):
        for each in one["workloads"] if one["name"] == case else ():
            if each["name"] == workload:
                yield one, each["params"]


def main() -> None:
    """Run one workload, and print how many pods got a node in a second."""
    config, file, case, name = sys.argv[1:]
    found = next(chosen(Path(file), case, name), None)
    if found is None:
        raise SystemExit(f"{file} has no workload {name} of {case}")
    workload = Workload(ApiClient.from_kubeconfig(config), Path(file), *found)
    workload.run()
    kept = workload.samples[1:] or workload.samples
    print(f"{case}/{name}: {sum(kept) / len(kept):.1f} pods/s on average of {len(kept)} s, best {max(kept):.1f}")


if __name__ == "__main__":
    main()
