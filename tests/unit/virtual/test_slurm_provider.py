"""The provider's thread: what is told of the node however late Slurm answers, and a pass that fails ends nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.pods.slurm import COPIED, IMAGE, RESULTS, RESULTS_TO, TAKES_RESULTS
from minik8s_modules.base.metrics import Registry
from minik8s_modules.reconcile.values.items import Outcome, WorkItem
from minik8s_modules.virtual.contract import NoResources, new_pod
from minik8s_modules.virtual.errors import InvalidInput
from minik8s_modules.virtual.provider import InitConfig
from minik8s_modules.virtual.providers import reaching
from minik8s_modules.virtual.providers.slurm import provider as module
from minik8s_modules.virtual.providers.slurm.login import PLAY, LoginFault
from minik8s_modules.virtual.providers.slurm.provider import SlurmProvider
from tests.support.waiting import until

PARTITION = {"name": "batch", "nodes": 1, "usable": 1, "cpus": 4, "memory_mb": 10, "gpus": 0, "up": True, "states": {}}
RESULT = {
    "digest": "d",
    "base_mismatch": False,
    "status": {},
    "errors": {},
    "due": [],
    "steps": [],
    "partition": PARTITION,
}


class Answers:
    """A login whose passes wait until they may end; ``faults`` fail first."""

    def __init__(self, faults: int = 0) -> None:
        self.may_answer = threading.Event()
        self.faults = faults

    def call(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a pass."""
        self.may_answer.wait(60)
        if self.faults:
            self.faults -= 1
            raise LoginFault("login1: no answer")
        return {**RESULT, "partition": PARTITION if options["partition"] else None}

    def read(self, path: str, lines: int, follow: Callable[[], bool] | None) -> Iterator[bytes]:  # noqa: ARG002
        """Yield nothing."""
        return iter(())

    def close(self) -> None:
        """Let passes end."""
        self.may_answer.set()


def made(login: Answers, folder: Path) -> SlurmProvider:
    config = InitConfig("gpu", NoResources(), {"inventory": str(folder), "partition": "batch"})
    return SlurmProvider(config, lambda _settings, _folder: login)


def test_a_node_is_told_what_became_known_between_its_registration_and_the_first_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "FIRST_LOOK_S", 0.05)
    login = Answers()
    provider = made(login, tmp_path)
    node = provider.configure_node({"metadata": {"name": "gpu"}, "status": {}})
    assert (objects.condition(node, "Ready") or {})["reason"] == "PartitionUnknown"
    login.may_answer.set()
    until(lambda: provider.configure_node({"metadata": {"name": "gpu"}, "status": {}})["status"].get("capacity"))
    collected: list[dict[str, Any]] = []
    provider.notify_node_status(collected.append)
    until(lambda: collected)
    assert collected[-1]["status"]["capacity"]["cpu"] == "4"
    provider.close()


def test_what_is_away_is_told_and_so_is_its_return(tmp_path: Path):
    login = Answers(faults=2)
    provider = made(login, tmp_path)
    login.may_answer.set()
    collected: list[dict[str, Any]] = []

    def fails_once(node: dict[str, Any]) -> None:
        collected.append(node)
        if len(collected) == 1:
            raise RuntimeError("the API does not answer")

    provider.configure_node({"metadata": {"name": "gpu"}, "status": {}})
    provider.notify_node_status(fails_once)
    until(lambda: collected and (objects.condition(collected[-1], "SlurmUnavailable") or {})["status"] == "False")
    provider.ping()
    provider.close()


