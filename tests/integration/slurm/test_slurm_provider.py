"""The provider ``slurm`` on a real Slurm: once by Ansible over ssh, as an ordinary user, else in place."""

from __future__ import annotations

import copy
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.pods.slurm import DEPENDENCY, IMAGE
from minik8s_modules.virtual.contract import NoResources, ProviderContract, new_pod
from minik8s_modules.virtual.errors import InvalidInput, NotFound
from minik8s_modules.virtual.provider import ContainerLogOptions, InitConfig, Provider
from minik8s_modules.virtual.providers.slurm.provider import SlurmProvider
from tests.integration.slurm.conftest import InPlace
from tests.support.servers.slurm import STUDENT, Slurm
from tests.support.waiting import until

LOG = ContainerLogOptions()


def pod(name: str, command: list[str], **spec: Any) -> dict[str, Any]:
    """Return a Pod of one job."""
    container = {"name": "app", "image": IMAGE, "command": command, "resources": {"requests": {"memory": "10Mi"}}}
    return new_pod(name, **{"restartPolicy": "Never", "containers": [container | spec.pop("container", {})], **spec})


def provider_on(
    slurm: Slurm,
    tmp_path: Path,
    *,
    login: InPlace | None = None,
    resources: NoResources | None = None,
    image_command: Sequence[str] = (),
    configured: Mapping[str, Any] | None = None,
    **found: Any,
) -> SlurmProvider:
    """Return a provider whose passes are made in place; ``configured`` are further settings."""
    fields = {"inventory": str(tmp_path), "partition": "batch", "period_s": 1, "image_command": [*image_command]}
    fields |= configured or {}
    name = login.jobs.owner if login else f"gpu-{uuid.uuid4().hex[:8]}"
    config = InitConfig(name, resources or NoResources(**found), fields)
    return SlurmProvider(config, lambda _settings, _folder: login or InPlace(slurm, name))


@pytest.fixture
def provider(slurm: Slurm, tmp_path: Path) -> Iterator[SlurmProvider]:
    """A provider of this test."""
    found = provider_on(slurm, tmp_path)
    yield found
    for each in found.get_pods():
        found.delete_pod(each)
    found.close()


def status(provider: Provider, name: str) -> dict[str, Any]:
    return provider.get_pod_status("default", name)


def state(provider: Provider, name: str) -> dict[str, Any]:
    found: dict[str, Any] = status(provider, name)["containerStatuses"][0]["state"]
    return found


def ended(provider: Provider, name: str) -> dict[str, Any]:
    until(lambda: status(provider, name)["phase"] in {"Succeeded", "Failed"})
    found: dict[str, Any] = state(provider, name)["terminated"]
    return found


class TestContract(ProviderContract):
    """See ProviderContract."""

    survives_restarts = True
    patience_s = 60.0

    @pytest.fixture(autouse=True)
    def _on(self, slurm: Slurm) -> None:
        self._slurm, self._login = slurm, InPlace(slurm, f"contract-{uuid.uuid4().hex[:8]}")

    def make(self, config: InitConfig) -> Provider:
        """Return a provider on the module's Slurm."""
        fields = {"inventory": config.state_dir, "partition": "batch", "period_s": 1}
        name = self._login.jobs.owner
        return SlurmProvider(InitConfig(name, config.resources, fields), lambda _settings, _folder: self._login)

    def test_a_configured_node_can_be_scheduled_to(self, tmp_path: Path) -> None:
        """The node has what the partition has."""
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu"}, "spec": {}, "status": {}}
        found = self.provider(tmp_path).configure_node(node)
        assert found["status"]["capacity"] == {"cpu": "4", "memory": "2000Mi", "pods": "1000", "nvidia.com/gpu": "4"}
        ready = objects.condition(found, "Ready") or {}
        assert (ready["status"], ready["reason"]) == ("True", "PartitionUp")
        assert objects.labels(found) == {"slurm.minik8s.io/partition": "batch"}

    def pod(self, name: str, **spec: Any) -> dict[str, Any]:
        """Return a Pod that runs until it is deleted."""
        return pod(name, ["sleep", "600"], **spec)


