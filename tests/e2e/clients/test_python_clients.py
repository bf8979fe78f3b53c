"""Python clients from PyPI, each a program of ``programs/`` that asserts by itself, in an environment of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.clients.conftest import Running
from tests.support.apiserver import ApiServerProcess
from tests.support.clients import python_clients
from tests.support.installed import KUBECONFIG

PROGRAMS = Path(__file__).parent / "programs"


def run(program: str, *arguments: str | Path) -> None:
    argv = [str(python_clients() / "python"), str(PROGRAMS / f"{program}.py"), *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("program", ["official", "with_lightkube", "with_kr8s"])
def test_objects(server: ApiServerProcess, namespace: str, program: str):
    run(program, server.kubeconfig, namespace)


@pytest.mark.parametrize("program", ["official_streams", "with_kr8s"])
def test_commands_and_logs_of_a_running_pod(running: Running, program: str):
    run(program, KUBECONFIG, running.namespace, running.pod)


@pytest.fixture
def operator(server: ApiServerProcess, namespace: str, tmp_path: Path) -> Iterator[Path]:
    """A kopf operator at work; gives its log."""
    log = tmp_path / "operator.log"
    argv = [str(python_clients() / "kopf"), "run", str(PROGRAMS / "operator_on_config_maps.py"), "-n", namespace]
    with log.open("w") as output:
        environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig)}
        process = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT, env=environment)
    yield log
    process.send_signal(signal.SIGINT)
    try:
        assert process.wait(30) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def until(condition: Callable[[], object], log: Path) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def test_an_operator_made_with_kopf(server: ApiServerProcess, namespace: str, operator: Path):
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    body = {"metadata": {"name": "a", "labels": {"op": "yes"}}, "data": {"a": "b"}}
    assert server.request("POST", path, body).code == 201

    def seen() -> str:
        metadata = server.request("GET", f"{path}/a").json["metadata"]
        assert metadata.get("finalizers") in (None, ["example.com/operator"])
        return str(metadata.get("annotations", {}).get("seen"))

    until(lambda: seen() == "created", operator)
    until(lambda: "attending a" in operator.read_text(), operator)
    merge = {"Content-Type": "application/merge-patch+json"}
    server.request("PATCH", f"{path}/a", {"data": {"a": "c"}}, headers=merge)
    until(lambda: seen() == "updated to c", operator)

    def events() -> list[str]:
        items = server.request("GET", f"/api/v1/namespaces/{namespace}/events").json["items"]
        return [item["message"] for item in items if item["involvedObject"]["name"] == "a"]

    until(lambda: events() == ["a ConfigMap was made"], operator)
    deleted = server.request("DELETE", f"{path}/a").json
    assert "deletionTimestamp" in json.dumps(deleted)
    until(lambda: server.request("GET", f"{path}/a").code == 404, operator)
    told = operator.read_text()
    assert "deleted a" in told
    assert "attended a" in told
    assert "Traceback" not in told
