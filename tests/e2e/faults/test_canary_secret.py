"""A random secret, used as variables and as files: it is in the container and on tmpfs, and nowhere else."""

from __future__ import annotations

import base64
import json
import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from minik8s_modules.api.kinds import CONFIG_MAP, EVENT, POD, POD_ADDRESS, SECRET
from tests.support.clusters.installed import IMAGE, RUN, STATE, Installed

LOGS = Path("/var/log")
TMPFS = RUN / "secrets"
RUNNER = RUN / "runner"
PAUSE_S = 0.02


class Canary:
    """A value that nothing contains by chance, and the forms in which it could leak."""

    def __init__(self) -> None:
        self.text = f"c4n4ry-{secrets.token_hex(12)}"
        raw = self.text.encode()
        shifted = [base64.b64encode(b"x" * shift + raw)[4 if shift else 0 : -4] for shift in range(3)]
        self.forms = [raw, raw.hex().encode(), *shifted]

    def inside(self, data: bytes) -> bool:
        """Return whether ``data`` shows the secret, plain, in hex, or within any base64."""
        return any(form in data for form in self.forms)

    def files(self, *roots: Path) -> list[str]:
        """Return the files below ``roots`` that show it."""
        folders = (found for root in roots for found in os.walk(root))
        paths = (Path(folder, name) for folder, _, names in folders for name in names)
        return [str(path) for path in paths if self.shown_by(path)]

    def shown_by(self, path: Path) -> bool:
        """Return whether the file shows it; a file that has gone does not."""
        try:
            return path.is_file() and not path.is_symlink() and self.inside(path.read_bytes())
        except OSError:
            return False


class Lookout:
    """Reads every command line, the runner's directory and temporary directories again and again."""

    def __init__(self, canary: Canary) -> None:
        self._canary, self._stop = canary, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.found: list[str] = []
        self.rounds = 0

    def _run(self) -> None:
        while not self._stop.wait(PAUSE_S):
            self.rounds += 1
            self.found += self._canary.files(RUNNER)
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                if self._canary.shown_by(path):
                    self.found.append(f"{path}: {path.read_text()[:200]}")

    @contextmanager
    def watching(self) -> Iterator[Lookout]:
        """Look during the block."""
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()


def manifest(namespace: str, text: str) -> str:
    """Return the secret and a pod that uses it in every way there is."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "canary", "namespace": namespace},
        "stringData": {"value": text},
    }
    container = {
        "name": "app",
        "image": IMAGE,
        "command": ["sleep", "36000"],
        "env": [
            {"name": "ONE", "valueFrom": {"secretKeyRef": {"name": "canary", "key": "value"}}},
            {"name": "PART", "value": "db://user:$(ONE)@host"},
        ],
        "envFrom": [{"secretRef": {"name": "canary"}, "prefix": "ALL_"}],
        "volumeMounts": [{"name": "files", "mountPath": "/secret"}],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "user", "namespace": namespace},
        "spec": {"containers": [container], "volumes": [{"name": "files", "secret": {"secretName": "canary"}}]},
    }
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [secret, pod]})


def processes_showing(canary: Canary) -> list[str]:
    """Return the processes whose command line or environment shows it."""
    return [
        f"{name} of {process.pid} {process.name()}"
        for process in psutil.process_iter()
        for name in ("cmdline", "environ")
        if canary.shown_by(Path(f"/proc/{process.pid}/{name}"))
    ]


def test_a_secret_shows_nowhere_but_in_its_container_and_on_tmpfs(cluster: Installed, namespace: str) -> None:
    canary = Canary()
    shown: dict[str, bytes] = {}
    objects = manifest(namespace, canary.text)
    with Lookout(canary).watching() as lookout:
        stored = json.loads(objects)["items"][0]
        cluster.admin.create(SECRET, stored)
        plan = cluster.minik8s("plan", "--full", "-f", "-", stdin=json.dumps(json.loads(objects)["items"][1]))
        assert "user" in plan.stdout, plan.stderr
        shown["plan"] = (plan.stdout + plan.stderr).encode()
        cluster.admin.create(POD, json.loads(objects)["items"][1])
        uid = cluster.pods(namespace)["user"]["metadata"]["uid"]
        cluster.until(lambda: cluster.ready("user", namespace))
        drift = cluster.minik8s("drift")
        shown["drift"] = (drift.stdout + drift.stderr).encode()
        container = next(one for name, one in cluster.containers(uid).items() if "_POD_" not in name)
        script = "cat /secret/value; echo; echo $ONE; echo $PART; echo $ALL_value"
        inside = cluster.execute(container, "sh", "-c", script).split()
        for kind in (EVENT, POD_ADDRESS, CONFIG_MAP, POD):
            shown[kind.plural] = json.dumps(cluster.admin.list(kind).items).encode()
        shown["described"] = cluster.kubectl("describe", "pod,secret", "-n", namespace).stdout.encode()
        held = cluster.docker.inspect(container)
        assert held is not None
        environments = processes_showing(canary)
        time.sleep(0.5)
    assert inside == [canary.text, canary.text, f"db://user:{canary.text}@host", canary.text]
    assert {name for name, data in shown.items() if canary.inside(data)} == set()
    assert lookout.found == []
    assert lookout.rounds > 3
    assert environments == [f"environ of {held['State']['Pid']} {psutil.Process(held['State']['Pid']).name()}"]
    assert canary.files(STATE, LOGS, RUN / "gateway", Path("/etc/minik8s")) == []
    on_tmpfs = canary.files(RUN)
    assert on_tmpfs
    assert all(path.startswith(str(TMPFS)) for path in on_tmpfs), on_tmpfs
    assert all(is_on_tmpfs(Path(path)) for path in on_tmpfs)


def is_on_tmpfs(path: Path) -> bool:
    """Return whether a file lies in memory."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    holding = max((one for one in mounts if str(path).startswith(one[1])), key=lambda one: len(one[1]))
    return holding[2] == "tmpfs"


def test_a_deleted_secret_leaves_tmpfs_with_its_pod(cluster: Installed, namespace: str) -> None:
    canary = Canary()
    cluster.kubectl("apply", "-f", "-", stdin=manifest(namespace, canary.text))
    cluster.until(lambda: cluster.ready("user", namespace))
    assert canary.files(RUN)
    cluster.admin.delete(POD, "user", namespace, grace_s=0)
    cluster.until(lambda: not canary.files(RUN, STATE), 60, "the secret stays on the node")
    assert processes_showing(canary) == []