def test_a_pod_has_its_files_variables_and_words(slurm: Slurm, tmp_path: Path):
    config_map = {"data": {"greeting": "from a ConfigMap\n", "other": "x"}}
    secret = {"data": {"key": "c2VjcmV0"}}
    provider = provider_on(slurm, tmp_path, config_maps={"default/texts": config_map}, secrets={"default/keys": secret})
    script = 'cat texts/hi; cat keys/key; echo " $1 $WORD"; echo $CUDA_VISIBLE_DEVICES; ls keys texts | xargs; exit 7'
    container = {
        "args": ["it's $(WORD) $$(WORD) $(NONE)"],
        "env": [{"name": "WORD", "value": "a 'b' $c"}],
        "resources": {"limits": {"memory": "10Mi", "nvidia.com/gpu": "1"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "texts", "mountPath": "texts"}, {"name": "keys", "mountPath": "./keys"}],
    }
    volumes = [
        {"name": "texts", "configMap": {"name": "texts", "items": [{"key": "greeting", "path": "hi"}]}},
        {"name": "keys", "secret": {"secretName": "keys"}},
    ]
    provider.create_pod(pod("one", ["sh", "-c", script, "sh"], container=container, volumes=volumes))
    found = ended(provider, "one")
    words = "from a ConfigMap\nsecret it's a 'b' $c $(WORD) $(NONE) a 'b' $c\n0\nkeys: key texts: hi\n"
    assert (found["exitCode"], found["reason"], found["message"]) == (7, "Error", words)
    assert b"".join(provider.get_container_logs("default", "one", "app", LOG)).decode() == words
    last = b"".join(provider.get_container_logs("default", "one", "app", ContainerLogOptions(tail=1, limit_bytes=5)))
    assert last == b"keys:"
    with pytest.raises(NotFound):
        provider.get_container_logs("default", "one", "app", ContainerLogOptions(previous=True))
    provider.delete_pod(provider.get_pod("default", "one"))
    provider.close()


def test_a_log_is_followed_while_it_grows(provider: SlurmProvider, slurm: Slurm):
    provider.create_pod(pod("one", ["sh", "-c", "echo 1; until [ -e /tmp/go ]; do sleep 0.2; done; echo 2"]))
    collected: list[bytes] = []
    follow = ContainerLogOptions(follow=True)
    reader = threading.Thread(
        target=lambda: collected.extend(provider.get_container_logs("default", "one", "app", follow))
    )
    reader.start()
    until(lambda: b"".join(collected) == b"1\n")
    slurm.run(["touch", "/tmp/go"])
    reader.join(60)
    assert not reader.is_alive()
    assert b"".join(collected) == b"1\n2\n"


def test_what_waits_and_what_is_refused_say_why(provider: SlurmProvider):
    big = {"resources": {"requests": {"cpu": "2", "memory": "10Mi", "nvidia.com/gpu": "2"}}}
    names = ["a", "b", "c"]
    for name in names:
        provider.create_pod(pod(name, ["sleep", "600"], container=big))
    provider.create_pod(pod("huge", ["true"], container={"resources": {"limits": {"nvidia.com/gpu": "9"}}}))
    reasons = {"Resources", "Priority"}
    until(lambda: any(state(provider, name).get("waiting", {}).get("reason") in reasons for name in names))
    until(lambda: state(provider, "huge")["waiting"]["reason"] == "SubmitFailed")
    assert "configuration is not available" in state(provider, "huge")["waiting"]["message"]
    with pytest.raises(InvalidInput, match="runs no container images"):
        provider.create_pod(pod("image", ["true"], container={"image": "alpine:3"}))


def test_slurm_s_own_ends_become_reasons(provider: SlurmProvider, slurm: Slurm):
    provider.create_pod(pod("one", ["sleep", "600"]))
    until(lambda: status(provider, "one")["phase"] == "Running")
    slurm.run(["scancel", "--user", STUDENT])
    assert ended(provider, "one")["reason"] == "Cancelled"
    assert status(provider, "one")["reason"] == "Cancelled"


def test_a_job_that_slurm_suspends_or_holds_is_not_taken_for_one_that_ended(provider: SlurmProvider, slurm: Slurm):
    provider.create_pod(pod("one", ["sleep", "600"], restartPolicy="OnFailure"))
    until(lambda: status(provider, "one")["phase"] == "Running")
    number = slurm.run(["squeue", "-h", "-n", f"minik8s-{objects.uid(provider.get_pod('default', 'one'))}", "-o", "%i"])

    def ready() -> str:
        return str((objects.condition(provider.get_pod("default", "one"), "Ready") or {})["status"])

    slurm.run(["scontrol", "suspend", number.strip()])
    until(lambda: ready() == "False")
    assert status(provider, "one")["phase"] == "Running"
    slurm.run(["scontrol", "resume", number.strip()])
    until(lambda: ready() == "True")
    slurm.run(["scontrol", "requeuehold", number.strip()])
    until(lambda: "held" in state(provider, "one").get("waiting", {}).get("message", "").lower())
    assert status(provider, "one")["phase"] == "Pending"


