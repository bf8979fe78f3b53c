"""The provider ``ansible`` where Pods are units: the contract, hosts, restarts, and what is refused.

tests/machines/long/test_units.py has a real systemd.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api.pods.scripts import INDEX
from minik8s_modules.api.pods.slurm import IMAGE
from minik8s_modules.api.pods.units import CHECK, HOSTS, USER, USERS, declared_unit
from minik8s_modules.base.metrics import Registry
from minik8s_modules.module_utils.minik8s.units.systemd import Shown
from minik8s_modules.module_utils.minik8s.units.texts import unit_name
from minik8s_modules.virtual.contract import NoResources, ProviderContract, new_pod
from minik8s_modules.virtual.errors import InvalidInput, NotFound, ProviderError, Unsupported
from minik8s_modules.virtual.provider import AttachIO, ContainerLogOptions, InitConfig, Provider
from minik8s_modules.virtual.providers.ansible_runs.provider import AnsibleProvider
from minik8s_modules.virtual.providers.ansible_units.machines import journal_script
from minik8s_modules.virtual.providers.ansible_units.records import Record, Records
from minik8s_modules.virtual.providers.reaching import private_folder
from tests.support.waiting import until
from tests.unit.virtual import systemd_stand_in
from tests.unit.virtual.systemd_stand_in import Machines
from tests.unit.virtual.test_ansible_runs import ROOM, configured

CONTAINER = {"name": "app", "image": IMAGE, "command": ["sleep", "600"]}


def pod(name: str = "one", annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a Pod that is a unit."""
    container = CONTAINER | spec.pop("container", {})
    made = new_pod(name, **{"restartPolicy": "Always", "containers": [container], **spec})
    made["metadata"]["annotations"] = annotations or {}
    return made


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    users = (systemd_stand_in.USER, "daemon")
    monkeypatch.setattr(f"{ROOM}.settings.read", lambda _config: configured(tmp_path, users=users, period_s=1))


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path / "hosts")


def made(machines: Machines, tmp_path: Path, **config: Any) -> AnsibleProvider:
    init = InitConfig("web", NoResources(), state_dir=str(tmp_path / "state"), **config)
    return AnsibleProvider(init, machines=lambda _settings, _folder: machines)


def state(provider: Provider, name: str = "one") -> dict[str, Any]:
    found: dict[str, Any] = provider.get_pod_status("default", name)["containerStatuses"][0]["state"]
    return found


class TestContract(ProviderContract):
    """See ProviderContract; the hosts are folders."""

    survives_restarts = True
    patience_s = 60.0

    @pytest.fixture(autouse=True)
    def _machines(self, machines: Machines) -> None:
        self._hosts = machines

    def make(self, config: InitConfig) -> Provider:
        """Return a provider on this test's hosts."""
        return AnsibleProvider(config, machines=lambda _settings, _folder: self._hosts)

    def pod(self, name: str, **spec: Any) -> dict[str, Any]:
        """Return a Pod that runs until it is deleted."""
        return pod(name, **spec)


def test_units_are_spread_and_their_life_is_told(machines: Machines, tmp_path: Path) -> None:
    registry = Registry()
    provider = made(machines, tmp_path, metrics=registry)
    first, second = pod("one"), pod("two", restartPolicy="Never")
    for each in (first, second):
        provider.create_pod(each)
    until(lambda: all("running" in state(provider, name) for name in ("one", "two")))
    assert [len(machines.on(host).starts) for host in ("web1", "web2")] == [1, 1]
    assert 'minik8s_units{host="web1",node="web",state="running"} 1.0' in registry.text()
    used = {each["podRef"]["name"]: each["memory"]["workingSetBytes"] for each in provider.get_stats_summary()["pods"]}
    assert used == {"one": 7, "two": 7}
    name = unit_name(first["metadata"]["uid"])
    machines.on("web1").units[name] = Shown("activating", "auto-restart", "exit-code", 3, 100.0, 101.0, 1)
    until(lambda: state(provider).get("waiting", {}).get("reason") == "CrashLoopBackOff")
    assert provider.get_pod_status("default", "one")["phase"] == "Running"
    machines.on("web2").units[unit_name(second["metadata"]["uid"])] = Shown("failed", "failed", "oom-kill", 137, 1, 2)
    until(lambda: "terminated" in state(provider, "two"))
    ended = state(provider, "two")["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")
    assert provider.get_pod_status("default", "two")["phase"] == "Failed"
    provider.delete_pod({**first, "metadata": {**first["metadata"], "deletionGracePeriodSeconds": 3}})
    until(lambda: "one" not in _names(provider))
    until(lambda: not list((machines.folder / "web1" / "units").iterdir()))
    with pytest.raises(NotFound):
        provider.get_pod("default", "one")
    provider.close()
    assert "minik8s_units{" not in registry.text()


def _names(provider: Provider) -> set[str]:
    return {each["metadata"]["name"] for each in provider.get_pods()}


