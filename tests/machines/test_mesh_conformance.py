"""Upstream's conformance profile MESH-HTTP of the Gateway API, whole and unmodified, on sidecars of a machine.

Images come from no registry: what asks and answers, Istio's echo, is built of its sources and has the name that
upstream's manifests give it. The suite is of v1.4.1: v1.3.0, whose kinds the role installs, has a third of the tests.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest
import yaml

from tests.support.clusters.labcluster import LabCluster
from tests.support.clusters.meshcluster import mesh_machine
from tests.support.gotools import ISTIO, ISTIO_VERSION, module_path, tool

NODE, WAIT_S = "control1", 3600
ECHO = "gcr.io/k8s-staging-gateway-api/echo-advanced:v20240412-v1.0.0-394-g40c666fd"
DOCKERFILE = """FROM scratch
COPY server client /usr/local/bin/
COPY cert.crt cert.key /
ENV PATH=/usr/local/bin
USER 1338
ENTRYPOINT ["/usr/local/bin/server"]
"""
FEATURES = (
    "Mesh", "HTTPRoute", "MeshClusterIPMatching", "MeshConsumerRoute", "MeshHTTPRouteBackendRequestHeaderModification",
    "MeshHTTPRouteNamedRouteRule", "MeshHTTPRouteQueryParamMatching", "MeshHTTPRouteRedirectPath",
    "MeshHTTPRouteRedirectPort", "MeshHTTPRouteRewritePath", "MeshHTTPRouteSchemeRedirect",
    # of the profile's tests some ask for these besides
    "HTTPRouteResponseHeaderModification", "HTTPRouteParentRefPort",
)  # fmt: skip
"""All of the mesh that v1.4.1 knows; GRPCRoutes, which there are not here, are another profile's."""
TESTS = 18
RESULT = re.compile(r"^ {4}--- (PASS|FAIL): TestConformance/(Mesh\w+) ", re.MULTILINE)


@pytest.fixture(scope="module")
def cluster(lab_name: str) -> Iterator[LabCluster]:
    with mesh_machine(lab_name) as made:
        yield made


def test_the_whole_profile_passes(cluster: LabCluster):
    share = cluster.lab.folder / "share" / "echo"
    share.mkdir(exist_ok=True)
    certificates = module_path(ISTIO, ISTIO_VERSION) / "tests/testdata/certs/dns"
    for source, name in (
        (tool("istio-echo-server"), "server"),
        (tool("istio-echo-client"), "client"),
        (tool("mesh-conformance"), "conformance"),
        (certificates / "cert-chain.pem", "cert.crt"),
        (certificates / "key.pem", "cert.key"),
    ):
        shutil.copyfile(source, share / name)
        (share / name).chmod(0o755)
    (share / "Dockerfile").write_text(DOCKERFILE)
    cluster.on(NODE, ["docker", "build", "-q", "-t", ECHO, "/mnt/host/echo"], timeout_s=300)
    report = {"organization": "minik8s", "project": "minik8s", "url": "none", "version": "test", "contact": "none"}
    options = [
        "-test.v", "-allow-crds-mismatch", "-conformance-profiles=MESH-HTTP",
        "-namespace-labels=minik8s.io/inject=enabled", f"-supported-features={','.join(FEATURES)}",
        "-report-output=/mnt/host/echo/report.yaml", *(f"-{name}={value}" for name, value in report.items()),
    ]  # fmt: skip
    script = 'KUBECONFIG=/etc/minik8s/admin.kubeconfig /mnt/host/echo/conformance "$@" >/mnt/host/echo/log 2>&1 || true'
    cluster.on(NODE, ["sh", "-c", script, "conformance", *options], timeout_s=WAIT_S)
    words = (share / "log").read_text(errors="replace")
    found = {name: result for result, name in RESULT.findall(words)}
    assert [name for name, result in found.items() if result == "FAIL"] == [], words[-8000:]
    assert len(found) >= TESTS, words[-8000:]
    told = yaml.safe_load((share / "report.yaml").read_text())
    print(told["profiles"])
    assert "Core tests succeeded. Extended tests succeeded." in told["profiles"][0]["summary"]