def test_a_job_waits_for_another_and_a_drained_node_takes_none(slurm: Slurm, tmp_path: Path):
    """The first waits as both nodes are drained, the others for it; the one that wanted its failure never runs."""
    pods = [pod(name, ["true"]) for name in ("first", "then", "never", "chained")]
    for each, after in zip(pods[1:], ("afterok:first", "afternotok:first", "afterok:first:then"), strict=True):
        each["metadata"]["annotations"] = {DEPENDENCY: after}
    resources = NoResources()
    resources.pods = lambda: pods  # type: ignore[method-assign]
    provider = provider_on(slurm, tmp_path, resources=resources)
    slurm.run(["scontrol", "update", "NodeName=n1,n2", "State=DRAIN", "Reason=repair"])
    try:
        for each in reversed(pods):
            provider.create_pod(each)
        until(lambda: state(provider, "then")["waiting"]["reason"] in {"Dependency", "AwaitsDependency"})
        until(lambda: state(provider, "then")["waiting"]["reason"] == "Dependency")
        until(lambda: "Nodes" in state(provider, "first")["waiting"]["message"])
        node = provider.configure_node({"metadata": {"name": "gpu"}, "status": {}})
        assert node["status"]["conditions"]
    finally:
        slurm.run(["scontrol", "update", "NodeName=n1,n2", "State=RESUME"])
    for name in ("first", "then", "chained"):
        assert ended(provider, name)["exitCode"] == 0
    until(lambda: state(provider, "never")["waiting"]["reason"] == "DependencyNeverSatisfied")
    late = pod("late", ["true"])
    late["metadata"]["annotations"] = {DEPENDENCY: "afternotok:first"}
    provider.create_pod(late)
    until(lambda: state(provider, "late")["waiting"]["reason"] == "DependencyNeverSatisfied")
    for name in ("first", "then", "never", "chained", "late"):
        provider.delete_pod(provider.get_pod("default", name))
    provider.close()


def test_a_job_s_time_limit_is_that_of_its_pod(provider: SlurmProvider):
    """Slurm counts minutes, and looks about once in one."""
    provider.create_pod(pod("one", ["sleep", "600"], activeDeadlineSeconds=20))
    until(lambda: status(provider, "one")["phase"] == "Failed", 240)
    assert state(provider, "one")["terminated"]["reason"] == "Timeout"
    assert status(provider, "one")["reason"] == "DeadlineExceeded"


def _node_of(slurm: Slurm, provider: SlurmProvider, name: str) -> str:
    uid = objects.uid(provider.get_pod("default", name))
    return slurm.run(["squeue", "-h", "-n", f"minik8s-{uid}", "-o", "%N"]).strip()


def test_what_a_lost_node_takes_along_is_lost_or_runs_again(provider: SlurmProvider, slurm: Slurm):
    """With restartPolicy Never it is lost; with OnFailure it runs again under its id, and what it said stays."""
    script = ["sh", "-c", "echo $SLURM_JOB_ID; sleep 600"]
    provider.create_pod(pod("never", script))
    provider.create_pod(pod("again", script, restartPolicy="OnFailure"))
    for name in ("never", "again"):
        until(lambda name=name: status(provider, name)["phase"] == "Running")  # type: ignore[misc]
    lost = {_node_of(slurm, provider, name) for name in ("never", "again")}
    for node in lost:
        slurm.run(["scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=lost"])
    assert ended(provider, "never")["reason"] == "NodeFail"
    assert status(provider, "never")["reason"] == "NodeLost"
    until(lambda: status(provider, "again")["phase"] == "Pending")
    for node in lost:  # one that has come back by itself (ReturnToService) cannot be resumed
        slurm.run(["sh", "-c", f"scontrol update NodeName={node} State=RESUME || true"])
    uid = objects.uid(provider.get_pod("default", "again"))
    number = slurm.run(["squeue", "-h", "-n", f"minik8s-{uid}", "-o", "%i"]).strip()
    slurm.run(["scontrol", "update", f"JobId={number}", "StartTime=now"])  # it would wait for two minutes
    until(lambda: status(provider, "again")["phase"] == "Running", 180)

    def said() -> list[str]:  # with a line of Slurm's own about the node that it lost
        return b"".join(provider.get_container_logs("default", "again", "app", LOG)).decode().splitlines()

    until(lambda: said().count(number) == 2)


