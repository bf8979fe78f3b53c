"""``minik8s reconciler --once``: a folder's pods are made, and who waits for what ends waiting."""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import FakeClock, rfc3339
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.cli import joining
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.reconcile.standalone import once_run, startup
from minik8s_modules.reconcile.standalone.once import MOST_TRIES, Round, Verdict
from minik8s_modules.reconcile.values.items import OnOutcome, Outcome, WorkItem
from minik8s_modules.reconcile.values.values import Settings

ANSWER = {"base_mismatch": False, "fenced": False, "due": [], "held": [], "errors": {}, "steps": [], "status": {}}
PAUSE, SERVER, JOB, BROKEN, FAR = "minik8s/pause:1", "server:1", "job:1", "broken:1", "far:1"
ENDS = {JOB: 0, BROKEN: 3}


class Machine:
    """Docker and Ansible of a machine that does at once what it is told; containers of some images end at once."""

    def __init__(self, clock: FakeClock, images: set[str], *, registry: bool = True) -> None:
        self.clock, self.there, self.registry = clock, set(images), registry
        self.made: dict[str, JsonObject] = {}
        self.asked: list[str] = []
        self.entries: dict[str, dict[str, Any]] = {}
        self._tell: OnOutcome = lambda _outcome: None

    def runner(self, tell: OnOutcome) -> Machine:
        """Be the runner of a run."""
        self._tell = tell
        return self

    def start(self) -> None:
        """Nothing is to be started."""

    def stop(self) -> None:
        """Nothing is to be stopped."""

    def cancel(self, item_id: str) -> None:
        """Everything is done at once."""

    def submit(self, item: WorkItem) -> None:
        """Do what an item says."""
        assert item.token == ()
        for section, request in item.sections.items():
            entries = self.entries.setdefault(section, {})
            if request.options["mode"] == "full":
                entries.clear()
            entries.update(request.options.get("entries") or request.options.get("upsert") or {})
            for key in request.options.get("delete") or ():
                entries.pop(key, None)
        self._make()
        digests = {section: {**ANSWER, "digest": str(sorted(self.entries[section]))} for section in item.sections}
        self._tell(Outcome(item.id, item.node, "ok", digests, ""))

    def _make(self) -> None:
        wanted: dict[str, tuple[str, Mapping[str, Any]]] = {}
        for section, kind in (("sandboxes", "sandbox"), ("containers", "")):
            for key, entry in self.entries.get(section, {}).items():
                wanted[f"{key}@{entry['attempt']}"] = (kind or entry["type"], entry)
        self.made = {one: found for one, found in self.made.items() if one in wanted}
        for one, (kind, entry) in wanted.items():
            if one not in self.made and entry.get("state") != "exited":
                self.made[one] = self._container(one, kind, entry)

    def _container(self, one: str, kind: str, entry: Mapping[str, Any]) -> JsonObject:
        code, now = ENDS.get(entry["image"]), rfc3339(self.clock.now())
        pod = entry["pod"]
        return {
            "id": one, "type": kind, "pod_uid": pod["uid"], "pod_name": pod["name"], "pod_namespace": pod["namespace"],
            "container": entry.get("name", ""), "attempt": entry["attempt"],
            "state": "running" if code is None else "exited", "exit_code": code or 0, "oom_killed": False, "error": "",
            "created_at": now, "started_at": now, "finished_at": "" if code is None else now, "image": entry["image"],
            "image_id": entry["image"], "ip": entry.get("ip") or "", "message": None,
        }  # fmt: skip

    def containers(self) -> list[JsonObject]:
        """Return what was made."""
        return list(self.made.values())

    def images(self) -> list[str]:
        """Return what is there."""
        return sorted(self.there)

    def pull(self, image: str) -> str:
        """Have an image, where there is a registry."""
        self.asked.append(image)
        if self.registry:
            self.there.add(image)
        return "" if self.registry else "no such host"


def manifest(name: str, image: str, **spec: Any) -> str:
    """Return a pod's manifest; JSON is YAML."""
    containers = [{"name": "one", "image": image}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, **spec}}
    return json.dumps(pod)


def verdicts(machine: Machine, folder: Path, cidr: str = "10.9.8.0/24") -> dict[str, Verdict]:
    turn = Round("n1", cidr, once_run.read_pods("n1", folder), Settings())
    return once_run.run(turn, machine, machine.runner, machine.clock, threading.Event())


