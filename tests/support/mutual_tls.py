"""A real Envoy as the sidecar of a Pod that takes mutual TLS, in the Pod's network, with what a pilot would tell it."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.mesh.authorizations.guards import Guard
from minik8s_modules.mesh.identities.securing import inbound, secrets
from tests.support.docker.envoy import ROLE, envoy_program
from tests.support.pki import Authority
from tests.support.waiting import until

_SIDECAR = ("setpriv", "--reuid", "1337", "--regid", "1337", "--clear-groups")


def bootstrap(mode: str, mesh: Authority, guard: Guard | None = None) -> JsonObject:
    """Return what the Envoy begins with: what sidecars do, and of what a pilot tells the listeners and secrets."""
    made: JsonObject = yaml.safe_load((ROLE / "files/bootstrap.yaml").read_text())
    del made["dynamic_resources"]
    own = mesh.issue("served", "sidecar")
    told = secrets(own.cert.read_text(), own.key.read_text(), mesh.ca.read_text())
    made["static_resources"]["secrets"] = [each.body for each in told]
    listeners = [inbound(mode, ipv6=each, guard=guard).body for each in (False, True)]
    made["static_resources"]["listeners"] += [_told_at_once(each) for each in listeners]
    return made


def _told_at_once(value: Any) -> Any:
    """Return a resource whose secrets are those of the bootstrap."""
    if isinstance(value, dict):
        return {name: _told_at_once(each) for name, each in value.items() if name != "sds_config"}
    return [_told_at_once(each) for each in value] if isinstance(value, list) else value


@contextmanager
def sidecar(pid: int, mode: str, mesh: Authority) -> Iterator[None]:
    """Run it in the network of a process, until it listens."""
    with running(["nsenter", "-t", str(pid), "-n"], bootstrap(mode, mesh)):
        yield


@contextmanager
def running(inside: list[str], made: JsonObject) -> Iterator[None]:
    """Run an Envoy where ``inside`` leads, with what it begins with, until it listens."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        config = Path(folder) / "bootstrap.yaml"
        config.write_text(yaml.safe_dump(made))
        options = ["--config-path", str(config), "--concurrency", "1", "--use-dynamic-base-id", "--log-level", "warn"]
        with (Path(folder) / "log").open("w+") as log:
            envoy = subprocess.Popen(
                [*inside, *_SIDECAR, str(envoy_program()), *options], stdout=log, stderr=subprocess.STDOUT
            )
            try:
                until(lambda: _listens(inside) or envoy.poll() is not None)
                assert envoy.poll() is None, (Path(folder) / "log").read_text()
                yield
            finally:
                envoy.kill()
                envoy.wait()


def _listens(inside: list[str]) -> bool:
    words = [*inside, "ss", "-Hltn", "sport = :15008"]
    return len(subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()) > 1
