"""A private dockerd for tests that kill it: the shared one is everybody's.

with private_dockerd() as dockerd:
    dockerd.kill(); dockerd.start()          # same data, same socket; containers go on (live-restore)
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from minik8s_modules.module_utils.minik8s.core.docker import Docker, DockerError
from minik8s_modules.module_utils.minik8s.volumes import mounts

SHARED_SOCKET = os.environ.get("MINIK8S_TEST_DOCKER_SOCKET", "/var/run/docker.sock")
IMAGES = ("minik8s/pause:1", "minik8s/busybox:1")
START_S = 120


class Dockerd:
    """A dockerd of its own, with live-restore, on a socket of its own."""

    def __init__(self, root: Path) -> None:
        self.root, self.socket = root, root / "docker.sock"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        argv = ["dockerd", "-H", f"unix://{self.socket}", "--data-root", str(self.root / "data"), "--live-restore"]
        argv += ["--exec-root", str(self.root / "exec"), "--pidfile", str(self.root / "pid")]
        argv += ["--bridge=none", "--iptables=false", "--config-file", str(self.root / "none.json")]
        with (self.root / "log").open("ab") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log)
        deadline = time.monotonic() + START_S
        while not self.answers():
            assert time.monotonic() < deadline, (self.root / "log").read_text()[-2000:]
            time.sleep(0.1)

    def answers(self) -> bool:
        """Return whether it answers."""
        docker = Docker(str(self.socket), timeout_s=2)
        try:
            docker.call("GET", "/version")
        except DockerError:
            return False
        finally:
            docker.close()
        return True

    def kill(self) -> None:
        """Kill it -9; its containerd goes with it, shims and containers go on."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        (self.root / "pid").unlink(missing_ok=True)
        # where PID 1 reaps late, dockerd takes the dead containerd's pid for a running one and waits for it in vain
        (self.root / "exec" / "containerd" / "containerd.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        """Stop it, and what a start that failed has left: shims with their containers."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(timeout=START_S)
        for pid in _processes_of(str(self.root)):
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
            os.kill(pid, signal.SIGKILL)


def _processes_of(root: str) -> list[int]:
    """Return the processes that were started with our own directory as an argument."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if root in path.read_text(errors="replace"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@contextmanager
def private_dockerd() -> Iterator[Dockerd]:
    """Yield a running dockerd with the test images; everything of it is removed afterwards."""
    root = Path(tempfile.mkdtemp(prefix="mk8d-"))  # short: a unix socket's path has 107 characters at most
    (root / "none.json").write_text("{}")
    made = Dockerd(root)
    try:
        made.start()
        for image in IMAGES:
            copy = f"docker -H unix://{SHARED_SOCKET} save {image} | docker -H unix://{made.socket} load"
            subprocess.run(["sh", "-c", copy], check=True, capture_output=True, timeout=60)
        yield made
    finally:
        made.stop()
        for mount in mounts.under(str(root), mounts.mounts()):
            mounts.unmount(mount.point)
        shutil.rmtree(root)
