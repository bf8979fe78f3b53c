"""A Prometheus of Debian trixie as a process on a port of its own; it scrapes nothing but what a test names.

Prometheus(folder, jobs).start() waits until it is ready; ``targets(job)`` tells what it has found. ``more`` are further
parts of its configuration.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from tests.support.clients import prometheus
from tests.support.etcd import free_port

START_TIMEOUT_S = 60.0


class Prometheus:
    """One Prometheus with its files below ``directory``."""

    def __init__(self, directory: Path, jobs: list[dict[str, Any]], **more: Any) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._log = directory / "prometheus.log"
        self._config = directory / "prometheus.yml"
        document = {"global": {"scrape_interval": "1s"}, "scrape_configs": jobs, **more}
        self._config.write_text(yaml.safe_dump(document), encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Prometheus:
        """Start the process and wait until it is ready."""
        argv = [
            str(prometheus()),
            f"--config.file={self._config}",
            f"--storage.tsdb.path={self._directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(argv, stdout=log, stderr=log, cwd=self._directory)
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self._get("/-/ready")
            except OSError:
                assert self._process.poll() is None, self.log()
                assert time.monotonic() < deadline, self.log()
                time.sleep(0.1)
            else:
                return self

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def log(self) -> str:
        """Return what it said."""
        return self._log.read_text(encoding="utf-8")

    def targets(self, job: str) -> list[dict[str, Any]]:
        """Return the active targets of a job, with ``discoveredLabels``, ``labels``, ``health``."""
        found = json.loads(self._get("/api/v1/targets?state=active"))["data"]["activeTargets"]
        return [target for target in found if target["scrapePool"] == job]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the vector an expression gives now."""
        quoted = urllib.parse.quote(expression)
        result: list[dict[str, Any]] = json.loads(self._get(f"/api/v1/query?query={quoted}"))["data"]["result"]
        return result

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    def data(self, path: str) -> Any:
        """Return the data of a path below /api/v1."""
        return json.loads(self._get(f"/api/v1/{path}"))["data"]

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=60) as answer:
            body: bytes = answer.read()
        return body