def test_values_stand_in_one_file_that_only_root_reads(machines: Machines, tmp_path: Path) -> None:
    provider = made(machines, tmp_path)
    container = {"env": [{"name": "PASSWORD", "value": 'hid"den$x'}], "args": ["$(PASSWORD)"]}
    one = pod(container=container, annotations={HOSTS: "web2", USER: "daemon"})
    provider.create_pod(one)
    until(lambda: "running" in state(provider))
    hits = [path for path in (machines.folder / "web2").rglob("*") if path.is_file() and b"den" in path.read_bytes()]
    assert [path.name for path in hits] == ["environment"]
    assert hits[0].stat().st_mode & 0o777 == 0o600
    assert hits[0].read_text() == 'PASSWORD="hid\\"den\\$x"\n'
    text = (machines.folder / "web2" / "units" / unit_name(one["metadata"]["uid"])).read_text()
    assert "User=daemon" in text
    assert "Restart=always" in text
    (kept,) = (tmp_path / "state" / "units").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    provider.close()


def test_a_restarted_provider_starts_nothing_again_and_tells_nothing_wrong(machines: Machines, tmp_path: Path) -> None:
    """While a host was not asked yet, no status is told: the Pod would be Pending again."""
    provider = made(machines, tmp_path)
    one = pod()
    provider.create_pod(one)
    until(lambda: "running" in state(provider))
    provider.close()
    machines.away = {"web1", "web2"}
    provider = made(machines, tmp_path)
    with pytest.raises(ProviderError, match="tells nothing"):
        provider.get_pod_status("default", "one")
    assert [each["status"]["phase"] for each in provider.get_pods()] == ["Running"]
    machines.away = set()
    until(lambda: _is_running(provider))
    assert sum(len(machines.on(host).starts) for host in ("web1", "web2")) == 1
    machines.away = {"web1", "web2"}

    def ready() -> str:
        conditions = provider.get_pod_status("default", "one")["conditions"]
        return next(str(each.get("reason", "")) for each in conditions if each["type"] == "Ready")

    until(lambda: ready() == "HostUnreachable")
    assert "running" in state(provider)
    provider.close()


def test_a_record_that_can_be_no_unit_goes_with_its_pod_and_holds_up_no_other(
    machines: Machines, tmp_path: Path
) -> None:
    """A former release let a NUL through; deleted, such a Pod was waited for without end."""
    bad, kept = pod("bad"), Records(tmp_path / "state" / "units")
    entry = {"name": "default/bad", "user": systemd_stand_in.USER, "script": "#!/bin/sh\nexec echo '\0'\n"}
    kept.keep(Record(bad, "web1", entry, {"WORD": "a\0b"}))
    provider = made(machines, tmp_path)
    provider.create_pod(pod("good", annotations={HOSTS: "web1"}))
    until(lambda: "running" in state(provider, "good"))
    until(lambda: state(provider, "bad")["waiting"]["reason"] == "InvalidEntry")
    provider.delete_pod(bad)
    until(lambda: _names(provider) == {"good"})
    provider.close()


def _is_running(provider: Provider) -> bool:
    try:
        return "running" in state(provider)
    except ProviderError:
        return False


@pytest.mark.parametrize(
    ("annotations", "spec", "words"),
    [
        ({HOSTS: "web1,web2"}, {}, "one host"),
        ({HOSTS: "other"}, {}, "no host of the group web"),
        ({USER: "nobody"}, {}, "runs units as root, daemon"),
        ({CHECK: "true"}, {}, "minik8s plan"),
        ({}, {"container": {"command": []}}, "command: set it"),
        ({}, {"container": {"image": "alpine"}}, "no image runs"),
        ({}, {"container": {"workingDir": "srv"}}, "workingDir"),
        ({}, {"container": {"workingDir": "/srv\nUser=root"}}, "workingDir"),
        ({}, {"container": {"workingDir": "/srv\\"}}, "workingDir"),
        ({}, {"container": {"env": [{"name": "A B", "value": ""}]}}, "no variable"),
        ({}, {"container": {"ports": [{"containerPort": 80}]}}, "ports"),
        ({}, {"container": {"livenessProbe": {"exec": {}}}}, "livenessProbe"),
        ({}, {"container": {"securityContext": {"runAsUser": 0}}}, "securityContext"),
        ({}, {"securityContext": {"runAsUser": 0}}, "securityContext"),
        ({}, {"container": {"volumeMounts": [{"name": "data", "mountPath": "/d"}]}}, "no volumes"),
        ({}, {"container": {"resources": {"limits": {"nvidia.com/gpu": "1"}}}}, "cpu and memory"),
        ({}, {"activeDeadlineSeconds": 5}, "activeDeadlineSeconds"),
        ({}, {"containers": [CONTAINER, CONTAINER]}, "one program"),
    ],
)
def test_what_is_no_unit_is_refused_by_name(
    machines: Machines, tmp_path: Path, annotations: dict[str, str], spec: dict[str, Any], words: str
) -> None:
    provider = made(machines, tmp_path)
    with pytest.raises(InvalidInput, match=words):
        provider.create_pod(pod(annotations=annotations, **spec))
    assert provider.get_pods() == []
    provider.close()


