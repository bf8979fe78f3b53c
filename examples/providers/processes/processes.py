"""A provider whose containers are processes of this machine.

What it knows of them lies in ``<state_dir>/<uid of the Pod>/``:

pod.json                  the Pod as it was given last
<container>.lock          held by the process as long as it runs: no crash of ours starts a second one
<container>.pid, .exit    its process group, and what it ended with
<container>.log           what it wrote
deleted                   somebody asked for the end of the Pod
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.virtual.errors import InvalidInput, NotFound
from minik8s_modules.virtual.provider import AttachIO, ContainerLogOptions, InitConfig, Provider

# the shell notes its process group, runs the command, and notes how that ended, each by a rename
_WRAPPER = 'echo $$ >"$BASE.p" && mv "$BASE.p" "$BASE.pid"; "$@"; echo $? >"$BASE.e" && mv "$BASE.e" "$BASE.exit"'
_REFUSED = ("initContainers", "volumes", "securityContext", "hostNetwork")


class Processes(Provider):
    """See the top of this file."""

    def __init__(self, config: InitConfig) -> None:
        if not config.state_dir:
            raise ConfigurationError("processes: a directory is needed: --state-dir DIR")
        self._config, self._folder, self._lock = config, Path(config.state_dir), threading.Lock()
        for folder in self._folder.glob("*/"):  # begun before a crash, and not all of it started
            self._start(folder, json.loads((folder / "pod.json").read_text()))

    def create_pod(self, pod: dict[str, Any]) -> None:
        """Start the Pod's processes; those that run already are left alone."""
        _check(pod)
        with self._lock:
            folder = self._folder / pod["metadata"]["uid"]
            folder.mkdir(mode=0o700, exist_ok=True)
            self._write(folder, pod)
            self._start(folder, pod)

    def update_pod(self, pod: dict[str, Any]) -> None:
        """Note labels and annotations; processes run on."""
        with self._lock:
            folder = self._find(pod["metadata"]["namespace"], pod["metadata"]["name"])
            self._write(folder, pod)

    def delete_pod(self, pod: dict[str, Any]) -> None:
        """Ask the processes to end, and end them when their grace is over."""
        with self._lock:
            folder = self._find(pod["metadata"]["namespace"], pod["metadata"]["name"])
            (folder / "deleted").touch()
            self._signal(folder, signal.SIGTERM)
        grace_s = pod["metadata"].get("deletionGracePeriodSeconds") or 1
        timer = threading.Timer(grace_s, self._signal, (folder, signal.SIGKILL))
        timer.daemon = True
        timer.start()

    def get_pod(self, namespace: str, name: str) -> dict[str, Any]:
        """Return the Pod with its status."""
        with self._lock:
            return self._read(self._find(namespace, name))

    def get_pod_status(self, namespace: str, name: str) -> dict[str, Any]:
        """Return its status, by what its processes do now."""
        return dict(self.get_pod(namespace, name)["status"])

    def get_pods(self) -> list[dict[str, Any]]:
        """Return all Pods there are folders of."""
        with self._lock:
            return [self._read(folder) for folder in self._folders()]

    def configure_node(self, node: dict[str, Any]) -> dict[str, Any]:
        """Give the node what the machine has."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024
        capacity = {"cpu": str(os.cpu_count() or 1), "memory": f"{memory}Ki", "pods": "100"}
        return {**node, "status": {**node.get("status", {}), "capacity": capacity, "allocatable": dict(capacity)}}

    def get_container_logs(
        self, namespace: str, pod: str, container: str, options: ContainerLogOptions
    ) -> Iterator[bytes]:
        """Return what the process wrote; times and former processes' logs are not kept."""
        if options.timestamps or options.previous or options.since_seconds or options.since_time:
            raise InvalidInput("processes: the log has no times, and only that of the last process is kept")
        with self._lock:
            base = self._container(namespace, pod, container)
        return _log(base, options)

    def run_in_container(self, namespace: str, pod: str, container: str, command: list[str], streams: AttachIO) -> int:
        """Run a command beside the process, without a terminal."""
        if streams.tty:
            raise InvalidInput("processes: there are no terminals; leave out -t")
        with self._lock:
            self._container(namespace, pod, container)
        given = b""
        while streams.stdin is not None and (piece := streams.stdin.read(65536)):
            given += piece
        done = subprocess.run(command, input=given, capture_output=True, check=False)
        for stream, data in ((streams.stdout, done.stdout), (streams.stderr, done.stderr)):
            if stream is not None and data:
                stream.write(data)
        return done.returncode

    # ------------------------------------------------------------------ folders and processes

    def _folders(self) -> Iterator[Path]:
        """Yield the folders of Pods; those that were deleted and have ended are removed on the way."""
        for folder in sorted(self._folder.glob("*/")):
            pod = json.loads((folder / "pod.json").read_text())
            alive = [one["name"] for one in pod["spec"]["containers"] if _is_running(folder / one["name"])]
            if (folder / "deleted").exists() and not alive:
                shutil.rmtree(folder)
            else:
                yield folder

    def _find(self, namespace: str, name: str) -> Path:
        for folder in self._folders():
            meta = json.loads((folder / "pod.json").read_text())["metadata"]
            if (meta["namespace"], meta["name"]) == (namespace, name):
                return folder
        raise NotFound(f"no processes of pod {namespace}/{name} are here")

    def _container(self, namespace: str, pod: str, container: str) -> Path:
        folder = self._find(namespace, pod)
        named = {one["name"] for one in json.loads((folder / "pod.json").read_text())["spec"]["containers"]}
        if container not in named:
            raise NotFound(f"pod {namespace}/{pod} has no container {container}")
        return folder / container

    @staticmethod
    def _write(folder: Path, pod: dict[str, Any]) -> None:
        (folder / "pod.tmp").write_text(json.dumps(pod))
        (folder / "pod.tmp").replace(folder / "pod.json")

    def _start(self, folder: Path, pod: dict[str, Any]) -> None:
        for container in pod["spec"]["containers"]:
            base = folder / container["name"]
            if not Path(f"{base}.exit").exists():
                _start(base, container)

    def _read(self, folder: Path) -> dict[str, Any]:
        pod: dict[str, Any] = json.loads((folder / "pod.json").read_text())
        pod["status"] = _status(folder, pod)
        return pod

    @staticmethod
    def _signal(folder: Path, number: signal.Signals) -> None:
        for file in folder.glob("*.pid"):
            if _is_running(file.with_suffix("")):  # else the number may be another's by now
                with contextlib.suppress(OSError, ValueError):
                    os.killpg(int(file.read_text()), number)