def test_a_job_makes_way_for_a_more_important_one(provider: SlurmProvider, slurm: Slurm):
    """Slurm preempts both: restartPolicy Never ends with that reason, OnFailure waits and runs again."""
    whole = {"resources": {"requests": {"cpu": "2", "memory": "10Mi"}}}
    provider.create_pod(pod("never", ["sleep", "600"], container=whole))
    provider.create_pod(pod("again", ["sleep", "600"], container=whole, restartPolicy="OnFailure"))
    for name in ("never", "again"):
        until(lambda name=name: status(provider, name)["phase"] == "Running")  # type: ignore[misc]
    number = slurm.submit("sleep 600", "--partition=urgent", "--nodes=2", "--exclusive")
    assert ended(provider, "never")["reason"] == "Preempted"
    until(lambda: status(provider, "again")["phase"] == "Pending")
    assert "waiting" in state(provider, "again")
    slurm.run(["scancel", number])
    uid = objects.uid(provider.get_pod("default", "again"))
    again = slurm.run(["squeue", "-h", "-n", f"minik8s-{uid}", "-o", "%i"]).strip()
    slurm.run(["scontrol", "update", f"JobId={again}", "StartTime=now"])  # it would wait for two minutes
    until(lambda: status(provider, "again")["phase"] == "Running", 180)


def test_while_slurm_is_away_jobs_stay_as_they_were_and_the_node_says_so(slurm: Slurm, tmp_path: Path):
    login = InPlace(slurm, f"gpu-{uuid.uuid4().hex[:8]}")
    provider = provider_on(slurm, tmp_path, login=login)
    nodes: list[dict[str, Any]] = []
    provider.configure_node({"metadata": {"name": "gpu"}, "status": {}})
    provider.notify_node_status(nodes.append)
    provider.create_pod(pod("before", ["sleep", "600"]))
    until(lambda: status(provider, "before")["phase"] == "Running")
    slurm.controller_down()
    try:
        until(lambda: nodes and (objects.condition(nodes[-1], "SlurmUnavailable") or {})["status"] == "True")
        provider.create_pod(pod("meanwhile", ["sleep", "600"]))
        provider.ping()
        assert status(provider, "before")["phase"] == "Running"
        assert state(provider, "meanwhile")["waiting"]["reason"] == "Submitting"
    finally:
        slurm.controller_up()
    until(lambda: status(provider, "meanwhile")["phase"] == "Running", 90)
    assert (objects.condition(nodes[-1], "SlurmUnavailable") or {})["status"] == "False"
    assert len(login.jobs.ids()) == 2
    for name in ("before", "meanwhile"):
        provider.delete_pod(provider.get_pod("default", name))
    provider.close()


@pytest.mark.parametrize("how", ["ssh", "warm_ssh"])
def test_by_ansible_over_ssh_nothing_of_ours_stays_on_the_login_machine(slurm: Slurm, tmp_path: Path, how: str):
    warm = {"minik8s_warm_as_root": False, "minik8s_warm_directory": "/tmp/minik8s-warm-{uid}"}
    inventory = slurm.inventory(ansible_connection=how, **warm)
    fields = {
        "inventory": str(inventory),
        "partition": "batch",
        "completed": "/var/log/slurm/jobcomp.txt",
        "period_s": 1,
    }
    provider = SlurmProvider(InitConfig("over-ssh", NoResources(), fields, state_dir=str(tmp_path / "state")))
    given = pod("one", ["sh", "-c", "echo over ssh; sleep 600"], container={"env": [{"name": "A", "value": "seen"}]})
    provider.create_pod(copy.deepcopy(given))
    until(lambda: status(provider, "one")["phase"] == "Running", 120)
    until(lambda: b"".join(provider.get_container_logs("default", "one", "app", LOG)) == b"over ssh\n")
    assert "seen" not in slurm.run(["ps", "-eo", "args"])
    provider.delete_pod(given)
    with pytest.raises(NotFound):
        provider.get_pod("default", "one")
    until(lambda: not slurm.run(["squeue", "-h", "-t", "R,PD", "-o", "%i"]))
    provider.close()
    names = slurm.run(["find", f"/home/{STUDENT}", "-mindepth", "1", "-maxdepth", "1", "-printf", "%f "]).split()
    assert set(names) <= {".ansible", ".minik8s"}
