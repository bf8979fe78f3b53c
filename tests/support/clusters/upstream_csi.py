"""Upstream's CSI programs and manifests in a cluster of lab machines: csi-driver-host-path with the sidecars it ships.

The sidecars are built from the Go module proxy (``gotools.py``). The driver and node-driver-registrar are not served
there: MINIK8S_CSI_SOURCES names a folder with a checkout of each, under their repositories' names, with its vendored
modules.
Of the driver's own manifest two containers are left out, whose programs are not built: the liveness probe and the
health monitor.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from minik8s_modules.api.objects import JsonObject
from tests.support.clients import CACHE, locked, partial, run
from tests.support.clusters.labcluster import HOST_SOCKET, LabCluster
from tests.support.gotools import ENVIRONMENT, QUICK, TOOLS, go, module_path, tool

_LINKED = "-ldflags=-s -w -X main.version=checkout"  # drivers refuse to be without a version
DRIVER = "hostpath.csi.k8s.io"
VARIABLE = "MINIK8S_CSI_SOURCES"
_CHECKOUTS = {"hostpathplugin": "csi-driver-host-path", "csi-node-driver-registrar": "node-driver-registrar"}
_SIDECARS = ("csi-provisioner", "csi-attacher", "csi-resizer", "csi-snapshotter", "snapshot-controller")
_RIGHTS = {
    "csi-provisioner": "deploy/kubernetes/rbac.yaml",
    "csi-attacher": "deploy/kubernetes/rbac.yaml",
    "csi-resizer": "deploy/kubernetes/rbac.yaml",
    "csi-snapshotter": "deploy/kubernetes/csi-snapshotter/rbac-csi-snapshotter.yaml",
}
_SNAPSHOTS = ("rbac-snapshot-controller.yaml", "setup-snapshot-controller.yaml")
_CLIENT = ("github.com/kubernetes-csi/external-snapshotter/client/v8", "v8.2.0")
_LEFT_OUT = frozenset({"liveness-probe", "csi-external-health-monitor-controller"})
# what the driver asks for besides mount, tar and cp: of the machine's util-linux, with its libraries
_HELPERS = ("/usr/bin/findmnt", "/bin/mount", "/bin/umount", "/sbin/losetup", "/sbin/blockdev", "/sbin/fsfreeze")


def sources() -> Path | None:
    """Return the folder with the checkouts, None where there is none."""
    named = os.environ.get(VARIABLE, "")
    found = Path(named) if named else None
    return found if found and all((found / name / "go.mod").is_file() for name in _CHECKOUTS.values()) else None


def _program(name: str) -> Path:
    """Return a program; builds it the first time (ten minutes for all of them), one of a checkout every time."""
    checkout = sources()
    if name not in _CHECKOUTS or checkout is None:
        return tool(name)
    target = CACHE / f"{name}-checkout"
    with locked(target):
        flags = ["-mod=vendor", "-trimpath", QUICK, _LINKED]
        words = ["build", *flags, "-o", str(partial(target)), f"./cmd/{name}"]
        run([str(go()), *words], cwd=checkout / _CHECKOUTS[name], env=ENVIRONMENT, timeout_s=1800)
        partial(target).replace(target)
    return target


def _documents(path: Path) -> list[JsonObject]:
    return [one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one]


def _deployed() -> Iterator[JsonObject]:
    """Yield what the driver's own deployment makes, and the rights of its sidecars."""
    for name, place in _RIGHTS.items():
        yield from _documents(module_path(TOOLS[name].module, TOOLS[name].version) / place)
    folder = (sources() or Path()) / _CHECKOUTS["hostpathplugin"] / "deploy" / "kubernetes-latest" / "hostpath"
    for name in ("csi-hostpath-driverinfo.yaml", "csi-hostpath-plugin.yaml"):
        yield from _documents(folder / name)


