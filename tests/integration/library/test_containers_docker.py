"""Containers on real Docker: what is declared runs, drift heals, attempts, stops and errors are each key's own."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core import labels
from minik8s_modules.module_utils.minik8s.core.section import PASS_BUDGET_S
from minik8s_modules.module_utils.minik8s.pods.cgroups import parse_membership
from tests.support.node import TestNode, as_json, command
from tests.support.waiting import until


def only(found: dict[str, Any]) -> Any:
    """Return the one value of a mapping."""
    (value,) = found.values()
    return value


def test_a_container_gets_all_that_is_declared(node: TestNode) -> None:
    _, containers = node.start_pod(
        7,
        entrypoint=["sh", "-c"],
        cmd=["sleep 3600"],
        env=[["GREETING", "hello {{ 1+1 }}"]],
        working_dir="/tmp",
        user="1000",
        cpu_shares=102,
        cpu_quota_us=50000,
        memory_bytes=64 << 20,
        tty=True,
        oom_score_adj=500,
    )
    status = only(node.run("containers", containers)["status"])
    found: Any = node.docker.inspect(status["id"])
    host = found["HostConfig"]
    assert (host["CpuShares"], host["CpuQuota"], host["CpuPeriod"]) == (102, 50000, 100000)
    assert host["Memory"] == host["MemorySwap"] == 64 << 20
    assert (host["OomScoreAdj"], host["RestartPolicy"]["Name"]) == (500, "no")
    assert host["NetworkMode"] == host["IpcMode"] == f"container:{node.ids(labels.SANDBOX)[0]}"
    assert found["Config"]["Tty"]
    shown = node.execute(status["id"], "sh", "-c", "id -u; pwd; echo $GREETING; cat /proc/1/comm")
    assert shown.split("\n")[:3] == ["1000", "/tmp", "hello {{ 1+1 }}"]
    assert not node.run("containers", containers)["changed"]


def test_changed_limits_are_healed_in_place(node: TestNode) -> None:
    _, containers = node.start_pod(7, cpu_shares=102, memory_bytes=64 << 20)
    before = only(node.run("containers", containers)["status"])["id"]
    command("docker", "update", "--cpu-shares", "500", "--memory", "128m", "--memory-swap", "128m", before)
    planned = node.run("containers", containers, check=True)
    assert "memory_bytes: 134217728" in planned["diff"]["before"]
    assert "memory_bytes: 67108864" in planned["diff"]["after"]
    healed = node.run("containers", containers)
    assert [step["action"] for step in healed["steps"]] == ["update"]
    assert only(healed["status"])["id"] == before
    again = node.run("containers", containers)
    assert not again["changed"], again["diff"]
    only(containers).update(memory_bytes=0)
    assert [step["action"] for step in node.run("containers", containers)["steps"]] == ["update"]
    again = node.run("containers", containers)
    assert not again["changed"], again["diff"]


@pytest.mark.parametrize(
    ("controller", "file", "wrong", "right"),
    [
        ("memory", "memory.limit_in_bytes", str(128 << 20), str(64 << 20)),
        ("cpu", "cpu.shares", "999", "102"),
        ("cpu", "cpu.cfs_quota_us", "70000", "50000"),
    ],
)
def test_limits_written_past_docker_are_healed(
    node: TestNode, controller: str, file: str, wrong: str, right: str
) -> None:
    _, containers = node.start_pod(7, cpu_shares=102, cpu_quota_us=50000, memory_bytes=64 << 20)
    found: Any = node.docker.inspect(only(node.run("containers", containers)["status"])["id"])
    paths = parse_membership(Path(f"/proc/{found['State']['Pid']}/cgroup").read_text())
    target = Path(f"/sys/fs/cgroup/{controller}{paths.get(controller, '')}", file)
    if controller not in paths:
        target, wrong, right = version_2(paths[""], file)
    if controller == "memory" and controller in paths:
        target.with_name("memory.memsw.limit_in_bytes").write_text(wrong)
    target.write_text(wrong)
    healed = node.run("containers", containers)
    assert [step["action"] for step in healed["steps"]] == ["update"]
    assert target.read_text().strip() == right
    assert not node.run("containers", containers)["changed"]


def version_2(path: str, file: str) -> tuple[Path, str, str]:
    """Return the same file, a wrong and the right value under cgroup version 2."""
    name, wrong, right = {
        "memory.limit_in_bytes": ("memory.max", str(128 << 20), str(64 << 20)),
        "cpu.shares": ("cpu.weight", "99", "4"),
        "cpu.cfs_quota_us": ("cpu.max", "70000 100000", "50000 100000"),
    }[file]
    return Path(f"/sys/fs/cgroup{path}", name), wrong, right


def test_a_container_made_by_hand_in_its_place_is_replaced(node: TestNode) -> None:
    _, containers = node.start_pod(7, env=[["A", "right"]])
    old: Any = node.docker.inspect(only(node.run("containers", containers)["status"])["id"])
    node.docker.remove(old["Id"])
    body = {**old["Config"], "Env": ["A=wrong"], "Tty": True, "HostConfig": old["HostConfig"]}
    body.pop("Hostname")
    node.docker.start(node.docker.create(old["Name"].lstrip("/"), body))
    result = node.run("containers", containers)
    assert [step["action"] for step in result["steps"]] == ["remove", "create", "start"]
    assert "env A: 'wrong'" in result["diff"]["before"]
    assert "tty: True" in result["diff"]["before"]
    assert not node.run("containers", containers)["changed"]


def test_a_paused_container_goes_on(node: TestNode) -> None:
    _, containers = node.start_pod(7)
    command("docker", "pause", only(node.run("containers", containers)["status"])["id"])
    assert only(node.run("containers", containers)["status"])["state"] == "running"


def test_an_exited_attempt_is_left_alone_and_the_next_one_keeps_its_log(node: TestNode) -> None:
    _, containers = node.start_pod(7, entrypoint=["sh", "-c", "echo bye; exit 3"])
    entry = only(containers)
    for attempt in range(3):
        entry["attempt"] = attempt
        node.run("containers", containers)
        wait_exited(node, containers)
        left = node.run("containers", containers)
        assert not left["changed"]
        assert (only(left["status"])["exit_code"], only(left["status"])["attempt"]) == (3, attempt)
    assert sorted(attempts(node)) == [1, 2]


def attempts(node: TestNode) -> list[int]:
    """Return the attempts of the app containers that exist."""
    return [
        labels.attempt_of(each["Labels"])
        for each in node.docker.containers({labels.NODE: node.name, labels.TYPE: "app"})
    ]


def wait_exited(node: TestNode, containers: dict[str, Any]) -> None:
    """Wait until the declared container has exited."""
    until(lambda: only(node.run("containers", containers)["status"])["state"] == "exited")


def test_a_running_earlier_attempt_never_runs_beside_the_next(node: TestNode) -> None:
    _, containers = node.start_pod(7)
    only(containers)["attempt"] = 1
    result = node.run("containers", containers)
    assert [step["action"] for step in result["steps"]] == ["kill", "create", "start"]
    listed = node.docker.containers({labels.NODE: node.name, labels.TYPE: "app"})
    assert sorted(each["State"] for each in listed) == ["exited", "running"]


def test_a_stop_signals_once_and_kills_after_the_grace(node: TestNode) -> None:
    script = "trap 'echo got' TERM; echo listens; while :; do sleep 0.05; done"
    _, containers = node.start_pod(7, entrypoint=["sh", "-c", script])
    key, entry = next(iter(containers.items()))
    container = only(node.run("containers", containers)["status"])["id"]
    until(lambda: "listens" in command("docker", "logs", container))
    entry["stop"] = {"grace_s": 30}
    first = node.run("containers", containers)
    assert [step["action"] for step in first["steps"]] == ["signal"]
    assert first["due"] == [{"key": key, "after_s": 30, "reason": "GracePeriod"}]
    again = node.run("containers", containers)
    assert not again["changed"]
    assert 0 < again["due"][0]["after_s"] <= 30
    until(lambda: "got" in command("docker", "logs", container))
    time.sleep(0.3)  # for a second signal
    assert command("docker", "logs", container).count("got") == 1
    marker = Path(node.run_dir, "stopping", container)
    os.utime(marker, (time.time() - 31, time.time() - 31))
    killed = node.run("containers", containers)
    assert [step["action"] for step in killed["steps"]] == ["kill"]
    assert killed["status"][key]["exit_code"] == 137
    assert not node.run("containers", containers)["changed"]
    node.run("containers", {})
    assert not marker.exists()


def test_kept_neither_starts_nor_removes(node: TestNode) -> None:
    sandboxes, containers = node.start_pod(7, entrypoint=["true"])
    wait_exited(node, containers)
    only(containers)["state"] = "kept"
    assert not node.run("containers", containers)["changed"]
    key = next(iter(sandboxes)) + "/never"
    other = node.container(only(sandboxes), "never", state="kept")
    assert node.run("containers", {**containers, key: other})["status"][key] is None


def test_errors_are_each_keys_own(node: TestNode) -> None:
    sandboxes, containers = node.start_pod(7)
    pod = only(sandboxes)
    lost = node.pod(8)
    more = {
        "absent": node.container(pod, "absent", image="minik8s/absent:1"),
        "broken": node.container(pod, "broken", entrypoint=["/no/such/program"]),
        "tiny": node.container(pod, "tiny", memory_bytes=1),
        "odd": node.container(pod, "odd", colour="red"),
        "bad-type": node.container(pod, "bad-type", cpu_shares="many"),
        "negative": node.container(pod, "negative", oom_score_adj=-1001),
        "secret": node.container(pod, "secret", secret_env=[["P", "default/none", "p", "ab"]]),
        "lost": node.container(lost, "lost"),
    }
    declared = {**containers, **{f"{each['pod']['uid']}/{name}": each for name, each in more.items()}}
    result = node.run("containers", declared)
    reasons = {key.partition("/")[2]: error["reason"] for key, error in result["errors"].items()}
    assert reasons == {
        "absent": "ImageMissing",
        "broken": "RunContainerError",
        "tiny": "CreateContainerError",
        "odd": "InvalidEntry",
        "bad-type": "InvalidEntry",
        "negative": "InvalidEntry",
        "secret": "CreateContainerConfigError",
        "lost": "SandboxMissing",
    }
    again = node.run("containers", declared)
    assert not [step for step in again["steps"] if step["key"].endswith("/broken")]
    assert "no such file" in again["errors"][f"{pod['pod']['uid']}/broken"]["message"]


def test_volumes_are_mounted_and_a_sub_path_cannot_leave(node: TestNode) -> None:
    sandboxes, _ = node.start_pod(7)
    pod = only(sandboxes)
    uid = pod["pod"]["uid"]
    host = str(Path(node.state_dir, "host"))
    node.run("volumes", {f"{uid}/data": {"kind": "emptyDir"}, f"{uid}/host": {"kind": "hostPath", "path": host}})
    mounts: list[dict[str, Any]] = [
        {"volume": "data", "kind": "emptyDir", "target": "/data"},
        {"volume": "data", "kind": "emptyDir", "target": "/part", "sub_path": "a/b"},
        # Docker keeps paths without a slash at their end, and what it says of them is no drift
        {"volume": "host", "kind": "hostPath", "target": "/host/", "host_path": f"{host}//", "read_only": True},
    ]
    entry = node.container(pod, "writer", mounts=mounts)
    containers = {f"{uid}/writer": entry}
    result = node.run("containers", containers)
    assert not result["errors"]
    app = result["status"][f"{uid}/writer"]["id"]
    node.execute(app, "sh", "-c", "echo x > /part/file; ln -s /etc /data/out; ! touch /host/y")
    assert node.execute(app, "cat", "/data/a/b/file") == "x\n"
    assert not node.run("containers", containers)["changed"]
    for sub_path in ("out", "../../..", "/etc"):
        bad = node.container(pod, "bad", mounts=[{**mounts[0], "sub_path": sub_path}])
        errors = node.run("containers", {**containers, f"{uid}/bad": bad})["errors"]
        assert errors[f"{uid}/bad"]["reason"] in {"CreateContainerConfigError", "InvalidName"}


def test_a_host_path_of_another_type_is_not_mounted(node: TestNode) -> None:
    sandboxes, _ = node.start_pod(8)
    pod = only(sandboxes)
    key = f"{pod['pod']['uid']}/app"
    host = Path(node.state_dir, "here")
    mount = {"volume": "v", "kind": "hostPath", "target": "/v", "host_path": str(host), "host_type": "File"}
    entries = {key: node.container(pod, "app", mounts=[mount])}
    host.mkdir()
    refused = node.run("containers", entries)
    assert refused["errors"][key] == {
        "reason": "FailedMount",
        "message": f'MountVolume.SetUp failed for volume "v" : hostPath type check failed: {host} is not a file',
    }
    assert refused["status"][key] is None
    host.rmdir()
    host.write_text("x")
    assert node.run("containers", entries)["status"][key]["state"] == "running"


def test_nothing_new_begins_after_the_budget(node: TestNode) -> None:
    sandboxes, _ = node.start_pod(7)
    pod = only(sandboxes)
    entries = {f"{pod['pod']['uid']}/c{number}": node.container(pod, f"c{number}") for number in range(3)}
    none = node.run("containers", entries, context={"budget_s": 0.0})
    assert {due["key"] for due in none["due"]} >= set(entries)
    assert {due["reason"] for due in none["due"]} == {"PassBudget"}
    done = node.run("containers", entries)
    assert not done["due"]
    assert {each["state"] for each in done["status"].values()} == {"running"}


class Ticking:
    """A clock that moves on by half a second whenever it is read."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        """Return the time, and let it pass."""
        self._now += 0.5
        return self._now

    def time(self) -> float:
        """Return the real time."""
        return time.time()


def test_a_pass_ends_after_two_seconds_and_the_next_ones_do_the_rest(node: TestNode) -> None:
    sandboxes, _ = node.start_pod(7)
    pod = only(sandboxes)
    entries = {f"{pod['pod']['uid']}/c{number}": node.container(pod, f"c{number}") for number in range(4)}
    two_seconds = {"clock": Ticking(), "threads": 1, "budget_s": PASS_BUDGET_S}
    results = [node.run("containers", entries, context=two_seconds) for _ in range(3)]
    assert [bool(result["due"]) for result in results] == [True, True, False]  # nine effects, three in two seconds
    assert not any(result["errors"] for result in results)
    assert {each["state"] for each in results[-1]["status"].values()} == {"running"}


def test_a_secret_in_the_environment_is_compared_but_never_shown(node: TestNode) -> None:
    canary = "canary-5f1c9a"
    sandboxes, _ = node.start_pod(7)
    pod = only(sandboxes)
    blob = as_blob({"default/database": {"password": canary}})
    node.run("secrets", {"default/database": {"hmac": "aa", "keys": ["password"]}}, blob=blob)
    key = f"{pod['pod']['uid']}/db"
    entry = node.container(pod, "db", secret_env=[["PASSWORD", "default/database", "password", "aa"]])
    result = node.run("containers", {key: entry})
    assert not result["errors"]
    assert canary not in as_json(result)
    assert node.execute(result["status"][key]["id"], "sh", "-c", "echo $PASSWORD").strip() == canary
    assert not node.run("containers", {key: entry})["changed"]
    old: Any = node.docker.inspect(result["status"][key]["id"])
    node.docker.remove(old["Id"])
    body = {**old["Config"], "Env": ["PASSWORD=stolen"], "HostConfig": old["HostConfig"]}
    body.pop("Hostname")
    node.docker.start(node.docker.create(old["Name"].lstrip("/"), body))
    healed = node.run("containers", {key: entry})
    assert [step["action"] for step in healed["steps"]] == ["remove", "create", "start"]
    assert "stolen" not in as_json(healed)
    assert not node.run("containers", {key: entry})["changed"]


def as_blob(secrets: dict[str, dict[str, str]]) -> str:
    """Return the secrets option ``blob``."""
    import base64  # noqa: PLC0415
    import json  # noqa: PLC0415

    rows = {
        name: {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        for name, values in secrets.items()
    }
    return base64.b64encode(json.dumps(rows).encode()).decode()
