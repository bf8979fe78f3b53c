"""Pods as units of systemd, on two machines with a systemd of their own: by Ansible over ssh, as a user has it.

One is a UML machine, which is rebooted and cut off; the other shares the host's kernel. No cluster is needed: the
provider is asked as the daemon of virtual nodes asks it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api.pods.slurm import IMAGE
from minik8s_modules.api.pods.units import HOSTS
from minik8s_modules.virtual.contract import NoResources, new_pod
from minik8s_modules.virtual.errors import NotFound
from minik8s_modules.virtual.provider import ContainerLogOptions, InitConfig, Provider
from minik8s_modules.virtual.providers.ansible_runs.provider import AnsibleProvider, make
from tests.lab.errors import LabNodeFailed
from tests.lab.lab import Lab
from tests.lab.records import NodeSpec

UML, NATIVE = "uml1", "native1"
APP = "app"
WAIT_S = 300.0
HELD = "trap 'echo told to end; exit 0' TERM; echo begun by $(id -un) in $(pwd); while :; do sleep 1; done"


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until something is so; a UML machine beside busy processes is slow."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {WAIT_S:.0f} s"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def lab(lab_name: str) -> Iterator[Lab]:
    """The machines; each has the user that programs run as."""
    with Lab(lab_name) as made:
        made.up([NodeSpec(UML, "uml", 512), NodeSpec(NATIVE, "native")])
        for name in (UML, NATIVE):
            made.run(name, ["useradd", "--system", APP])
        yield made


@pytest.fixture(scope="module")
def provider(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnsibleProvider]:
    """The provider, on the lab's inventory."""
    made = provider_of(lab, tmp_path_factory.mktemp("state"))
    yield made
    made.close()


def provider_of(lab: Lab, folder: Path) -> AnsibleProvider:
    said = {"inventory": str(lab.inventory), "group": "nodes", "users": [APP], "period_s": 1}
    return make(InitConfig("web", NoResources(), said, state_dir=str(folder)))


def pod(name: str, host: str, script: str, restart: str = "Always", **container: Any) -> dict[str, Any]:
    """Return a Pod whose program is a shell's script."""
    one = {"name": "main", "image": IMAGE, "command": ["sh", "-c", script], **container}
    made = new_pod(name, restartPolicy=restart, terminationGracePeriodSeconds=20, containers=[one])
    made["metadata"]["annotations"] = {HOSTS: host}
    return made


def container(provider: Provider, name: str) -> dict[str, Any]:
    found: dict[str, Any] = provider.get_pod_status("default", name)["containerStatuses"][0]
    return found


def runs(provider: Provider, name: str, restarts: int = 0) -> bool:
    found = container(provider, name)
    return "running" in found["state"] and found["restartCount"] >= restarts


def ended(provider: Provider, name: str) -> dict[str, Any]:
    until(lambda: "terminated" in container(provider, name)["state"], f"the end of {name}")
    found: dict[str, Any] = container(provider, name)["state"]["terminated"]
    return found


def log(provider: Provider, name: str, **options: Any) -> str:
    return b"".join(provider.get_container_logs("default", name, "main", ContainerLogOptions(**options))).decode()


def show(lab: Lab, machine: str, pod: dict[str, Any], *names: str) -> str:
    unit = f"minik8s-pod-{pod['metadata']['uid']}.service"
    return lab.run(machine, ["systemctl", "show", *(f"--property={name}" for name in names), unit]).strip()


def delete(lab: Lab, provider: Provider, *pods: dict[str, Any]) -> None:
    """Delete Pods and wait until nothing is left of them on the machines."""
    for each in pods:
        provider.delete_pod(each)
    for each in pods:
        host, uid = each["metadata"]["annotations"][HOSTS], each["metadata"]["uid"]
        look = f"ls /etc/systemd/system /var/lib/minik8s-units/web/pods | grep -c {uid} || true"
        until(lambda host=host, look=look: lab.run(host, ["sh", "-c", look]).strip() == "0", "the removal")  # type: ignore[misc]


