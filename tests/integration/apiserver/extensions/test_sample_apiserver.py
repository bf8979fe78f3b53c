"""Kubernetes' own sample-apiserver, unmodified, behind an APIService of this server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.apiserver import ApiServerProcess
from tests.support.etcd import EtcdServer
from tests.support.extension import Extension, front_proxy
from tests.support.gotools import tool
from tests.support.waiting import until

NAME = "v1alpha1.wardle.example.com"
FLUNDER = """
apiVersion: wardle.example.com/v1alpha1
kind: Flunder
metadata: {name: my-first-flunder, labels: {sample-label: "true"}}
spec: {reference: a-fish}
"""


class Cluster(NamedTuple):
    """An API server, and the log of the extension behind it."""

    api: ApiServerProcess
    log: Path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("sample")
    etcd = EtcdServer(folder / "etcd").start()
    authority, client = front_proxy(folder)
    files = {"cert": str(client.cert), "key": str(client.key), "ca": str(authority.ca)}
    api = ApiServerProcess(folder / "api", etcd.endpoint, front_proxy=files).start()
    extension = Extension(folder, authority.ca)  # gives certificate, port and objects; the program is another
    own = [f"--{each}kubeconfig={api.kubeconfig}" for each in ("", "authentication-", "authorization-")]
    argv = [
        str(tool("sample-apiserver")), *own, f"--secure-port={extension.port}", f"--etcd-servers={etcd.endpoint}",
        f"--tls-cert-file={extension.folder / 'extension.crt'}",
        f"--tls-private-key-file={extension.folder / 'extension.key'}",
    ]  # fmt: skip
    log = folder / "sample.log"
    with log.open("wb") as output:
        sample = subprocess.Popen(argv, stdout=output, stderr=output, cwd=folder)
    try:
        for path, obj in extension.objects():
            assert api.request("POST", path, obj).code == 201
        made = api.request("POST", "/apis/apiregistration.k8s.io/v1/apiservices", extension.api_service())
        assert made.code == 201, made.body
        yield Cluster(api, log)
    finally:
        sample.kill()
        sample.wait(20)
        api.stop()
        etcd.stop()


def test_flunders_live_as_built_in_objects_do(cluster: Cluster) -> None:
    api = cluster.api
    available = f"apiservice/{NAME}"
    waited = api.kubectl("wait", "--for=condition=Available", "--timeout=50s", available, check=False)
    assert waited.returncode == 0, cluster.log.read_text()[-3000:]
    assert "created" in until(lambda: api.kubectl("apply", "-f", "-", stdin=FLUNDER, check=False).stdout)
    rows = api.kubectl("get", "flunders").stdout.splitlines()
    assert rows[0].split() == ["NAME", "CREATED", "AT"]
    assert rows[1].split()[0] == "my-first-flunder"
    assert api.kubectl("get", "flunders", "-l", "sample-label=true", "-o", "name").stdout.strip() == (
        "flunder.wardle.example.com/my-first-flunder"
    )
    assert "reference" in api.kubectl("explain", "flunder.spec").stdout
    changed = FLUNDER.replace("a-fish", "another-fish")
    assert "configured" in api.kubectl("apply", "-f", "-", stdin=changed).stdout
    stored = json.loads(api.kubectl("get", "flunder", "my-first-flunder", "-o", "json").stdout)
    assert stored["spec"]["reference"] == "another-fish"


def test_flunders_are_watched_and_somebody_without_rights_sees_none(cluster: Cluster) -> None:
    api, path = cluster.api, "/apis/wardle.example.com/v1alpha1/namespaces/default/flunders"
    until(lambda: api.request("GET", path).code == 200)
    revision = api.request("GET", path).json["metadata"]["resourceVersion"]
    connection = api.connection(timeout_s=60.0)
    connection.request("GET", f"{path}?watch=true&resourceVersion={revision}")
    response = connection.getresponse()
    made = {"kind": "Flunder", "apiVersion": "wardle.example.com/v1alpha1", "metadata": {"name": "watched"}}
    assert api.request("POST", path, made).code == 201
    event = json.loads(response.readline())
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "watched")
    connection.close()
    assert api.request("GET", path, client=api.identity("jane")).code == 403