def test_figures_tell_of_jobs_passes_and_silence(tmp_path: Path):
    login, registry = Answers(faults=1), Registry()
    config = InitConfig("gpu", NoResources(), {"inventory": str(tmp_path), "partition": "batch"}, metrics=registry)
    provider = SlurmProvider(config, lambda _settings, _folder: login)
    pod = new_pod("one", restartPolicy="Never", containers=[{"name": "app", "image": IMAGE, "command": ["true"]}])
    provider.create_pod(pod)
    assert 'minik8s_slurm_jobs{node="gpu",state="UNSUBMITTED"} 1.0' in registry.text()
    login.may_answer.set()
    until(lambda: 'minik8s_slurm_passes_total{node="gpu",outcome="failure"} 1.0' in registry.text())
    until(lambda: 'minik8s_slurm_unavailable{node="gpu"} 0.0' in registry.text())
    assert 'minik8s_slurm_pass_duration_seconds_count{node="gpu"}' in registry.text()
    provider.close()
    assert 'minik8s_slurm_jobs{node="gpu"' not in registry.text()


def test_a_label_is_taken_over_whatever_variables_resolve_to_by_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A Service that came meanwhile is a variable more; the job runs on, and must not be told as failed."""
    monkeypatch.setattr(module, "LAST_PASS_S", 0.0)
    login = Answers()
    provider = made(login, tmp_path)
    login.may_answer.set()
    container = {"name": "app", "image": IMAGE, "command": ["echo", "$(WEB_PORT)"], "env": []}
    pod = new_pod("one", restartPolicy="Never", containers=[container])
    provider.create_pod(pod)
    resolved = {**container, "env": [{"name": "WEB_PORT", "value": "80"}]}
    labelled = {**pod["metadata"], "labels": {"a": "b"}}
    provider.update_pod({**pod, "metadata": labelled, "spec": {**pod["spec"], "containers": [resolved]}})
    assert provider.get_pod("default", "one")["metadata"]["labels"] == {"a": "b"}
    for change in ({"command": ["echo"]}, {"workingDir": "/srv"}, {"resources": {"limits": {"cpu": "2"}}}):
        with pytest.raises(InvalidInput, match="cannot be changed"):
            provider.update_pod({**pod, "spec": {**pod["spec"], "containers": [{**resolved, **change}]}})
    provider.close()


class Found(Answers):
    """A login on whose machine the jobs of ``states`` are."""

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[str, Any] = {}
        self.may_answer.set()

    def call(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a pass."""
        return {**super().call(options), "status": dict(self.states)}


@pytest.mark.parametrize("field", [{"automountServiceAccountToken": True}, {"volumes": [{"name": "a", "nfs": {}}]}])
def test_a_job_that_began_before_an_upgrade_is_followed_to_its_end_whatever_is_refused_since(
    tmp_path: Path, field: dict[str, Any]
):
    container = {"name": "app", "image": IMAGE, "command": ["true"]}
    pod = new_pod("one", restartPolicy="Never", containers=[container], **field)
    login, told = Found(), list[dict[str, Any]]()
    running = {"id": 7, "name": "default/one", "state": "RUNNING"}
    login.states = {objects.uid(pod): running}
    provider = made(login, tmp_path)
    provider.notify_pods(told.append)
    assert [objects.containers(one) for one in provider.get_pods()] == [[]]
    provider.update_pod(pod)
    assert objects.status(told[-1])["phase"] == "Running"
    with pytest.raises(InvalidInput):  # from now on the Pod is known, and its changes are judged
        provider.update_pod(pod)
    login.states = {objects.uid(pod): {**running, "state": "COMPLETED", "code": "0:0"}}
    until(lambda: objects.status(told[-1])["phase"] == "Succeeded")
    provider.close()


