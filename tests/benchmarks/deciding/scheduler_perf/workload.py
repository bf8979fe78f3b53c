"""One workload at work: its operations in their order, as upstream's ``runWorkload`` does them.

Left out is what a scheduler of another process cannot be asked for (its own metrics). Pods with a priority get a class
of that value, since API servers refuse the bare number, and no pod has a token, whose volume an update would take away:
for upstream's test both admissions are switched off.
"""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TypeVar

from minik8s_modules.api import objects
from minik8s_modules.api.errors import AlreadyExists, NotFound, StatusError
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import KINDS, NAMESPACE, NODE, POD, PRIORITY_CLASS
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.interface import Api
from tests.benchmarks.deciding.scheduler_perf import storage
from tests.benchmarks.deciding.scheduler_perf.making import create
from tests.benchmarks.deciding.scheduler_perf.operations import VOLUMES, NotUnderstood, PerfCase, PerfOperation
from tests.benchmarks.deciding.scheduler_perf.seen import PATIENCE_S, Sampler, SeenPods
from tests.benchmarks.deciding.scheduler_perf.templates import BASE_NODE, BASE_POD, Template, node, template, within

_T = TypeVar("_T")
_THREADS = 16
_CHURN_S, _POLL_S = 0.5, 0.05


class Workload:
    """A case at work.

    Args:
        client: reaches the API server with all rights.
        case: what is to be done.
        patience_s: how long pods may take to get nodes, and what churns to end.
        sleep: passes the time of a sleep, in seconds.
    """

    def __init__(
        self,
        client: Api,
        case: PerfCase,
        patience_s: float = PATIENCE_S,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._client, self._case, self._patience_s, self._sleep = client, case, patience_s, sleep
        self._run, self._numbers = uuid.uuid4().hex[:6], itertools.count()
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failures: list[str] = []
        self._expected: Counter[str] = Counter()
        """Pods by namespace that a barrier waits for."""
        self._sampler: Sampler | None = None
        self.seen = SeenPods(client)
        self.samplers: list[Sampler] = []

    def run(self) -> None:
        """Do all operations in their order.

        Raises:
            NotUnderstood: an object that is to be made is of a kind that is not known.
            TimeoutError: pods did not get nodes in time.
            RuntimeError: something that was done beside failed.
        """
        self.seen.start()
        does: dict[str, Callable[[PerfOperation], object]] = {
            "createNodes": self._create_nodes, "createNamespaces": self._create_namespaces,
            "createPods": self._create_pods, "createPodSets": self._create_pod_sets,
            "deletePods": self._delete_pods, "churn": self._churn,
            "createAny": self._create_any, "updateAny": self._update_any,
            "barrier": self._barrier, "sleep": lambda one: self._sleep(one.fields["duration"]),
            "startCollectingMetrics": self._start_sampling, "stopCollectingMetrics": lambda _: self._stop_sampling(),
        }  # fmt: skip
        try:
            self._create_classes()
            for operation in self._case.operations:
                does[operation.code](operation)
        finally:
            self._ended.set()
            self._stop_sampling()
            for thread in self._threads:
                thread.join(self._patience_s)
            self.seen.stop()
        if self._failures:
            raise RuntimeError("; ".join(self._failures[:3]))

    def _template(self, path: str) -> Template:
        return template(self._case.folder / path)

    def _all(self, what: Callable[[int], object], count: int) -> None:
        with ThreadPoolExecutor(_THREADS) as threads:
            for _ in threads.map(what, range(count)):
                pass

    def _create_classes(self) -> None:
        """Make the classes of priorities first: admission may know a new one a moment later."""
        for path in self._case.templates():
            made = self._template(path)(0, 1)
            value = objects.spec(made).get("priority")
            if made.get("kind") == POD.kind and value is not None:
                name = objects.spec(self._classed(made))["priorityClassName"]
                with suppress(AlreadyExists):
                    self._client.create(PRIORITY_CLASS, {"metadata": {"name": name}, "value": value})

    # --- nodes and namespaces ---------------------------------------------------------------------

    def _create_nodes(self, asked: PerfOperation) -> None:
        result, path = asked.fields, asked.fields.get("nodeTemplatePath")
        make: Template = self._template(path) if path else lambda _index, _count: BASE_NODE
        dealt = result.get("labelNodePrepareStrategy") or {}
        unique = (result.get("uniqueNodeLabelStrategy") or {}).get("labelKey")
        room = result.get("nodeAllocatableStrategy") or {}

        def one(index: int) -> None:
            labels = {dealt["labelKey"]: dealt["labelValues"][index % len(dealt["labelValues"])]} if dealt else {}
            if unique:
                labels[unique] = str(uuid.uuid4())
            name = f"node-{asked.number}-{self._run}-{next(self._numbers):05}"
            made = node(make(index, asked.times), name, labels)
            self._create_node(storage.with_allocatable(made, room.get("nodeAllocatable") or {}))
            if room:
                storage.create_csi_node(self._client, objects.name(made), room)

        self._all(one, asked.times)

    def _create_node(self, made: JsonObject) -> None:
        live = create(self._client, NODE, made)
        if not objects.status(live).get("conditions"):  # a server may keep a status from who creates the object
            self._client.patch(NODE, objects.name(live), "", {"status": made["status"]}, subresource="status")

    def _create_namespaces(self, asked: PerfOperation) -> None:
        path = asked.fields.get("namespaceTemplatePath")
        base = objects.metadata(self._template(path)(0, 1)) if path else {}
        for number in range(asked.times):
            name = f"{asked.fields['prefix']}-{number}"
            self._namespace(name, {key: value for key, value in base.items() if key != "generateName"})

    def _namespace(self, name: str, meta: JsonObject | None = None) -> None:
        with suppress(AlreadyExists):
            self._client.create(NAMESPACE, {"metadata": {**(meta or {}), "name": name}})
        self._expected.setdefault(name, 0)

    # --- pods -------------------------------------------------------------------------------------

    def _create_pods(self, asked: PerfOperation) -> None:
        result, space, count = asked.fields, asked.namespace, asked.times
        make = self._pods(result.get("podTemplatePath") or self._case.pod_template, result, space)
        self._namespace(space)
        if result.get("collectMetrics"):
            self._sample((space,), {})
        self._all(lambda index: create(self._client, POD, make(index, count)), count)
        if result.get("skipWaitToCompletion"):
            self._expected[space] += count
        else:
            self._wait(space, count, {})
        if result.get("collectMetrics"):
            self._stop_sampling()

    def _pods(self, path: str, fields: JsonObject, space: str) -> Template:
        """Return what makes the pods of a template, each with a claim of its own where the operation says so."""
        make: Template = self._template(path) if path else lambda _index, _count: BASE_POD
        paths = [fields.get(name) for name in VOLUMES]
        volume, claim = (self._template(one) if one else None for one in paths)

        def one(index: int, count: int) -> JsonObject:
            made = within(self._classed(make(index, count)), space)
            if volume is None or claim is None:
                return made
            pair = storage.bound_pair(volume(index, count), claim(index, count), space, index)
            storage.create_pair(self._client, *pair)
            return storage.with_claim(made, pair[1])

        return one

    def _create_pod_sets(self, asked: PerfOperation) -> None:
        for number in range(asked.times):
            space = f"{asked.fields['namespacePrefix']}-{number}"
            fields = {**asked.fields["createPodsOp"], "namespace": space}
            self._create_pods(PerfOperation(asked.number, "createPods", fields))

    def _classed(self, pod: JsonObject) -> JsonObject:
        """Return a pod as a server with all its admission takes it, also for an update."""
        if pod.get("kind") != POD.kind:
            return pod
        spec = {**objects.spec(pod), "automountServiceAccountToken": False}
        if spec.get("priority") is not None and not spec.get("priorityClassName"):
            spec["priorityClassName"] = f"priority-{spec['priority']}"
        return {**pod, "spec": spec}

    def _wait(self, space: str, count: int, labels: JsonObject, *, attempted: bool = False) -> None:
        end = time.monotonic() + self._patience_s
        while (there := self.seen.count(space, labels, attempted=attempted)) < count:
            if time.monotonic() > end:
                what = "were tried" if attempted else "have a node"
                raise TimeoutError(f"{self._case.name}: only {there} of {count} pods of {space} {what}")
            time.sleep(_POLL_S)

    def _barrier(self, asked: PerfOperation) -> None:
        result = asked.fields
        attempted, named = result.get("stageRequirement") == "Attempted", result.get("namespaces") or []
        if unknown := set(named) - self._expected.keys():
            raise NotUnderstood(
                f"operation {asked.number} (barrier): no namespace {', '.join(sorted(unknown))} was made"
            )
        for space in named or list(self._expected):
            self._wait(space, self._expected[space], result.get("labelSelector") or {}, attempted=attempted)
        for space in () if attempted else named or list(self._expected):
            del self._expected[space]

    def _delete_pods(self, asked: PerfOperation) -> None:
        labels = ",".join(f"{name}={value}" for name, value in (asked.fields.get("labelSelector") or {}).items())
        pods = [objects.name(one) for one in self._client.list(POD, asked.namespace, labels).items]
        rate = float(asked.fields.get("deletePodsPerSecond") or 0)

        def delete() -> None:
            for name in self._paced(pods, 1 / rate if rate else 0):
                with suppress(NotFound):
                    self._client.delete(POD, name, asked.namespace)

        self._beside(delete, wait=not asked.fields.get("skipWaitToCompletion"))

    # --- other objects ----------------------------------------------------------------------------

    def _churn(self, asked: PerfOperation) -> None:
        makes = [self._template(path) for path in asked.fields["templatePaths"]]
        number, space = int(asked.fields.get("number") or 0), asked.namespace
        self._namespace(space)
        recreates, made = asked.fields["mode"] == "recreate", dict[tuple[int, int], tuple[Kind, str]]()
        turns: Iterable[int] = itertools.count() if recreates or not number else range(number)

        def turned(turn: int, which: int, make: Template) -> None:
            slot = (which, turn % number if recreates else 0)
            kind, name = made.pop(slot, (None, ""))
            if kind is not None and recreates:
                with suppress(NotFound):
                    self._client.delete(kind, name, space if kind.namespaced else "")
                return
            made[slot] = self._put(make(0, 1), space)

        def churn() -> None:
            for turn in self._paced(turns, int(asked.fields.get("intervalMilliseconds") or 0) / 1000 or _CHURN_S):
                for which, make in enumerate(makes):
                    turned(turn, which, make)

        self._beside(churn, wait=False)

    def _create_any(self, asked: PerfOperation) -> None:
        make, space, count = (
            self._template(asked.fields["templatePath"]),
            asked.fields.get("namespace"),
            asked.times or 1,
        )
        if space:
            self._namespace(space)
        for index in range(count):
            self._put(make(index, count), space)

    def _update_any(self, asked: PerfOperation) -> None:
        result, count = asked.fields, asked.times or 1
        make, rate = self._template(result["templatePath"]), float(result.get("updatePerSecond") or 0)
        for index in self._paced(range(count), 1 / rate if rate else 0):
            kind, made = self._placed(self._classed(make(index, count)), result.get("namespace"))
            self._client.update(kind, made, subresource="/".join(result.get("subresources") or []))
            if made.get("status"):  # upstream also empties the status where the template has none
                self._client.update(kind, made, subresource="status")

    def _put(self, template: JsonObject, space: str | None) -> tuple[Kind, str]:
        kind, made = self._placed(self._classed(template), space)
        if kind == NODE:
            named = node(
                made, f"{objects.metadata(made).get('generateName', 'node-')}{self._run}-{next(self._numbers):05}", {}
            )
            self._create_node(named)
            return kind, objects.name(named)
        return kind, objects.name(create(self._client, kind, made))

    def _placed(self, made: JsonObject, space: str | None) -> tuple[Kind, JsonObject]:
        kind = KINDS.by_api_version(str(made.get("apiVersion")), str(made.get("kind")))
        if kind is None:
            raise NotUnderstood(f"{made.get('apiVersion')} {made.get('kind')} is no kind that is known here")
        return kind, within(made, space) if kind.namespaced and space else made

    # --- samples ----------------------------------------------------------------------------------

    def _start_sampling(self, asked: PerfOperation) -> None:
        self._sample(tuple(asked.fields["namespaces"]), asked.fields.get("labelSelector") or {})

    def _sample(self, namespaces: tuple[str, ...], labels: JsonObject) -> None:
        if self._sampler is not None:
            raise NotUnderstood("metrics are collected already: two collections overlap")
        self._sampler = self.seen.sampled(Sampler(namespaces, labels))
        self.samplers.append(self._sampler)
        self._sampler.start()

    def _stop_sampling(self) -> None:
        if self._sampler is not None:
            self._sampler.stop()
            self._sampler = None

    # --- beside -----------------------------------------------------------------------------------

    def _paced(self, what: Iterable[_T], interval_s: float) -> Iterable[_T]:
        """Yield one after the other until the workload ends, with a pause before each."""
        return itertools.takewhile(lambda _: not self._ended.wait(interval_s), what)

    def _beside(self, what: Callable[[], None], *, wait: bool) -> None:
        if wait:
            what()
            return
        thread = threading.Thread(target=partial(self._guarded, what), daemon=True)
        thread.start()
        self._threads.append(thread)

    def _guarded(self, what: Callable[[], None]) -> None:
        try:
            what()
        except (StatusError, TemporaryError, NotUnderstood) as error:
            self._failures.append(str(error))
