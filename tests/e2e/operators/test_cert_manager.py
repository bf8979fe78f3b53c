"""cert-manager as processes beside a control plane: its webhook, what its cainjector injects, a CA, certificates."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.operators.cert_manager import GROUP, UNTRUSTED, VALUES, chart, kind, probe
from tests.e2e.operators.conftest import built, running
from tests.support.apiserver import ApiServerProcess, own_server
from tests.support.etcd import free_port
from tests.support.extension import front_proxy
from tests.support.waiting import until
from tests.support.webhook import machine_address

NAME = "cert-manager-webhook"
PAGE = Path(__file__).parents[3] / "docs/how-to/operators.md"


def manifests(folder: Path) -> str:
    """Everything of the chart, as Helm writes it."""
    argv = [str(built("helm")), "template", "cert-manager", str(chart(folder)), "--kube-version=1.32.0", *VALUES]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def way(port: int) -> str:
    """What leads from the webhook's Service to its process."""
    labels = {"kubernetes.io/service-name": NAME}
    ends = {"endpoints": [{"addresses": [machine_address()]}], "ports": [{"name": "https", "port": port}]}
    slice_ = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", **ends}
    return json.dumps({**slice_, "metadata": {"name": NAME, "namespace": "cert-manager", "labels": labels}})


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    """An API server with cert-manager."""
    folder, port = tmp_path_factory.mktemp("cert-manager"), free_port()
    trusted, client = front_proxy(folder)
    files = {"cert": str(client.cert), "key": str(client.key), "ca": str(trusted.ca)}
    ca = ("--dynamic-serving-ca-secret-namespace=cert-manager", f"--dynamic-serving-ca-secret-name={NAME}-ca")
    names = f"--dynamic-serving-dns-names={NAME}.cert-manager.svc"
    alone = ("--leader-elect=false",)
    metrics = f"--metrics-listen-address=127.0.0.1:{free_port()}"
    arguments = {
        "webhook": (f"--secure-port={port}", f"--healthz-port={free_port()}", *ca, names),
        "cainjector": alone,
        "controller": (*alone, "--cluster-resource-namespace=cert-manager", metrics),
    }
    programs = {name: built(f"cert-manager-{name}") for name in arguments}
    with own_server(folder, front_proxy=files) as server, ExitStack() as processes:
        server.kubectl("create", "namespace", "cert-manager")
        server.kubectl("apply", "--server-side", "-f", "-", stdin=manifests(folder))
        server.kubectl("create", "-f", "-", stdin=way(port))
        for name, more in arguments.items():
            argv = (f"--kubeconfig={server.kubeconfig}", *more)
            processes.enter_context(running(programs[name], folder, server.kubeconfig, *argv))
        until(lambda: answers(server))
        yield server


def answers(server: ApiServerProcess) -> bool:
    done = server.kubectl("create", "--dry-run=server", "-f", "-", stdin=probe(), check=False)
    assert done.returncode == 0 or UNTRUSTED in done.stderr or "failed to call webhook" in done.stderr, done.stderr
    return done.returncode == 0


def test_an_authority_of_ones_own_issues(api: ApiServerProcess):
    """The how-to's objects; of the Ingress, cert-manager makes a Certificate."""
    found = re.search(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    api.kubectl("apply", "-f", "-", stdin=found[1])
    api.kubectl("wait", "--for=create", "certificate/shop-tls", "--timeout=50s")
    api.kubectl("wait", "--for=condition=Ready", "certificate/shop-tls", "issuer/shop-ca", "--timeout=50s")
    secrets = api.kubectl(
        "get", "secrets", "root", "shop-tls", "-o", "jsonpath={.items[*].data.ca\\.crt}"
    ).stdout.split()
    assert secrets[0] == secrets[1]
    assert "shop" in api.kubectl("get", "certificaterequests", "--no-headers").stdout
    first = api.kubectl("get", "secret", "shop-tls", "-o", "jsonpath={.data.tls\\.crt}").stdout
    api.kubectl("delete", "secret", "shop-tls")

    def again() -> str:
        done = api.kubectl("get", "secret", "shop-tls", "-o", "jsonpath={.data.tls\\.crt}", check=False)
        return done.stdout

    assert until(again) != first


def test_its_webhook_refuses_what_its_schema_lets_through(api: ApiServerProcess):
    wrong = json.dumps(kind(GROUP, "Issuer", "none", spec={}))
    done = api.kubectl("create", "-f", "-", stdin=wrong, check=False).stderr
    assert 'admission webhook "webhook.cert-manager.io" denied the request' in done
    assert "at least one issuer must be configured" in done


def test_its_definitions_keep_fields_by_schema(api: ApiServerProcess):
    wrong = kind(GROUP, "Certificate", "w", spec={"secretName": "x", "issuerRef": {"name": "a"}, "dnsName": ["a.test"]})
    done = api.kubectl("create", "-f", "-", stdin=json.dumps(wrong), check=False).stderr
    assert 'unknown field "spec.dnsName"' in done