@pytest.mark.parametrize("machine", [NATIVE, UML])
def test_a_program_has_its_user_values_words_and_limits(lab: Lab, provider: AnsibleProvider, machine: str) -> None:
    limits = {"limits": {"cpu": "250m", "memory": "64Mi"}}
    env = [{"name": "PASSWORD", "value": 'it\'s "$hidden" `id` \\ %n\nsecond line'}]
    script = f'printf "%s|%s|\\n" "$PASSWORD" "$1"; {HELD}'
    one = pod("one", machine, script, args=["sh", "$(PASSWORD)$$(X)"], env=env, workingDir="/tmp", resources=limits)
    provider.create_pod(one)
    until(lambda: runs(provider, "one"), "the start")
    value = env[0]["value"]
    until(lambda: "begun" in log(provider, "one"), "the first words")
    assert log(provider, "one") == f"{value}|{value}$(X)|\nbegun by {APP} in /tmp\n"
    assert log(provider, "one", tail=1) == f"begun by {APP} in /tmp\n"
    told = show(lab, machine, one, "User", "MemoryMax", "CPUQuotaPerSecUSec", "Restart", "UnitFileState")
    assert {*told.splitlines()} == {
        f"User={APP}", "MemoryMax=67108864", "CPUQuotaPerSecUSec=250ms", "Restart=always", "UnitFileState=enabled",
    }  # fmt: skip
    folder = f"/var/lib/minik8s-units/web/pods/{one['metadata']['uid']}"
    assert lab.run(machine, ["stat", "-c", "%a %U", f"{folder}/environment"]) == "600 root\n"
    with pytest.raises(LabNodeFailed, match="Permission denied"):
        lab.run(machine, ["runuser", "-u", APP, "--", "cat", f"{folder}/environment"])
    assert "hidden" not in lab.run(
        machine, ["cat", f"/etc/systemd/system/minik8s-pod-{one['metadata']['uid']}.service"]
    )
    used = {each["podRef"]["name"]: each["memory"]["workingSetBytes"] for each in provider.get_stats_summary()["pods"]}
    assert used["one"] > 0
    delete(lab, provider, one)
    with pytest.raises(NotFound):
        provider.get_pod("default", "one")


def test_ends_are_told_and_what_is_killed_comes_back(lab: Lab, provider: AnsibleProvider) -> None:
    fails, sad = pod("fails", UML, "echo no; exit 3", "Never"), pod("sad", UML, "exec nothing-of-that-name", "Never")
    good, held = pod("good", UML, "echo yes", "OnFailure"), pod("held", UML, HELD)
    for each in (fails, good, held, sad):
        provider.create_pod(each)
    assert (ended(provider, "fails")["exitCode"], log(provider, "fails")) == (3, "no\n")
    assert (ended(provider, "good")["exitCode"], ended(provider, "good")["reason"]) == (0, "Completed")
    assert ended(provider, "sad")["exitCode"] == 127
    assert [provider.get_pod_status("default", name)["phase"] for name in ("fails", "good")] == ["Failed", "Succeeded"]
    until(lambda: runs(provider, "held"), "the start")
    lab.run(UML, ["systemctl", "kill", "--signal=KILL", f"minik8s-pod-{held['metadata']['uid']}.service"])
    until(lambda: runs(provider, "held", restarts=1), "the restart")
    assert container(provider, "held")["lastState"]["terminated"]["exitCode"] in {0, 137}
    provider.delete_pod(held)
    unit = held["metadata"]["uid"]
    words = ["journalctl", "--quiet", "--output=cat", f"_SYSTEMD_UNIT=minik8s-pod-{unit}.service"]
    until(lambda: "told to end" in lab.run(UML, words), "its SIGTERM")
    delete(lab, provider, fails, good, sad)


def test_a_program_that_takes_more_memory_than_it_may_is_ended(lab: Lab, provider: AnsibleProvider) -> None:
    limits = {"limits": {"memory": "32Mi"}}
    hog = "exec python3 -c 'import time; held = bytearray(200 << 20); time.sleep(600)'"
    for machine, reason in (
        (NATIVE, {"Error", "OOMKilled"}),
        (UML, {"OOMKilled"}),
    ):  # the host's cgroups may be of version 1
        one = pod("hog", machine, hog, "Never", resources=limits)
        provider.create_pod(one)
        assert ended(provider, "hog")["exitCode"] == 137
        assert ended(provider, "hog")["reason"] in reason
        delete(lab, provider, one)


def test_a_reboot_and_a_machine_that_is_cut_off(lab: Lab, provider: AnsibleProvider) -> None:
    held, once = pod("stays", UML, HELD), pod("once", UML, HELD, "Never")
    for each in (held, once):
        provider.create_pod(each)
    until(lambda: runs(provider, "stays") and runs(provider, "once"), "the start")
    lab.reboot(UML)
    lost = ended(provider, "once")
    assert (lost["exitCode"], lost["reason"]) == (137, "HostRebooted")
    until(lambda: runs(provider, "stays"), "the start after the reboot")
    lab.cut_off(UML)

    def reason() -> str:
        conditions = provider.get_pod_status("default", "stays")["conditions"]
        return next(str(each.get("reason", "")) for each in conditions if each["type"] == "Ready")

    until(lambda: reason() == "HostUnreachable", "word of the silence")
    assert "running" in container(provider, "stays")["state"]
    lab.rejoin(UML)
    until(lambda: reason() == "", "word of the end of the silence")
    delete(lab, provider, held, once)
