"""Upstream's conformance tests of the Gateway API, whole and unmodified, against a Gateway's real Envoys on a machine.

Images come from no registry: the server that answers is built of upstream's sources and has the name that upstream's
manifests give it. Of the test program two words are exchanged, those of an image and of a plugin that this CoreDNS has
not: it stands behind routes of UDP, which are not tried here.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clusters.labcluster import LabCluster
from tests.support.clusters.meshcluster import mesh_machine
from tests.support.gotools import tool

NODE, WAIT_S = "control1", 3600
ECHO = "gcr.io/k8s-staging-gateway-api/echo-basic:v20240412-v1.0.0-394-g40c666fd"
NOT_HERE = ((b"image: coredns/coredns\n", b"image: minik8s/corer:1\n"), (b"      whoami\n", b"      errors\n"))
FEATURES = (
    "Gateway", "HTTPRoute", "ReferenceGrant", "GatewayPort8080", "GatewayHTTPListenerIsolation",
    "GatewayInfrastructurePropagation", "HTTPRouteQueryParamMatching", "HTTPRouteMethodMatching",
    "HTTPRouteResponseHeaderModification", "HTTPRoutePortRedirect", "HTTPRouteSchemeRedirect",
    "HTTPRoutePathRedirect", "HTTPRouteHostRewrite", "HTTPRoutePathRewrite", "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors", "HTTPRouteRequestPercentageMirror", "HTTPRouteRequestTimeout",
    "HTTPRouteBackendTimeout", "HTTPRouteBackendProtocolH2C", "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification", "HTTPRouteParentRefPort", "HTTPRouteDestinationPortMatching",
)  # fmt: skip
SKIPPED = {
    "GatewayStaticAddresses", "HTTPRouteDisallowedKind", "UDPRoute",
    "GRPCExactMethodMatching", "GRPCRouteHeaderMatching", "GRPCRouteListenerHostnameMatching",
    "TLSRouteInvalidReferenceGrant", "TLSRouteSimpleSameNamespace",
    "MeshBasic", "MeshConsumerRoute", "MeshFrontend", "MeshFrontendHostname", "MeshPorts", "MeshTrafficSplit",
}  # fmt: skip
"""Other kinds of routes and addresses of one's own, which there are not here; the mesh has a test of its own
(machines/test_mesh_conformance.py)."""
RESULT = re.compile(r"^ {4}--- (PASS|FAIL|SKIP): TestConformance/(\w+) ", re.MULTILINE)


@pytest.fixture(scope="module")
def cluster(lab_name: str) -> Iterator[LabCluster]:
    with mesh_machine(lab_name) as made:
        yield made


def image(cluster: LabCluster, name: str, program: str) -> None:
    """Make an image of a program on the machine."""
    folder = f"/tmp/image-{Path(program).name}"
    cluster.on(NODE, ["mkdir", "-p", folder])
    cluster.on(NODE, ["cp", program, f"{folder}/program"])
    cluster.on(NODE, ["tee", f"{folder}/Dockerfile"], text='FROM scratch\nCOPY program /\nENTRYPOINT ["/program"]\n')
    cluster.on(NODE, ["docker", "build", "-q", "-t", name, folder], timeout_s=300)


def test_upstreams_conformance_tests(cluster: LabCluster):
    share = cluster.lab.folder / "share"
    shutil.copy(tool("gateway-echo"), share / "echo-basic")
    image(cluster, ECHO, "/mnt/host/echo-basic")
    image(cluster, "minik8s/corer:1", "/opt/minik8s/bin/coredns")
    program = tool("gateway-conformance").read_bytes()
    for old, new in NOT_HERE:
        assert program.count(old) == 1
        program = program.replace(old, new)
    (share / "conformance").write_bytes(program)
    (share / "conformance").chmod(0o755)
    options = [
        "-test.v", "-gateway-class=minik8s", "-allow-crds-mismatch", f"-supported-features={','.join(FEATURES)}",
    ]  # fmt: skip
    script = (
        'KUBECONFIG=/etc/minik8s/admin.kubeconfig /mnt/host/conformance "$@" >/mnt/host/conformance.log 2>&1 || true'
    )
    cluster.on(NODE, ["sh", "-c", script, "conformance", *options], timeout_s=WAIT_S)
    words = (share / "conformance.log").read_text(errors="replace")
    found: dict[str, set[str]] = {"PASS": set(), "FAIL": set(), "SKIP": set()}
    for result, name in RESULT.findall(words):
        found[result].add(name)
    print({result: len(names) for result, names in found.items()})
    assert (found["FAIL"], found["SKIP"]) == (set(), SKIPPED), words[-8000:]
    assert len(found["PASS"]) >= 57