def test_a_pod_of_an_indexed_job_may_have_the_hostname_that_its_job_gives_it(
    machines: Machines, tmp_path: Path
) -> None:
    provider = made(machines, tmp_path)
    provider.create_pod(pod(annotations={INDEX: "0"}, hostname="job-0"))
    assert len(provider.get_pods()) == 1
    provider.close()


def test_a_unit_is_not_changed_and_nothing_enters_it(machines: Machines, tmp_path: Path) -> None:
    provider = made(machines, tmp_path)
    one = pod()
    provider.create_pod(one)
    with pytest.raises(InvalidInput, match="is not changed"):
        provider.update_pod(pod(container={"command": ["sleep", "1"]}))
    provider.update_pod({**one, "metadata": {**one["metadata"], "labels": {"a": "b"}}})
    assert provider.get_pod("default", "one")["metadata"]["labels"] == {"a": "b"}
    with pytest.raises(Unsupported, match="log in to the host"):
        provider.run_in_container("default", "one", "app", ["sh"], AttachIO())
    for options in (ContainerLogOptions(previous=True), ContainerLogOptions(timestamps=True)):
        with pytest.raises(Unsupported):
            provider.get_container_logs("default", "one", "app", options)
    (line,) = provider.get_container_logs("default", "one", "app", ContainerLogOptions(tail=3))
    assert line.decode().split()[2:] == ["3", "False"]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "web"}, "status": {}}
    assert provider.configure_node(node)["metadata"]["annotations"] == {USERS: "root,daemon"}
    provider.close()


def test_a_label_is_taken_over_whatever_its_variables_resolve_to_by_now(machines: Machines, tmp_path: Path) -> None:
    """A Service that came meanwhile is a variable more; the unit runs on, and must not be told as failed."""
    provider = made(machines, tmp_path)
    one = pod(restartPolicy="Never", container={"args": ["$(WEB_PORT)"], "env": [{"name": "A", "value": "1"}]})
    provider.create_pod(one)
    until(lambda: "running" in state(provider))
    env = [{"name": "A", "value": "a\0b"}, {"name": "WEB_PORT", "value": "80"}]
    container = {**one["spec"]["containers"][0], "env": env}
    labelled = {**one["metadata"], "labels": {"a": "b"}}
    provider.update_pod({**one, "metadata": labelled, "spec": {**one["spec"], "containers": [container]}})
    assert provider.get_pod("default", "one")["metadata"]["labels"] == {"a": "b"}
    with pytest.raises(InvalidInput, match="is not changed"):
        provider.update_pod({**one, "spec": {**one["spec"], "containers": [{**container, "args": ["1"]}]}})
    until(lambda: machines.passes[-1]["mode"] == "delta")
    assert sum(len(machines.on(host).starts) for host in ("web1", "web2")) == 1
    provider.close()


def test_a_disk_that_lets_no_record_go_ends_no_look_at_its_host(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = made(machines, tmp_path)
    one = pod(annotations={HOSTS: "web1"})
    provider.create_pod(one)
    until(lambda: "running" in state(provider))
    failed = threading.Event()
    drop = Records.drop

    def dropped(self: Records, uid: str) -> None:
        if not failed.is_set():
            failed.set()
            raise OSError("read-only file system")
        drop(self, uid)

    monkeypatch.setattr(Records, "drop", dropped)
    provider.delete_pod(one)
    until(failed.is_set)
    until(lambda: not _names(provider))
    provider.close()


def test_a_unit_that_began_before_an_upgrade_goes_on_whatever_is_refused_since(
    machines: Machines, tmp_path: Path
) -> None:
    one, kept = pod(automountServiceAccountToken=True), Records(tmp_path / "state" / "units")
    kept.keep(Record(one, "web1", declared_unit(pod(), (systemd_stand_in.USER,)).entry, {}))
    provider = made(machines, tmp_path)
    until(lambda: _is_running(provider))
    provider.update_pod({**one, "metadata": {**one["metadata"], "labels": {"a": "b"}}})
    assert provider.get_pod("default", "one")["metadata"]["labels"] == {"a": "b"}
    changes: list[dict[str, Any]] = [
        {"metadata": {**one["metadata"], "annotations": {HOSTS: "web2"}}},
        {"spec": {**one["spec"], "hostPID": True}},
    ]
    for change in changes:
        with pytest.raises(InvalidInput, match="automountServiceAccountToken"):
            provider.update_pod({**one, **change})
    provider.close()


@pytest.mark.parametrize("name", ["state", "a-folder-whose-name-is-long-for-a-socket-below-it"])
def test_the_sockets_of_ssh_fit_into_their_paths(tmp_path: Path, name: str) -> None:
    folder = private_folder(f"/tmp/{name}")
    assert len(f"{folder}/ssh/read-{'c' * 40}.{'r' * 16}") < 108
    if name != "state":
        folder.rmdir()


def test_journals_are_asked_by_words_of_ours_alone() -> None:
    options = ContainerLogOptions(tail=5, since_seconds=60, follow=True)
    script = journal_script("a-1", options, root=True)
    assert script.startswith("sudo -n journalctl --quiet --no-pager --output=cat --lines=5 --since=-60s --follow ")
    assert "_SYSTEMD_UNIT=minik8s-pod-a-1.service &" in script
