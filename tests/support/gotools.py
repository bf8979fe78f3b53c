"""Programs in Go, built once from the Go module proxy into ``.cache``, at versions named here.

A client is built in a module of its own that requires nothing else, so with the versions its authors chose; Helm and
stern are versions of one Kubernetes library (0.34.0): what the first compiles serves the second. Operators share one
module (``TOGETHER``), whose Kubernetes library is 0.33.3, for the same reason: each library takes ten minutes. KWOK
has a module of its own with the same library (``NODES``); virtual-kubelet, which compiles with few others, its own.
Programs whose own module replaces others (``inside``) are built in a copy of that module.
Checksums are those of Go's checksum database. ``go`` is the one that builds CoreDNS
(``roles/coredns/files/build.py``).
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.support.clients import CACHE, locked, partial, run

BUILDER = Path(__file__).resolve().parents[2] / "roles" / "coredns" / "files"
FIND = "import build; build.cache().mkdir(parents=True, exist_ok=True); print(build.find_go(''))"
ENVIRONMENT = {
    "GOFLAGS": "-buildvcs=false -modcacherw",
    "GOTOOLCHAIN": "auto",
    "CGO_ENABLED": "0",
    "GOCACHE": str(CACHE / "go-build"),
    "GOMODCACHE": str(CACHE / "go-mod"),
}


QUICK = "-gcflags=all=-N -l"  # without optimizations compiling costs a quarter less, and tests measure nothing


class Tool(NamedTuple):
    """A program: its package, the module that holds it, the version; ``tags`` make it a test binary of them."""

    package: str
    module: str
    version: str
    tags: str = ""
    inside: bool = False
    """Whether it is built in its own module, as what that replaces counts."""
    published: tuple[str, ...] = ()
    """Modules that its own replaces by folders of its repository, and that are published at the same version."""


def _sidecar(module: str, program: str, version: str) -> Tool:
    """Return a program that CSI drivers are shipped with."""
    whole = f"github.com/kubernetes-csi/{module}"
    return Tool(f"{whole}/cmd/{program}", whole, version, inside=True)


MONITORING = "github.com/prometheus-operator/prometheus-operator"
GATEWAY = "sigs.k8s.io/gateway-api"
RUNTIME = "sigs.k8s.io/controller-runtime"
CERT_MANAGER = "github.com/cert-manager/cert-manager"
KUBEVIRT = "kubevirt.io/kubevirt"
ISTIO = "istio.io/istio"
ISTIO_VERSION = "v0.0.0-20260827124520-eed52ebb66ad"
TOGETHER = {
    GATEWAY: "v1.3.0",
    RUNTIME: "v0.21.0",
    MONITORING: "v0.85.0",
    "k8s.io/sample-apiserver": "v0.33.3",
}
KWOK = "sigs.k8s.io/kwok"
VIRTUAL_KUBELET = "github.com/virtual-kubelet/virtual-kubelet"
NODES = {**TOGETHER, KWOK: "v0.7.0"}
TOOLS = {
    "helm": Tool("helm.sh/helm/v3/cmd/helm", "helm.sh/helm/v3", "v3.19.0"),
    "stern": Tool("github.com/stern/stern", "github.com/stern/stern", "v1.33.1"),
    "k9s": Tool("github.com/derailed/k9s", "github.com/derailed/k9s", "v0.50.18"),
    "gateway-cel-standard": Tool(f"{GATEWAY}/pkg/test/cel", GATEWAY, TOGETHER[GATEWAY], "standard"),
    "gateway-cel-experimental": Tool(f"{GATEWAY}/pkg/test/cel", GATEWAY, TOGETHER[GATEWAY], "experimental"),
    # the tag is nobody's: it makes a test binary of the package
    "gateway-conformance": Tool(f"{GATEWAY}/conformance", GATEWAY, TOGETHER[GATEWAY], "conformance"),
    "gateway-echo": Tool(f"{GATEWAY}/conformance/echo-basic", GATEWAY, TOGETHER[GATEWAY]),
    # v1.3.0 has six tests of a mesh, v1.4.1 twenty
    "mesh-conformance": Tool(f"{GATEWAY}/conformance", GATEWAY, "v1.4.1", "conformance"),
    # of which upstream's image echo-advanced consists
    "istio-echo-server": Tool(f"{ISTIO}/pkg/test/echo/cmd/server", ISTIO, ISTIO_VERSION),
    "istio-echo-client": Tool(f"{ISTIO}/pkg/test/echo/cmd/client", ISTIO, ISTIO_VERSION),
    "runtime-crd": Tool(f"{RUNTIME}/examples/crd", RUNTIME, TOGETHER[RUNTIME]),
    "runtime-builtins": Tool(f"{RUNTIME}/examples/builtins", RUNTIME, TOGETHER[RUNTIME]),
    "prometheus-operator": Tool(f"{MONITORING}/cmd/operator", MONITORING, TOGETHER[MONITORING]),
    "prometheus-config-reloader": Tool(
        f"{MONITORING}/cmd/prometheus-config-reloader", MONITORING, TOGETHER[MONITORING]
    ),
    "sample-apiserver": Tool("k8s.io/sample-apiserver", "k8s.io/sample-apiserver", "v0.33.3"),
    "cert-manager-controller": Tool(f"{CERT_MANAGER}/cmd/controller", CERT_MANAGER, "v1.11.5"),
    "cert-manager-webhook": Tool(f"{CERT_MANAGER}/cmd/webhook", CERT_MANAGER, "v1.11.5"),
    "cert-manager-cainjector": Tool(f"{CERT_MANAGER}/cmd/cainjector", CERT_MANAGER, "v1.11.5"),
    "metrics-server": Tool("sigs.k8s.io/metrics-server/cmd/metrics-server", "sigs.k8s.io/metrics-server", "v0.7.2"),
    "virtctl": Tool(
        f"{KUBEVIRT}/cmd/virtctl",
        KUBEVIRT,
        "v1.4.0",
        inside=True,
        published=("kubevirt.io/api", "kubevirt.io/client-go"),
    ),
    "virtual-kubelet": Tool(f"{VIRTUAL_KUBELET}/cmd/virtual-kubelet", VIRTUAL_KUBELET, "v1.12.0"),
    "kwok": Tool(f"{KWOK}/cmd/kwok", KWOK, NODES[KWOK]),
    "csi-provisioner": _sidecar("external-provisioner/v5", "csi-provisioner", "v5.3.0"),
    "csi-attacher": _sidecar("external-attacher/v4", "csi-attacher", "v4.13.0"),
    "csi-resizer": _sidecar("external-resizer", "csi-resizer", "v1.14.0"),
    "csi-snapshotter": _sidecar("external-snapshotter/v8", "csi-snapshotter", "v8.3.0"),
    "snapshot-controller": _sidecar("external-snapshotter/v8", "snapshot-controller", "v8.3.0"),
}


def tool_path(name: str) -> Path:
    """Return where the program is, or will be once built."""
    return CACHE / f"{name}-{TOOLS[name].version}"


def tool(name: str) -> Path:
    """Return a program of ``TOOLS``; builds it the first time (a minute, or ten where its libraries are not built).

    Raises:
        RuntimeError: no Go could be had, or it failed; the message holds its words.
    """
    target = tool_path(name)
    with locked(target) as missing:
        if missing:
            with tempfile.TemporaryDirectory(prefix=f"{name}-") as folder:
                _build(TOOLS[name], Path(folder), partial(target))
            partial(target).replace(target)
    return target


def _build(wanted: Tool, work: Path, output: Path) -> None:
    if wanted.inside:
        _build_inside(wanted, work / "module", output)
        return
    program = str(go())
    shared = (group for group in (TOGETHER, NODES) if group.get(wanted.module) == wanted.version)
    modules = next(shared, {wanted.module: wanted.version})
    verb = ["test", "-c", f"-tags={wanted.tags}"] if wanted.tags else ["build"]
    steps = [
        [program, "mod", "init", "tool"],
        [program, "mod", "edit", *(f"-require={module}@{version}" for module, version in modules.items())],
        [program, *verb, "-mod=mod", "-trimpath", QUICK, "-ldflags=-s -w", "-o", str(output), wanted.package],
    ]
    for step in steps:
        run(step, cwd=work, env=ENVIRONMENT, timeout_s=1800)


def _build_inside(wanted: Tool, work: Path, output: Path) -> None:
    shutil.copytree(module_path(wanted.module, wanted.version), work)
    declared = (work / "go.mod").read_text(encoding="utf-8")
    # modules of their own, which are not in here
    beside = re.findall(r"^(?:replace |\t)(\S+) => \./", declared, re.MULTILINE)
    steps = [["mod", "edit", f"-dropreplace={module}"] for module in beside]
    steps += [["mod", "edit", f"-require={module}@{wanted.version}"] for module in wanted.published]
    steps.append(["build", "-mod=mod", "-trimpath", QUICK, "-ldflags=-s -w", "-o", str(output), wanted.package])
    for step in steps:
        run([str(go()), *step], cwd=work, env=ENVIRONMENT, timeout_s=1800)


def module_path(module: str, version: str) -> Path:
    """Return the folder of a module, which also has its manifests; fetches it the first time."""
    folder = CACHE / "go-mod" / f"{module}@{version}"
    with locked(CACHE / f"go-mod-{Path(module).name}-{version}"):
        if not folder.exists():
            run([str(go()), "mod", "download", f"{module}@{version}"], cwd=CACHE, env=ENVIRONMENT)
    return folder


def go() -> Path:
    """Return a Go that is new enough, found or fetched as for CoreDNS."""
    with locked(CACHE / "go-found"):
        return Path(run([sys.executable, "-c", FIND], cwd=BUILDER).strip())


if __name__ == "__main__":
    print(tool(sys.argv[1]))