@pytest.mark.parametrize(
    "end",
    [
        {"state": "FAILED", "code": "9" * 5000, "message": {"a": 1 << 70}, "tail": 1 << 70},
        {"state": "\ud800", "code": "1:0", "message": "\ud800", "id": 1 << 70, "started": ["never"]},
        {"state": ["COMPLETED"], "code": "0:0"},
    ],
)
def test_what_one_job_s_program_wrote_of_its_end_is_told_of_it_alone(tmp_path: Path, end: dict[str, Any]):
    """Its record lies in its folder; a pass tells of all jobs, and its Pods are written as JSON."""
    container = {"name": "app", "image": IMAGE, "command": ["true"]}
    bad, good = (new_pod(name, restartPolicy="Never", containers=[container]) for name in ("a-bad", "good"))
    login, told = Found(), dict[str, str]()
    provider = made(login, tmp_path)

    def notified(pod: dict[str, Any]) -> None:
        orjson.dumps(pod)
        told[objects.name(pod)] = objects.status(pod)["phase"]

    provider.notify_pods(notified)
    provider.create_pod(bad)
    provider.create_pod(good)
    running = {"id": 7, "name": "default/good", "state": "RUNNING"}
    login.states = {objects.uid(bad): {**end, "name": "default/a-bad"}, objects.uid(good): running}
    until(lambda: told.get("good") == "Running")
    assert told["a-bad"] == ("Failed" if isinstance(end["state"], str) else "Pending")
    provider.ping()
    provider.close()


class Ended(Answers):
    """A login on whose machine every job has ended, with one file."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[str] = []

    def call(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a pass."""
        job = {"id": "7", "name": "default/job", "state": "COMPLETED", "code": "0:0"}
        files = {uid: {"files": {"a.csv": "MQ=="}} for uid in options.get("results") or {}}
        return {**super().call(options), "status": dict.fromkeys(self.jobs, job), "result_files": files}


def test_a_pod_ends_when_it_no_longer_asks_for_results_that_have_no_place(tmp_path: Path):
    login = Ended()
    told: list[dict[str, Any]] = []
    resources = NoResources({"default/out": {"metadata": {"name": "out", "annotations": {TAKES_RESULTS: "true"}}}})
    config = InitConfig("gpu", resources, {"inventory": str(tmp_path), "partition": "batch"})
    provider = SlurmProvider(config, lambda _settings, _folder: login)
    provider.notify_pods(told.append)
    pod = new_pod("one", restartPolicy="Never", containers=[{"name": "app", "image": IMAGE, "command": ["true"]}])
    pod["metadata"]["annotations"] = {RESULTS: "*.csv", RESULTS_TO: "out"}
    provider.create_pod(pod)
    resources.fill_config_map({"metadata": {"namespace": "default", "name": "out"}})  # takes no results any more
    login.jobs = [objects.uid(pod)]
    login.may_answer.set()
    until(lambda: "does not take results" in str(objects.condition(provider.get_pod("default", "one"), COPIED)))
    provider.update_pod({**pod, "metadata": {**pod["metadata"], "annotations": {}}})
    assert provider.get_pod_status("default", "one")["phase"] == "Succeeded"
    assert objects.status(told[-1])["phase"] == "Succeeded"
    provider.close()


class Hanging:
    """A runner that answers nothing but what was cancelled."""

    def __init__(self, on_outcome: Callable[[Outcome], None]) -> None:
        self.cancelled: list[str] = []
        self._tell = on_outcome

    def submit(self, item: WorkItem) -> None:
        """Take it."""

    def cancel(self, item_id: str) -> None:
        """End it."""
        self.cancelled.append(item_id)
        self._tell(Outcome("of-an-earlier-pass", "login1", "ok", {}, ""))
        self._tell(Outcome(item_id, "login1", "cancelled", {}, ""))

    def start(self) -> None:
        """Nothing runs."""

    def stop(self) -> None:
        """Nothing runs."""


def test_a_pass_that_hangs_is_ended_and_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    runners: list[Hanging] = []

    def hanging(*, on_outcome: Callable[[Outcome], None], **_: object) -> Hanging:
        runners.append(Hanging(on_outcome))
        return runners[-1]

    monkeypatch.setattr(reaching, "AnsibleRunner", hanging)
    passes = reaching.Passes(PLAY._replace(pass_s=0.05), tmp_path, str(tmp_path / "state"))
    with pytest.raises(LoginFault, match="login1: cancelled"):
        passes.call("login1", {})
    assert len(runners[0].cancelled) == 1
    passes.close()