def _snapshots() -> Iterator[JsonObject]:
    """Yield the kinds of snapshots, and upstream's controller of them."""
    crds = module_path(*_CLIENT) / "config" / "crd"
    for path in sorted(crds.glob("snapshot.storage.k8s.io_*.yaml")):
        yield from _documents(path)
    module = TOOLS["snapshot-controller"]
    for name in _SNAPSHOTS:
        yield from _documents(
            module_path(module.module, module.version) / "deploy/kubernetes/snapshot-controller" / name
        )


def _without(obj: JsonObject) -> JsonObject:
    """Return a workload with the containers whose programs there are, and no probe that asks another one."""
    pod = obj["spec"]["template"]["spec"]
    pod["containers"] = [one for one in pod["containers"] if one["name"] not in _LEFT_OUT]
    for container in pod["containers"]:
        if container["name"] == "hostpath":
            del container["livenessProbe"]
    return obj


def _containers(obj: JsonObject) -> list[JsonObject]:
    found: list[JsonObject] = (obj.get("spec") or {}).get("template", {}).get("spec", {}).get("containers") or []
    return found


def _image_of(container: JsonObject) -> tuple[str, str]:
    """Return a container's image, and the program that it is to be."""
    name = str(container["image"])
    return name, name.rpartition("/")[2].partition(":")[0]


def _dockerfile(program: str, base: str) -> str:
    return f'FROM {base}\nENTRYPOINT ["/bin/{program}"]\n'


def _docker(*words: str) -> None:
    subprocess.run(["docker", "-H", HOST_SOCKET, *words], check=True, capture_output=True)


def _build_base(tag: str) -> None:
    """Make the image that all of them are, with every program and the driver's helpers."""
    with tempfile.TemporaryDirectory(prefix="csi-image-") as folder:
        work = Path(folder)
        for name in (*_CHECKOUTS, *_SIDECARS):
            shutil.copy2(_program(name), work / name)
        tree = work / "tree"
        for helper in _HELPERS:
            for path in (helper, *_libraries(helper)):
                (tree / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, tree / path.lstrip("/"))
        names = " ".join((*_CHECKOUTS, *_SIDECARS))
        text = f"FROM minik8s/busybox:1\nCOPY tree/ /\nCOPY {names} /bin/\n"
        (work / "Dockerfile").write_text(text, encoding="utf-8")
        _docker("build", "--quiet", "--tag", tag, str(work))


def _libraries(program: str) -> list[str]:
    words = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout.split()
    return [word for word in words if word.startswith("/")]


def bring_images(cluster: LabCluster, images: dict[str, str]) -> None:
    """Make an image of each name that is its program, and load them on the nodes."""
    base = "minik8s-test/csi:1"
    archive = cluster.lab.folder / "share" / "csi.tar"
    _build_base(base)
    try:
        for image, program in images.items():
            with tempfile.TemporaryDirectory(prefix="csi-image-") as folder:
                Path(folder, "Dockerfile").write_text(_dockerfile(program, base), encoding="utf-8")
                _docker("build", "--quiet", "--tag", image, folder)
        _docker("save", "--output", str(archive), *images)
        for machine in cluster.nodes:
            cluster.on(machine, ["docker", "load", "--quiet", "--input", f"/mnt/host/{archive.name}"], timeout_s=900)
    finally:
        archive.unlink(missing_ok=True)
        _docker("image", "rm", "--force", *images, base)


def deploy(cluster: LabCluster) -> None:
    """Bring the driver, its sidecars and snapshots into a cluster; they need not run yet when this returns."""
    found: list[JsonObject] = [*_snapshots(), *_deployed()]
    workloads: list[Any] = [_without(obj) for obj in found if _containers(obj)]
    bring_images(cluster, dict(_image_of(one) for obj in workloads for one in _containers(obj)))
    for obj in workloads:
        for container in _containers(obj):
            container["imagePullPolicy"] = "IfNotPresent"
    kinds = [obj for obj in found if obj["kind"] == "CustomResourceDefinition"]
    cluster.apply(*kinds)
    for obj in kinds:
        cluster.kubectl("wait", "--for=condition=Established", f"crd/{obj['metadata']['name']}", "--timeout=60s")
    cluster.apply(*(obj for obj in found if obj not in kinds))
