"""Kubernetes' sample-apiserver behind an APIService: a group of its own, in an etcd of its own, as if it were ours."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.operators.conftest import built, running
from tests.integration.control.conftest import Cluster
from tests.support.apiserver import ApiServerProcess, own_server
from tests.support.etcd import EtcdServer, free_port
from tests.support.extension import NAME, Extension, front_proxy
from tests.support.waiting import until

RESOURCE = "v1alpha1.wardle.example.com"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServerProcess]:
    """An API server whose front-proxy certificate is of an authority of its own."""
    authority, client = front_proxy(tmp_path)
    files = {"cert": str(client.cert), "key": str(client.key), "ca": str(authority.ca)}
    with own_server(tmp_path, front_proxy=files) as server:
        yield server


@pytest.fixture
def wardle(api: ApiServerProcess, tmp_path: Path) -> Iterator[ApiServerProcess]:
    """The API server with the sample, as its README runs one outside of a cluster."""
    program = built("sample-apiserver")
    way = Extension(tmp_path, api.authority.ca)  # for its certificate and the objects that lead to it; it is not run
    way.port = free_port()
    certificate = way.authority.issue("sample", "sample", names=(NAME,))
    etcd = EtcdServer(tmp_path / "sample-etcd").start()
    arguments = [
        f"--secure-port={way.port}",
        f"--etcd-servers={etcd.endpoint}",
        f"--tls-cert-file={certificate.cert}",
        f"--tls-private-key-file={certificate.key}",
        *(f"--{use}kubeconfig={api.kubeconfig}" for use in ("", "authentication-", "authorization-")),
    ]
    with running(program, tmp_path, api.kubeconfig, *arguments) as log:
        for path, obj in way.objects():
            assert api.request("POST", path, obj).code == 201
        assert api.request("POST", "/apis/apiregistration.k8s.io/v1/apiservices", way.api_service()).code == 201
        done = api.kubectl("wait", "--for=condition=Available", f"apiservice/{RESOURCE}", "--timeout=50s", check=False)
        assert done.returncode == 0, (done.stderr, log.read_text()[-5000:])
        yield api
        api.kubectl("delete", "apiservice", RESOURCE)
    etcd.stop()


def flunder(name: str, **spec: str) -> str:
    metadata = {"name": name, "labels": {"sample-label": "true"}}
    return json.dumps(
        {"apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder", "metadata": metadata, "spec": spec}
    )


def test_its_objects_are_made_shown_watched_and_deleted(wardle: ApiServerProcess):
    listed = wardle.kubectl("api-resources", "--api-group=wardle.example.com", "-o", "name").stdout.split()
    assert listed == ["fischers.wardle.example.com", "flunders.wardle.example.com"]
    watch = subprocess.Popen(
        wardle.kubectl_argv("get", "flunders", "--watch", "--output-watch-events", "--no-headers"),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watch.stdout is not None
    try:
        until(lambda: "created" in wardle.kubectl("create", "-f", "-", stdin=flunder("a"), check=False).stdout)
        wardle.kubectl("apply", "-f", "-", stdin=flunder("b"))
        wardle.kubectl("apply", "--server-side", "-f", "-", stdin=flunder("c"))
        wardle.kubectl("label", "flunder", "b", "more=yes")
        wardle.kubectl("delete", "flunder", "a")
        rows = [watch.stdout.readline().split()[:2] for _ in range(5)]
    finally:
        watch.terminate()
        watch.communicate()
    assert rows == [["ADDED", "a"], ["ADDED", "b"], ["ADDED", "c"], ["MODIFIED", "b"], ["DELETED", "a"]]
    assert wardle.kubectl("get", "flunders", "-l", "more=yes", "-o", "name").stdout.split() == [
        "flunder.wardle.example.com/b"
    ]
    assert "KIND:       Flunder" in wardle.kubectl("explain", "flunder").stdout


def test_its_own_admission_refuses(wardle: ApiServerProcess):
    """The sample bans names that a Fischer disallows, which it reads as any client: through our server."""
    fischer = {"apiVersion": "wardle.example.com/v1alpha1", "kind": "Fischer", "metadata": {"name": "f"}}
    stdin = json.dumps({**fischer, "disallowedFlunders": ["worst"]})
    until(lambda: "created" in wardle.kubectl("create", "-f", "-", stdin=stdin, check=False).stdout)

    def refused() -> bool:
        done = wardle.kubectl("create", "--dry-run=server", "-f", "-", stdin=flunder("worst"), check=False)
        return "this name may not be used" in done.stderr

    until(refused)


def test_its_objects_have_owners_and_own_and_are_counted(wardle: ApiServerProcess, tmp_path: Path):
    """With the real controllers: what the sample keeps goes with its owner, what it owns with it; quotas count it."""
    cluster = Cluster(tmp_path, wardle)
    controllers = cluster.daemon("controllers").start()

    def make(kind: str, name: str, owner: str = "") -> None:
        """Make an object, owned by another (KIND/NAME)."""
        versions = {"configmap": ("v1", "ConfigMap"), "flunder": ("wardle.example.com/v1alpha1", "Flunder")}
        api_version, cased = versions[kind]
        metadata: dict[str, object] = {"name": name}
        if owner:
            whose, called = owner.split("/")
            uid = wardle.kubectl("get", whose, called, "-o", "jsonpath={.metadata.uid}").stdout
            of_version, of_kind = versions[whose]
            metadata["ownerReferences"] = [{"apiVersion": of_version, "kind": of_kind, "name": called, "uid": uid}]
        stdin = json.dumps({"apiVersion": api_version, "kind": cased, "metadata": metadata})
        until(lambda: wardle.kubectl("create", "-f", "-", stdin=stdin, check=False).stdout)

    def there(kind: str, name: str) -> bool:
        return bool(wardle.kubectl("get", kind, name, "--ignore-not-found").stdout)

    def counted() -> str:
        used = "jsonpath={.status.used.count/flunders\\.wardle\\.example\\.com}"
        return wardle.kubectl("get", "quota", "few", "-o", used).stdout

    try:
        wardle.kubectl("create", "quota", "few", "--hard=count/flunders.wardle.example.com=1")
        make("flunder", "tree")
        make("configmap", "leaf", "flunder/tree")
        make("configmap", "root")
        make("flunder", "shoot", "configmap/root")
        until(lambda: counted() == "2")  # which the quota does not refuse: the sample has no quotas
        wardle.kubectl("delete", "configmap", "root")
        until(lambda: not there("flunder", "shoot"))
        assert there("configmap", "leaf")
        wardle.kubectl("delete", "flunder", "tree")
        until(lambda: not there("configmap", "leaf"))
        until(lambda: counted() == "0")
    finally:
        controllers.stop()
        cluster.admin.close()
