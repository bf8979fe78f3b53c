"""The provider: a thread passes again and again, at once where there is something to say, else in growing pauses.

What Pods there shall be stands in the cluster, what jobs there are in Slurm, and what was declared on the login
machine: nothing is kept here, so a restarted provider is told by its first pass which jobs it has.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Iterator

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.backoff import Backoff
from minik8s_modules.base.clock import Clock, SystemClock, rfc3339
from minik8s_modules.virtual.errors import InvalidInput, NotFound, ProviderError
from minik8s_modules.virtual.provider import ContainerLogOptions, InitConfig, NodeCallback, PodCallback, Provider
from minik8s_modules.virtual.providers.reaching import limited
from minik8s_modules.virtual.providers.slurm import entries, settings, statuses
from minik8s_modules.virtual.providers.slurm.asking import Asking
from minik8s_modules.virtual.providers.slurm.desk import Desk, Order
from minik8s_modules.virtual.providers.slurm.figures import figures_of
from minik8s_modules.virtual.providers.slurm.login import AnsibleLogin, Login, LoginFault, refuse_options
from minik8s_modules.virtual.providers.slurm.partition_node import PartitionNode
from minik8s_modules.virtual.providers.slurm.results import Copies, has_same_wish

log = logging.getLogger(__name__)

AWAY = Backoff(initial_s=1.0, maximum_s=60.0)
FIRST_LOOK_S = 30.0
SHORTEST_S, GROWTH = 1.0, 1.5
PARTITION_S = 30.0
CLEANUP_S = 300.0
LAST_PASS_S = 15.0  # what is not said then is found by the next process: the cluster has no such Pod any more
MISSING = "CreateContainerConfigError"
AWAITS = "AwaitsDependency"


class SlurmProvider(Provider):
    """See the top of this file; thread-safe."""

    def __init__(
        self, config: InitConfig, login: Callable[[settings.Settings, str], Login] = AnsibleLogin,
        clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self._config, self._settings = config, settings.read(config)
        self._asking, self._clock = Asking(self._settings, config.resources), clock or SystemClock()
        self._login = login(self._settings, config.state_dir)
        self._lock = threading.RLock()
        self._desk, self._copies = Desk(), Copies(config.resources)
        self._pods: dict[str, JsonObject] = {}
        self._leaving: dict[str, JsonObject] = {}
        self._lacking: dict[str, str] = {}
        self._notify: PodCallback | None = None
        self._node, self._folder = PartitionNode(self._settings, self._now), ""
        self._is_compared = False
        """``get_pods`` is asked once the cluster's Pods are known: before, all would be strangers."""
        self._wake, self._stop, self._looked = threading.Event(), threading.Event(), threading.Event()
        self._figures = figures_of(config.metrics).with_node(config.node_name, self._desk.states)
        self._thread = threading.Thread(target=self._run, name="slurm-passes", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ Pods

    def create_pod(self, pod: JsonObject) -> None:
        """Have a job submitted; the next pass does it."""
        uid = objects.uid(pod)
        asked, missing = self._asking.job_of(pod)
        with self._lock:
            if uid in self._pods:
                return
            self._pods[uid] = copy.deepcopy(pod)
            if asked is not None:
                self._desk.want(uid, asked.entry, asked.values)
            else:
                self._lacking[uid] = missing
            self._renew(uid)
        self._tell(uid)
        self._wake.set()

    remarks = staticmethod(entries.remarks)

    def _look_for_the_lacking(self) -> None:
        """Submit what has got its ConfigMaps and Secrets meanwhile."""
        with self._lock:
            pods = [copy.deepcopy(self._pods[uid]) for uid in self._lacking]
        for pod in pods:
            (asked, why), uid = self._asking.job_among_many(pod), objects.uid(pod)
            with self._lock:
                if self._lacking.pop(uid, None) is None:
                    continue
                if asked is not None:
                    self._desk.want(uid, asked.entry, asked.values)
                else:
                    self._lacking[uid] = why
                differs = self._renew(uid)
            if differs:
                self._tell(uid)

    def update_pod(self, pod: JsonObject) -> None:
        """Take over labels and annotations; what a job has been submitted with stays as it is.

        Raises:
            InvalidInput: the job would be another one.
        """
        uid = objects.uid(pod)
        try:
            asked, _ = self._asking.job_of(pod)
        except InvalidInput as error:
            with self._lock:
                if uid not in self._pods or objects.containers(self._pods[uid]):
                    raise
            log.warning("slurm: the job of %s goes on; it would be refused by now: %s", objects.key(pod), error)
            asked = None  # it was submitted before an upgrade
        with self._lock:
            known, wanted = self._pods.get(uid), self._desk.wanted.get(uid)
            if known is None:
                raise NotFound(f"no job of the Pod {objects.key(pod)} is known")
            if asked is None:
                pass  # what it was made of has gone, or is refused by now; the job has it
            elif wanted is None or wanted.entry is None:  # found after a restart: now it is known what it was made of
                self._lacking.pop(uid, None)
                self._desk.want(uid, asked.entry, asked.values)
            elif entries.is_another((known, wanted.entry), (pod, asked.entry)):
                raise InvalidInput("a job that was submitted cannot be changed: delete the Pod and create it again")
            self._pods[uid] = {**copy.deepcopy(pod), "status": known["status"]}
            if differs := self._copies.asks_anew(known, pod) or not objects.containers(known):
                self._renew(uid)  # what the job of one that was found did meanwhile was heard by nobody
        if differs:
            self._tell(uid)
            self._wake.set()

    def delete_pod(self, pod: JsonObject) -> None:
        """Have the job cancelled; the next pass does it, and tells the end."""
        self._looked.wait(FIRST_LOOK_S)
        with self._lock:
            uid = objects.uid(pod) or objects.uid(self._found(objects.key(pod)))
            if uid not in self._pods:
                if uid in self._leaving:
                    return
                raise NotFound(f"no job of the Pod {objects.key(pod)} is known")
            self._leaving[uid] = self._pods.pop(uid)
            self._lacking.pop(uid, None)
            self._desk.drop(uid)
            self._copies.forget(uid)
        self._wake.set()

    def get_pod(self, namespace: str, name: str) -> JsonObject:
        """Return a copy of the Pod."""
        self._looked.wait(FIRST_LOOK_S)
        with self._lock:
            return copy.deepcopy(self._found(Key(namespace, name)))

    def get_pod_status(self, namespace: str, name: str) -> JsonObject:
        """Return a copy of its status."""
        return objects.status(self.get_pod(namespace, name))

    def get_pods(self) -> list[JsonObject]:
        """Return copies of all Pods, also of those whose jobs were found after a restart."""
        self._looked.wait(FIRST_LOOK_S)
        with self._lock:
            self._is_compared = True
            return copy.deepcopy([*self._pods.values()])

    def notify_pods(self, notify: PodCallback) -> None:
        """Tell ``notify`` of every change from now on."""
        self._notify = notify

    # ------------------------------------------------------------------ the node

    def ping(self) -> None:
        """Return while this process follows its jobs, also where Slurm is away.

        A node that is not ready loses its Pods after some minutes, and their jobs would be cancelled: what is away is
        told by the node's condition ``SlurmUnavailable`` instead.
        """
        if not self._thread.is_alive():
            raise ProviderError("the thread that follows jobs has ended; its traceback is in the log")

    def notify_node_status(self, notify: NodeCallback) -> None:
        """Tell ``notify`` when the partition's nodes change, or Slurm does not answer."""
        self._node.notify(notify)
        self._wake.set()  # what became known since the node was configured is told now

    def configure_node(self, node: JsonObject) -> JsonObject:
        """Give the node what its partition has; waits a while for Slurm's first answer."""
        self._looked.wait(FIRST_LOOK_S)
        return self._node.configured(node)

    def get_container_logs(
        self, namespace: str, pod: str, container: str, options: ContainerLogOptions
    ) -> Iterator[bytes]:
        """Return what the job has printed, output and errors in the order in which they came."""
        self._looked.wait(FIRST_LOOK_S)
        with self._lock:
            found = self._found(Key(namespace, pod))
            names = {each["name"] for each in objects.containers(found)}
            if names and container not in names:
                raise NotFound(f"pod {namespace}/{pod} has no container {container!r}")
            uid = objects.uid(found)
        refuse_options(options, f"pod {namespace}/{pod}")
        path = f"{self._folder}/jobs/{uid}/output"
        told = self._login.read(path, options.tail, (lambda: self._is_live(uid)) if options.follow else None)
        return limited(told, options.limit_bytes)

    def _is_live(self, uid: str) -> bool:
        with self._lock:
            pod = self._pods.get(uid)
            return pod is not None and objects.status(pod).get("phase") not in {"Succeeded", "Failed"}

    def close(self) -> None:
        """End the thread and the connection once what was asked for is said, if that is quick; jobs go on."""
        end_s = self._clock.monotonic() + LAST_PASS_S
        while self._owes() and self._clock.monotonic() < end_s:
            self._clock.wait(self._stop, 0.05)
        self._stop.set()
        self._wake.set()
        self._login.close()
        self._thread.join(FIRST_LOOK_S)
        self._figures.remove(self._config.node_name)

    def _owes(self) -> bool:
        with self._lock:
            return not self._node.is_failing and (bool(self._leaving) or self._desk.is_busy(self._clock.monotonic()))

    # ------------------------------------------------------------------ passes

    def _run(self) -> None:
        pause_s, failures = 0.0, 0
        cleaned_s = self._clock.monotonic()
        asked_partition_s = cleaned_s - PARTITION_S
        while not self._stop.is_set():
            self._clock.wait(self._wake, pause_s)
            self._wake.clear()
            if self._stop.is_set():
                return
            now_s = self._clock.monotonic()
            about_partition = now_s - asked_partition_s >= PARTITION_S or bool(failures)
            try:
                self._look_for_the_lacking()
                moved = self.step(about_partition=about_partition)
                if now_s - cleaned_s >= CLEANUP_S and self._is_compared:
                    cleaned_s = now_s
                    self._clean_up()
            except LoginFault as error:
                failures += 1
                pause_s = AWAY.delay_s(failures)
                self._say_trouble(str(error))
            except Exception as error:  # the loop's edge
                log.exception("slurm")
                failures += 1
                pause_s = AWAY.delay_s(failures)
                self._say_trouble(f"{type(error).__name__}: {error}")
            else:
                failures = 0
                asked_partition_s = now_s if about_partition else asked_partition_s
                pause_s = self._pause_s(0.0 if moved else max(pause_s, SHORTEST_S))
            self._node.tell()

    def _pause_s(self, before_s: float) -> float:
        now_s = self._clock.monotonic()
        with self._lock:
            if self._desk.is_busy(now_s):
                return 0.0
            tries = (self._desk.next_try_s(now_s), self._copies.next_try_s(self._ended(), now_s))
        pause_s = min(SHORTEST_S if not before_s else before_s * GROWTH, self._desk.quiet_s(self._settings.period_s))
        return max(0.05, min([pause_s, *(again_s for again_s in tries if again_s is not None)]))

    def step(self, *, about_partition: bool) -> bool:
        """Make one pass; return whether anything changed, or is about to.

        Raises:
            LoginFault: nothing is known.
        """
        with self._lock:
            order = self._desk.order(self._clock.monotonic())
            options = self._options(order, about_partition=about_partition)
        with self._figures.a_pass(self._config.node_name, self._clock):
            result = self._login.call(options)
        with self._lock:
            changed = self._take(order, result)
            gone = [uid for uid in self._leaving if self._is_gone(uid, order, result)]
            leaving = [self._leaving.pop(uid) for uid in gone]
            ended = [{**pod, "status": statuses.cancelled(pod, self._now())} for pod in leaving]
        if self._desk.has_looked:
            self._looked.set()
        changed += self._copy_results(result.get("result_files") or {})
        for uid in changed:
            self._tell(uid)
        for pod in ended:
            self._send(pod)
        return bool(changed or gone or result["due"] or result["steps"])

    def _copy_results(self, told: JsonObject) -> list[str]:
        """Copy the files that the login machine told; return the uids of Pods whose status is another now."""
        with self._lock:
            pods = [copy.deepcopy(self._pods[uid]) for uid in told if uid in self._pods]
        changed = []
        for pod in pods:
            uid = objects.uid(pod)
            outcome = self._copies.copy(pod, told[uid], self._clock.monotonic())
            self._figures.copied(self._config.node_name, outcome)
            with self._lock:
                if uid in self._pods and has_same_wish(pod, self._pods[uid]):
                    self._copies.note(uid, outcome)
                    changed += [uid] if self._renew(uid) else []
        return changed

    def _is_gone(self, uid: str, order: Order, result: JsonObject) -> bool:
        """Return whether a deleted Pod's job is cancelled, or never was declared."""
        return not (
            result["base_mismatch"] or uid in result["errors"] or uid in self._desk.there or uid in order.upsert
        )

    def _options(self, order: Order, *, about_partition: bool) -> JsonObject:
        setting = self._settings
        given: JsonObject = {
            "node": self._config.node_name,
            "mode": "delta",
            "base": order.base,
            "upsert": order.upsert,
            "delete": order.delete,
            "seen": self._desk.seen,
            "commands": setting.commands,
            "completed": setting.completed,
            "partition": setting.partition if about_partition else "",
        }
        if wanted := self._copies.due(self._ended(), self._clock.monotonic()):
            given["results"] = wanted
        if order.values:
            given["blob"] = order.blob()
        return {**given, "state_dir": setting.state_dir} if setting.state_dir else given

    def _ended(self) -> list[JsonObject]:
        return [pod for uid, pod in self._pods.items() if "code" in (self._desk.reported.get(uid) or {})]

    def _take(self, order: Order, result: JsonObject) -> list[str]:
        """Take a result over; return the uids of Pods whose status is another now."""
        self._folder = str(result.get("state_dir") or self._folder)
        changed = self._desk.answer(order, result, self._clock.monotonic())
        for uid in self._desk.wanted.keys() - self._pods.keys():
            reported = self._desk.reported.get(uid) or {}
            self._pods[uid] = statuses.stub(uid, str(reported.get("name") or ""))
        self._node.answered(result.get("partition"))
        return [uid for uid in changed if uid in self._pods and self._renew(uid)]

    def _renew(self, uid: str) -> bool:
        pod = self._pods[uid]
        status = statuses.pod_status(pod, self._desk.reported.get(uid), self._obstacle(uid), self._now())
        status = self._copies.shown(pod, status, self._now())
        differs = bool(status != objects.status(pod))
        pod["status"] = status
        return differs

    def _obstacle(self, uid: str) -> tuple[str, str] | None:
        """Return reason and message of what keeps a job from being submitted."""
        if uid in self._lacking:
            return MISSING, self._lacking[uid]
        if uid not in self._desk.errors and (awaited := self._desk.awaited(uid)):
            return AWAITS, f"{len(awaited)} of the jobs that it waits for are not submitted yet, or are gone"
        return self._desk.errors.get(uid)

    def _say_trouble(self, why: str) -> None:
        self._node.silent(why)
        self._looked.set()  # nobody waits longer: a job that is there already is found when it is submitted again

    def _clean_up(self) -> None:
        """Delete jobs whose Pods the cluster does not have, as virtual-kubelet's PodsTracker does."""
        known = {objects.uid(pod) for pod in self._config.resources.pods()}
        with self._lock:
            strangers = [pod for uid, pod in self._pods.items() if uid not in known and not objects.containers(pod)]
        for pod in strangers:
            log.info("slurm: the job of %s is cancelled: the cluster does not have that Pod", objects.key(pod))
            self.delete_pod(pod)

    def _tell(self, uid: str) -> None:
        with self._lock:
            pod = copy.deepcopy(self._pods.get(uid))
        if pod is not None and objects.containers(pod):  # of others, it is not known yet whether they have results
            self._send(pod)

    def _send(self, pod: JsonObject) -> None:
        if self._notify is not None:
            self._notify(pod)

    def _found(self, key: Key) -> JsonObject:
        found = next((pod for pod in self._pods.values() if objects.key(pod) == key), None)
        if found is None:
            raise NotFound(f"no job of the Pod {key} is known")
        return found

    def _now(self) -> str:
        return rfc3339(self._clock.now())


def make(config: InitConfig) -> SlurmProvider:
    """Return the provider; raises ConfigurationError."""
    return SlurmProvider(config)
