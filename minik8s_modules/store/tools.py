"""Snapshots, by etcd's own programs (etcdctl of 3.4, etcdutl of 3.5 and newer), and an etcd of our own for a while.

The etcd of our own listens on Unix sockets in a directory only we can enter, because a restored store holds
every Secret and etcd itself would ask nobody who he is.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.store import maintenance
from minik8s_modules.store.errors import StoreError, StoreUnavailable
from minik8s_modules.store.etcd import EtcdStore
from minik8s_modules.store.wire.connection import Tls

START_TIMEOUT_S = 120.0  # reading back a database of some gigabytes takes a while
STOP_TIMEOUT_S = 60.0


class ToolError(StoreError):
    """A program of etcd's failed; the message holds what it said."""


class Snapshot(NamedTuple):
    """What a snapshot file holds; ``keys`` counts old versions too."""

    revision: int
    keys: int
    size_bytes: int


class Member(NamedTuple):
    """Which member of which cluster a data directory is for, as etcd's options of these names."""

    name: str = "default"
    initial_cluster: str = ""
    initial_advertise_peer_urls: str = ""
    initial_cluster_token: str = ""

    def options(self) -> list[str]:
        """Return those given as options of ``snapshot restore``."""
        pairs = ((f"--{field.replace('_', '-')}", value) for field, value in self._asdict().items())
        return [part for pair in pairs if pair[1] for part in pair]


def save(endpoint: str, tls: Tls | None, file: Path) -> None:
    """Write a snapshot of the member at ``endpoint`` to ``file``, readable by us only."""
    with tempfile.TemporaryDirectory(prefix=".minik8s-save-", dir=file.parent) as private:
        written = Path(private) / "snapshot"
        with written.open("xb") as output:
            maintenance.snapshot(endpoint, tls, output)
            os.fsync(output.fileno())
        written.chmod(0o600)
        written.replace(file)


def status(file: Path) -> Snapshot:
    """Return what ``file`` holds."""
    if not file.is_file():
        raise ConfigurationError(f"there is no snapshot {file}")
    found = json.loads(_run([_offline(), "snapshot", "status", str(file), "--write-out", "json"]))
    return Snapshot(found["revision"], found["totalKey"], file.stat().st_size)


def can_bump() -> bool:
    """Return whether etcd's restore can raise the revision itself (etcdutl 3.5.9 and newer)."""
    answer = subprocess.run([_offline(), "snapshot", "restore", "--help"], capture_output=True, check=False)
    return b"--bump-revision" in answer.stdout + answer.stderr


def restore(file: Path, data_dir: Path, member: Member, *, bump: int = 0) -> None:
    """Make the data directory ``data_dir`` from ``file``; etcd checks the file's hash."""
    bumping = ["--bump-revision", str(bump), "--mark-compacted"] if bump else []
    data = ["--data-dir", str(data_dir)]
    _run([_offline(), "snapshot", "restore", str(file), *data, *member.options(), *bumping])


class TemporaryEtcd(NamedTuple):
    """A running etcd and its store."""

    endpoint: str
    store: EtcdStore


@contextlib.contextmanager
def temporary_etcd(data_dir: Path) -> Iterator[TemporaryEtcd]:
    """Serve ``data_dir`` (of a cluster with one member) inside the block; stopped orderly at its end."""
    with tempfile.TemporaryDirectory(prefix="minik8s-etcd-") as sockets:
        argv = [_program("etcd"), "--data-dir", str(data_dir)]
        # etcd wants HOST:PORT and makes a socket of that name in its working directory
        argv += ["--listen-client-urls", "unix://client:1", "--advertise-client-urls", "unix://client:1"]
        argv += ["--listen-peer-urls", "unix://peer:1"]
        argv += [
            "--heartbeat-interval",
            "10",
            "--election-timeout",
            "100",
        ]  # a lone member need not wait to elect itself
        log = Path(sockets) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(argv, cwd=sockets, stdout=output, stderr=output, env=_environment())
        endpoint = f"unix://{sockets}/client:1"
        store = EtcdStore([endpoint])
        try:
            _wait_started(process, store, Path(sockets) / "client:1", log)
            yield TemporaryEtcd(endpoint, store)
        finally:
            store.close()
            _stop(process)


def _wait_started(process: subprocess.Popen[bytes], store: EtcdStore, socket: Path, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        if socket.exists():
            with contextlib.suppress(StoreUnavailable):
                store.revision()
                return
        time.sleep(0.05)
    raise ToolError(f"etcd cannot serve the restored data: {log.read_text(errors='replace')[-2000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _offline() -> str:
    return shutil.which("etcdutl") or _program("etcdctl")


def _program(name: Literal["etcd", "etcdctl"]) -> str:
    found = shutil.which(name)
    if not found:
        package = {"etcd": "etcd-server", "etcdctl": "etcd-client"}[name]
        raise ConfigurationError(f"{name} is not installed; on Debian: apt-get install {package}")
    return found


def _run(argv: Sequence[str]) -> str:
    name = f"{Path(argv[0]).name} {_verb(argv)}"
    try:
        answer = subprocess.run(
            argv, capture_output=True, text=True, check=False, env=_environment(), timeout=maintenance.TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise ToolError(f"{name} was not done after {maintenance.TIMEOUT_S:g} s and was ended") from error
    if answer.returncode:
        lines = answer.stderr.strip().splitlines()
        said = [line for line in lines if line.startswith("Error")] or lines[-3:]
        raise ToolError(f"{name} failed: {'; '.join(said) or 'it said nothing'}")
    return answer.stdout


def _verb(argv: Sequence[str]) -> str:
    at = argv.index("snapshot")
    return " ".join(argv[at : at + 2])


def _environment() -> dict[str, str]:
    # etcd and etcdctl read every ETCD_* and ETCDCTL_* variable as an option
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ETCD_", "ETCDCTL_"))}
    return {**kept, "ETCDCTL_API": "3"}
