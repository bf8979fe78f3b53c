"""Python clients from PyPI, each a program of ``programs/`` that asserts by itself, in an environment of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.clients.conftest import Running
from tests.support.apiserver import ApiServerProcess
from tests.support.clients import python_clients
from tests.support.clusters.installed import KUBECONFIG

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
    with operating(server, "operator_on_config_maps", namespace, tmp_path / "operator.log") as log:
        yield log


@contextmanager
def operating(server: ApiServerProcess, program: str, namespace: str, log: Path, ends: str = "") -> Iterator[Path]:
    """Run a kopf operator; gives its log. ``ends``: an error of kopf's that it may end with by itself."""
    argv = [str(python_clients() / "kopf"), "run", str(PROGRAMS / f"{program}.py"), "-n", namespace]
    with log.open("w") as output:
        environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig)}
        process = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT, env=environment)
    yield log
    process.send_signal(signal.SIGINT)
    try:
        assert process.wait(60) == 0 or (ends and ends in log.read_text()), log.read_text()
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
    message = operator.read_text()
    assert "deleted a" in message
    assert "attended a" in message
    assert "Traceback" not in message


def test_an_operator_with_a_kind_of_its_own(server: ApiServerProcess, namespace: str, tmp_path: Path):
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    spec = {"type": "object", "properties": {"size": {"type": "integer"}}}
    version = {
        "name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
    }  # fmt: skip
    names = {"plural": "widgets", "kind": "Widget"}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    server.kubectl("create", "-f", "-", stdin=json.dumps(definition))
    server.kubectl("wait", "--for=condition=Established", "crd/widgets.example.com")
    path = f"/apis/example.com/v1/namespaces/{namespace}/widgets"

    def seen() -> int | None:
        size: int | None = server.request("GET", f"{path}/a").json.get("status", {}).get("size")
        return size

    # kopf watches its kind again at once, as clients do of Kubernetes, and ends when the definition has gone
    gone = "APINotFoundError: ('the server could not find the requested resource'"
    with operating(server, "operator_on_widgets", namespace, tmp_path / "operator.log", gone) as log:
        assert server.request("POST", path, {"metadata": {"name": "a"}, "spec": {"size": 3}}).code == 201
        until(lambda: seen() == 3, log)
        merge = {"Content-Type": "application/merge-patch+json"}
        server.request("PATCH", f"{path}/a", {"spec": {"size": 5}}, headers=merge)
        until(lambda: seen() == 5, log)
        assert server.request("GET", f"{path}/a").json["metadata"]["generation"] == 2
        server.kubectl("delete", "crd", "widgets.example.com", "--timeout=60s")
        until(lambda: "deleted a" in log.read_text(), log)