def _check(pod: dict[str, Any]) -> None:
    for field in _REFUSED:
        if pod["spec"].get(field):
            raise InvalidInput(f"processes: spec.{field} is not possible here; leave it out")
    for container in pod["spec"]["containers"]:
        if not container.get("command"):
            raise InvalidInput(f"processes: container {container['name']} needs a command: there are no images here")


def _start(base: Path, container: dict[str, Any]) -> None:
    lock = os.open(f"{base}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # it runs
    else:
        variables = {one["name"]: one["value"] for one in container.get("env") or []}
        # a session of its own, and no child of ours: it is init's to bury
        argv = ["setsid", "--fork", "sh", "-c", _WRAPPER, "sh", *container["command"], *(container.get("args") or [])]
        with Path(f"{base}.log").open("ab") as log:
            subprocess.run(
                argv,
                env={**os.environ, **variables, "BASE": str(base)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock,),
                check=True,
            )
    finally:
        os.close(lock)


def _is_running(base: Path) -> bool:
    try:
        lock = os.open(f"{base}.lock", os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _status(folder: Path, pod: dict[str, Any]) -> dict[str, Any]:
    began = _time((folder / "pod.json").stat().st_ctime)
    told = [_container_status(folder / one["name"], one) for one in pod["spec"]["containers"]]
    codes = [one["state"]["terminated"]["exitCode"] for one in told if "terminated" in one["state"]]
    phase = "Running" if len(codes) < len(told) else "Failed" if any(codes) else "Succeeded"
    ready = "True" if phase == "Running" else "False"
    conditions = [{"type": kind, "status": ready} for kind in ("ContainersReady", "Ready")]
    return {"phase": phase, "startTime": began, "conditions": conditions, "containerStatuses": told}


def _container_status(base: Path, container: dict[str, Any]) -> dict[str, Any]:
    running, ended = _is_running(base), Path(f"{base}.exit")
    began = _time(Path(f"{base}.lock").stat().st_ctime) if Path(f"{base}.lock").exists() else None
    state: dict[str, Any] = {"running": {"startedAt": began}}
    if not running:
        # without a note it was killed together with its shell
        code = int(ended.read_text()) if ended.exists() else 128 + signal.SIGKILL
        state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "startedAt": began}}
    known = {"name": container["name"], "image": container.get("image", ""), "imageID": "", "restartCount": 0}
    return {**known, "ready": running, "started": running, "state": state}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _log(base: Path, options: ContainerLogOptions) -> Iterator[bytes]:
    with Path(f"{base}.log").open("rb") as file:
        lines = file.readlines()
        yield b"".join(lines[-options.tail :] if options.tail > 0 else [] if options.tail == 0 else lines)
        while options.follow:
            data = file.read()
            yield data
            if not data:
                if not _is_running(base):
                    return
                time.sleep(0.5)