def test_it_ends_when_each_pod_runs_or_has_succeeded(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(manifest("web", SERVER))
    (tmp_path / "b.yml").write_text(manifest("once", JOB, restartPolicy="Never"))
    machine = Machine(FakeClock(), {PAUSE, SERVER, JOB})
    found = verdicts(machine, tmp_path)
    assert found == {
        "default/web-n1": Verdict("Running", over=True, good=True),
        "default/once-n1": Verdict("Succeeded", over=True, good=True),
    }
    assert machine.entries["network"]["pod-network"]["cidr"] == "10.9.8.0/24"
    addresses = [one["ip"] for one in machine.entries["sandboxes"].values()]
    assert addresses == ["10.9.8.2"], "a pod that is over has none any more"


def test_a_second_run_starts_nothing_again_and_what_is_not_declared_goes(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(manifest("web", SERVER))
    machine = Machine(FakeClock(), {PAUSE, SERVER})
    verdicts(machine, tmp_path)
    before = dict(machine.made)
    machine.clock.advance(60)
    assert verdicts(machine, tmp_path)["default/web-n1"].good
    assert machine.made == before
    (tmp_path / "a.yml").unlink()
    assert verdicts(machine, tmp_path) == {}
    assert machine.made == {}


@pytest.mark.parametrize(("cidr", "given"), [("10.9.8.0/24", 5), ("10.9.8.0/29", 0)])
def test_an_address_is_given_again_once_the_pod_that_had_it_has_gone(tmp_path: Path, cidr: str, given: int) -> None:
    names = ["a", "b", "c", "d", "e"]
    for name in names:
        (tmp_path / f"{name}.yml").write_text(manifest(name, SERVER))
    machine = Machine(FakeClock(), {PAUSE, SERVER, JOB})
    verdicts(machine, tmp_path, cidr)
    before = {one["ip"] for one in machine.made.values() if one["ip"]}
    for name in names:  # other pods of the same names
        (tmp_path / f"{name}.yml").write_text(manifest(name, SERVER, hostname="other"))
    turn = Round("n1", cidr, once_run.read_pods("n1", tmp_path), Settings())
    turn.see(machine.containers(), machine.images(), machine.clock)
    turn.decide(machine.clock)
    assert not before & set(turn._addresses.values())
    assert len(turn._addresses) == given
    found = verdicts(machine, tmp_path, cidr)
    assert [one.word for one in found.values()] == ["Running"] * len(names)
    after = {one["ip"] for one in machine.made.values() if one["ip"]}
    assert (len(after), before == after) == (len(names), not given)


def test_images_are_pulled_and_one_that_cannot_be_had_ends_the_wait(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(manifest("web", FAR))
    assert verdicts(Machine(FakeClock(), {PAUSE}), tmp_path)["default/web-n1"].good
    machine = Machine(FakeClock(), {PAUSE}, registry=False)
    found = verdicts(machine, tmp_path)["default/web-n1"]
    assert (found.good, found.word) == (False, "far:1 cannot be pulled: no such host")
    assert machine.asked == [FAR] * MOST_TRIES


def test_a_container_that_never_stays_up_ends_the_wait(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(manifest("web", BROKEN))
    found = verdicts(Machine(FakeClock(), {PAUSE, BROKEN}), tmp_path)["default/web-n1"]
    assert not found.good
    assert "CrashLoopBackOff" in found.word
    (tmp_path / "a.yml").write_text(manifest("web", BROKEN, restartPolicy="Never"))
    assert verdicts(Machine(FakeClock(), {PAUSE, BROKEN}), tmp_path)["default/web-n1"].word.startswith("Failed")


def test_more_pods_than_addresses_wait_and_say_so(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.yml").write_text(manifest(f"web{number}", SERVER))
    turn = Round("n1", "10.9.8.0/29", once_run.read_pods("n1", tmp_path), Settings())
    machine = Machine(FakeClock(), {PAUSE, SERVER})
    turn.see([], machine.images(), machine.clock)
    turn.decide(machine.clock)
    assert sorted(one.address_wanted for one in turn.state.decisions.values()) == [False] * 6
    assert len({*turn._addresses.values()}) == 5


def of_one(**fields: Any) -> str:
    """Return the manifest of a pod whose container has these fields."""
    return manifest("web", SERVER, containers=[{"name": "a", "image": SERVER, **fields}])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: Service", "does not hold a v1 Pod"),
        (manifest("web", SERVER, volumes=[{"name": "v", "configMap": {"name": "c"}}]), "objects of the API"),
        (of_one(livenessProbe={"exec": {"command": ["x"]}}), "nobody stays to run a livenessProbe"),
        (of_one(lifecycle={"preStop": {"sleep": {"seconds": 1}}}), "nobody stays to run lifecycle hooks"),
    ],
)
def test_what_cannot_run_so_is_refused_before_anything_is_made(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "a.yml").write_text(text)
    with pytest.raises(ConfigurationError, match=words):
        once_run.read_pods("n1", tmp_path)


def test_a_node_of_a_cluster_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # this process logs as pytest wants it, and goes on with its own signals, when the program has ended
    monkeypatch.setattr(startup, "configure", lambda _level: None)
    monkeypatch.setattr(startup, "stop_on_signals", threading.Event)
    (tmp_path / "pods").mkdir()
    state = tmp_path / "state"
    state.mkdir()
    (state / "token.json").write_text('{"token": [1, 2]}')
    options = ["--once", "--node=n1", f"--manifests={tmp_path}/pods", "--pod-cidr=10.9.8.0/24", f"--state-dir={state}"]
    assert startup.main([*options, f"--run-dir={tmp_path}/run", "--docker-socket=/nowhere"]) == 2
    assert "is a node's of a cluster" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_settings_and_ranges_are_looked_at(tmp_path: Path) -> None:
    assert once_run.settings_of({"bridge": "br9"}).bridge == "br9"
    with pytest.raises(ConfigurationError, match="proxy_mode would do nothing"):
        once_run.settings_of({"proxy_mode": "ipvs"})
    for wrong in ("10.0.0.1/24", "x", "10.0.0.0/30"):
        with pytest.raises(ConfigurationError, match="--pod-cidr"):
            once_run.check_cidr(wrong)
    with pytest.raises(ConfigurationError, match="No such file"):
        once_run.read_pods("n1", tmp_path / "missing")


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    joining.declare(parser.add_subparsers())
    return parser.parse_args(["reconciler", *words])


def test_the_command_line_belongs_to_a_cluster_or_to_none() -> None:
    found = joining.program(parsed("--once", "--node", "n1", "--manifests", "/pods"))
    assert {"--once", "--node=n1", "--manifests=/pods", "--pod-cidr=10.244.0.0/24"} <= {*found}
    for words in (
        ["--once", "--node", "n1"],
        ["--once", "--manifests", "/pods"],
        ["--once", "--node", "n1", "--manifests", "/pods", "-j", "192.0.2.1"],
        ["--node", "n1"],
        ["-j", "192.0.2.1", "--manifests", "/pods"],
    ):
        with pytest.raises(UsageError):
            joining.program(parsed(*words))
