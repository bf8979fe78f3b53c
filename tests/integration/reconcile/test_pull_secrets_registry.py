"""Images of a registry that asks who wants them: Debian's docker-registry with htpasswd, on loopback."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from minik8s_modules.api.kinds import SECRET, SERVICE_ACCOUNT
from minik8s_modules.module_utils.minik8s.core.docker import Docker
from tests.integration.reconcile.conftest import IMAGE, Cluster
from tests.support.docker import debian
from tests.support.etcd import free_port
from tests.support.node import SOCKET, command

USER, PASSWORD = "puller", "pa55-of-the-registry"
# bcrypt of PASSWORD, cost 4 (htpasswd -nbBC 4): the registry takes no other form
HTPASSWD = "puller:$2b$04$abcdefghijklmnopqrstuulDxN9oRQtQQUyfhVpfRYp6pfiExh3De\n"


class Registry(NamedTuple):
    """A running registry with one image; ``image`` is not on this machine."""

    host: str
    image: str


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with tempfile.TemporaryDirectory(prefix="mk8s-registry-") as work:
        folder = Path(work)
        program = next((debian.unpack("bookworm", ["docker-registry"], folder) / "usr/bin").glob("*registry*"))
        host = f"127.0.0.1:{free_port()}"
        (folder / "htpasswd").write_text(HTPASSWD)
        settings: dict[str, Any] = {
            "version": 0.1,
            "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
            "http": {"addr": host},
            "auth": {"htpasswd": {"realm": "test", "path": str(folder / "htpasswd")}},
        }
        (folder / "config.yml").write_text(yaml.safe_dump(settings))
        with (folder / "log").open("wb") as log:
            argv = [str(program), "serve", str(folder / "config.yml")]
            process = subprocess.Popen(argv, stdout=log, stderr=log)
        try:
            yield Registry(host, _push(host, process))
        finally:
            process.terminate()
            process.wait(20)


def _push(host: str, process: subprocess.Popen[bytes]) -> str:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(f"http://{host}/v2/", timeout=2)
        except urllib.error.HTTPError:
            break
        except OSError:
            time.sleep(0.05)
    image = f"{host}/team/private:1"
    auth = {"username": USER, "password": PASSWORD, "serveraddress": host}
    encoded = base64.urlsafe_b64encode(json.dumps(auth).encode()).decode()
    command("docker", "tag", IMAGE, image)
    try:
        argv = ["curl", "-sS", "--unix-socket", SOCKET, "-X", "POST", "-H", f"X-Registry-Auth: {encoded}"]
        result = command(*argv, f"http://d/images/{host}/team/private/push?tag=1")
        assert '"error"' not in result, result
    finally:
        command("docker", "rmi", image)
    return image


@pytest.fixture
def private(registry: Registry) -> Iterator[Registry]:
    yield registry
    docker = Docker(SOCKET)
    if docker.image(registry.image):
        command("docker", "rmi", "-f", registry.image)
    docker.close()


def secret(cluster: Cluster, name: str, kind: str, content: dict[str, Any]) -> None:
    """Create a pull secret."""
    key = {"kubernetes.io/dockerconfigjson": ".dockerconfigjson", "kubernetes.io/dockercfg": ".dockercfg"}[kind]
    data = {key: base64.b64encode(json.dumps(content).encode()).decode()}
    cluster.admin.create(SECRET, {"metadata": {"name": name, "namespace": "default"}, "type": kind, "data": data})


def entry(password: str) -> dict[str, str]:
    """Return an entry of the registry's user."""
    return {"auth": base64.b64encode(f"{USER}:{password}".encode()).decode()}


def waiting(cluster: Cluster, name: str) -> dict[str, str]:
    """Return why the pod's container waits."""
    state: dict[str, dict[str, str]] = cluster.container(name).get("state") or {}
    return state.get("waiting") or {}


def waits(cluster: Cluster, name: str, reason: str) -> None:
    """Wait until the pod's container waits for ``reason``, and an Event says so."""
    cluster.until(lambda: waiting(cluster, name).get("reason") == reason, 120)
    cluster.until(lambda: f"Failed: Error: {reason}" in cluster.events(name))


def end(cluster: Cluster, name: str) -> None:
    """Delete the pod and wait until it is gone."""
    cluster.delete(name, 0)
    cluster.until(lambda: cluster.gone(name))


def asking(image: str) -> dict[str, Any]:
    """Return a pod's container of the image."""
    return {"name": "app", "image": image, "command": ["sleep", "3600"]}


def everywhere(cluster: Cluster) -> str:
    """Return every file of the cluster's daemons and node, as far as it is text."""
    found = []
    for path in cluster.folder.rglob("*"):
        if path.is_file() and "etcd" not in path.parts:
            with contextlib.suppress(FileNotFoundError):  # what a run writes, and removes at once
                found.append(path.read_bytes().decode("utf-8", "replace"))
    return "\n".join(found)


def test_a_private_image_waits_for_its_secret_and_is_had_with_it(cluster: Cluster, private: Registry) -> None:
    secret(cluster, "wrong", "kubernetes.io/dockerconfigjson", {"auths": {private.host: entry("wr0ng")}})
    cluster.create("nobody", containers=[asking(private.image)])
    waits(cluster, "nobody", "ImagePullBackOff")
    assert "auth" in waiting(cluster, "nobody")["message"]
    expected = {
        f'Pulling: Pulling image "{private.image}"',
        "Failed: Error: ErrImagePull",
        f'BackOff: Back-off pulling image "{private.image}"',
    }
    cluster.until(lambda: expected <= {*cluster.events("nobody")})  # they are written behind the status
    secret(cluster, "right", "kubernetes.io/dockerconfigjson", {"auths": {private.host: entry(PASSWORD)}})
    # a refused credential, a missing secret, then the right one
    names = [{"name": "wrong"}, {"name": "lost"}, {"name": "right"}]
    cluster.create("somebody", containers=[asking(private.image)], imagePullSecrets=names)
    cluster.until(lambda: cluster.ready("somebody"), 120)
    text = "(lost); attempting to pull the image may not succeed."
    assert any(text in event for event in cluster.events("somebody"))
    for word in (PASSWORD, entry(PASSWORD)["auth"]):
        assert word not in everywhere(cluster)
        assert all(word not in event for event in cluster.events("somebody"))
    end(cluster, "nobody")
    end(cluster, "somebody")


def test_secrets_of_an_account_are_those_of_its_pods(cluster: Cluster, private: Registry) -> None:
    secret(cluster, "old", "kubernetes.io/dockercfg", {private.host: entry(PASSWORD)})
    account = {"metadata": {"name": "builder", "namespace": "default"}, "imagePullSecrets": [{"name": "old"}]}
    cluster.admin.create(SERVICE_ACCOUNT, account)
    cluster.create("by-account", containers=[asking(private.image)], serviceAccountName="builder")
    cluster.until(lambda: cluster.ready("by-account"), 120)
    assert cluster.pod("by-account")["spec"]["imagePullSecrets"] == [{"name": "old"}]
    end(cluster, "by-account")


def test_what_may_not_be_pulled_says_so(cluster: Cluster) -> None:
    for name, image, policy, reason in (
        ("never", "minik8s/absent:1", "Never", "ErrImageNeverPull"),
        ("invalid", "Not/A:Name", "Always", "InvalidImageName"),
    ):
        cluster.create(name, containers=[asking(image) | {"imagePullPolicy": policy}])
        waits(cluster, name, reason)
        end(cluster, name)
