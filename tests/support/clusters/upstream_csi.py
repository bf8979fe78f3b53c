"""Upstream's CSI programs and manifests in a cluster of lab machines: drivers with the sidecars they ship.

The sidecars are built from the Go module proxy (``gotools.py``). Drivers, node-driver-registrar and livenessprobe are
not served there: MINIK8S_CSI_SOURCES names a folder with a checkout of each, under their repositories' names, with its
vendored modules. An image of upstream's name is the program of that name, whatever version its tag says.

``deploy`` brings csi-driver-host-path as one Pod, of whose manifest two containers are left out: the liveness probe and
the health monitor. ``deploy_nfs`` and ``deploy_distributed`` bring csi-driver-nfs, and csi-driver-host-path with a
provisioner on each node, by their manifests as they are.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
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
NFS_DRIVER = "nfs.csi.k8s.io"
_CHECKOUTS = {
    "hostpathplugin": "csi-driver-host-path",
    "csi-node-driver-registrar": "node-driver-registrar",
    "nfsplugin": "csi-driver-nfs",
    "livenessprobe": "livenessprobe",
}
_HOSTPATH = ("hostpathplugin", "csi-node-driver-registrar")
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


def sources(*programs: str) -> Path | None:
    """Return the folder with the checkouts of programs (of csi-driver-host-path by default), None without them."""
    named = os.environ.get(VARIABLE, "")
    found = Path(named) if named else None
    wanted = [_CHECKOUTS[name] for name in programs or _HOSTPATH]
    return found if found and all((found / name / "go.mod").is_file() for name in wanted) else None


def _program(name: str) -> Path:
    """Return a program; builds it the first time (ten minutes for all of them), one of a checkout every time."""
    checkout = sources(name) if name in _CHECKOUTS else None
    if checkout is None:
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


def _build_base(tag: str, programs: Iterable[str], trees: Iterable[Path] = ()) -> None:
    """Make the image that all of them are, with every program, the drivers' helpers and other files."""
    names = sorted(programs)
    with tempfile.TemporaryDirectory(prefix="csi-image-") as folder:
        work = Path(folder)
        for name in names:
            shutil.copy2(_program(name), work / name)
        tree = work / "tree"
        for other in trees:
            shutil.copytree(other, tree, symlinks=True, dirs_exist_ok=True)
        for helper in _HELPERS:
            for path in (helper, *_libraries(helper)):
                (tree / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, tree / path.lstrip("/"))
        text = f"FROM minik8s/busybox:1\nCOPY tree/ /\nCOPY {' '.join(names)} /bin/\n"
        (work / "Dockerfile").write_text(text, encoding="utf-8")
        _docker("build", "--quiet", "--tag", tag, str(work))


def _libraries(program: str) -> list[str]:
    words = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout.split()
    return [word for word in words if word.startswith("/")]


def bring_images(cluster: LabCluster, images: dict[str, str], trees: Iterable[Path] = ()) -> None:
    """Make an image of each name that is its program, and load them on the nodes; ``trees`` are files they have."""
    base = "minik8s-test/csi:1"
    archive = cluster.lab.folder / "share" / "csi.tar"
    _build_base(base, {*images.values()}, trees)
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
    _apply(cluster, found)


def _apply(cluster: LabCluster, found: list[JsonObject]) -> None:
    kinds = [obj for obj in found if obj["kind"] == "CustomResourceDefinition"]
    if kinds:
        cluster.apply(*kinds)
    for obj in kinds:
        cluster.kubectl("wait", "--for=condition=Established", f"crd/{obj['metadata']['name']}", "--timeout=60s")
    cluster.apply(*(obj for obj in found if obj not in kinds))


def _as_it_is(cluster: LabCluster, found: list[JsonObject], trees: Iterable[Path] = ()) -> None:
    bring_images(cluster, dict(_image_of(one) for obj in found for one in _containers(obj)), trees)
    _apply(cluster, found)


# its csi-snapshotter wants the kinds of snapshots, whether or not there is a controller of them
_NFS_FILES = ("crd-csi-snapshot", "rbac-csi-nfs", "csi-nfs-driverinfo", "csi-nfs-controller", "csi-nfs-node")
# what mount -t nfs runs and reads, as the machine's nfs-common has it
_NFS_HELPERS = """
set -e
rm -rf /mnt/host/nfs-tree && mkdir /mnt/host/nfs-tree
programs="/sbin/mount.nfs /sbin/mount.nfs4 /sbin/umount.nfs /sbin/umount.nfs4 /bin/mount /bin/umount"
libraries=$(ldd /sbin/mount.nfs /bin/mount /bin/umount | grep -o '/[^ ]*' | grep -v ':$' | sort -u)
cp --parents --dereference $programs $libraries /etc/netconfig /etc/protocols /etc/services /mnt/host/nfs-tree
"""


def deploy_nfs(cluster: LabCluster, machine: str) -> None:
    """Bring csi-driver-nfs by its manifests as they are, with the programs that mount NFS of a machine of the lab."""
    folder = (sources("nfsplugin") or Path()) / _CHECKOUTS["nfsplugin"] / "deploy"
    cluster.on(machine, ["sh", "-c", _NFS_HELPERS])
    tree = cluster.lab.folder / "share" / "nfs-tree"
    try:
        _as_it_is(cluster, [one for name in _NFS_FILES for one in _documents(folder / f"{name}.yaml")], [tree])
    finally:
        shutil.rmtree(tree)


def deploy_distributed(cluster: LabCluster) -> None:
    """Bring csi-driver-host-path with a provisioner on each node, which says how much room is there."""
    module = TOOLS["csi-provisioner"]
    rights = module_path(module.module, module.version) / _RIGHTS["csi-provisioner"]
    folder = (sources() or Path()) / _CHECKOUTS["hostpathplugin"] / "deploy" / "kubernetes-distributed" / "hostpath"
    names = ("driverinfo", "plugin", "storageclass-fast", "storageclass-slow")
    _as_it_is(
        cluster, [*_documents(rights), *(d for n in names for d in _documents(folder / f"csi-hostpath-{n}.yaml"))]
    )
