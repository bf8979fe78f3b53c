"""An image for a Slurm's nodes, and what runs programs in it: Charliecloud, Slurm's ``--container``, Apptainer.

The image is a folder with a static busybox, named by the image's reference. For ``--container`` it is an OCI bundle,
whose ``config.json`` an administrator writes, with the users' homes in it. All run without any right of root.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from tests.support.clients import CACHE, locked
from tests.support.docker.debian import unpack

IMAGE = "tools/busybox"
PACKAGES = ("charliecloud-runtime", "crun", "busybox-static", "squashfs-tools")
CHARLIECLOUD = (
    *("ch-run", "--write-fake", "--bind={folder}", "--bind={source}:{target}", "--cd={workdir}"),
    *("/images/{image}", "--"),
)
# Slurm gives a container the working folder of its bundle
CONTAINER = ("srun", "--container=/bundles/{image}", "sh", "-c", 'cd "$0" && exec "$@"', "{workdir}")
APPTAINER = (
    *("apptainer", "--silent", "exec", "--contain", "--bind={folder}", "--bind={source}:{target}", "--pwd={workdir}"),
    "/images/{image}",
)
APPLETS = ("sh", "cat", "echo", "ls", "id", "env", "sleep", "true", "pwd", "touch", "ln", "rm", "tr", "grep", "wc")
FOLDERS = ("dev", "proc", "sys", "etc", "tmp", "home", "root", "var/tmp", "var/run/slurm", "usr/bin")
OCI = """
IgnoreFileConfigJson=false
RunTimeQuery="crun --cgroup-manager=disabled --root=/tmp/crun-%U state %n.%u.%j.%s.%t"
RunTimeKill="crun --cgroup-manager=disabled --root=/tmp/crun-%U kill -a %n.%u.%j.%s.%t"
RunTimeDelete="crun --cgroup-manager=disabled --root=/tmp/crun-%U delete --force %n.%u.%j.%s.%t"
RunTimeRun="crun --cgroup-manager=disabled --root=/tmp/crun-%U run --bundle %b %n.%u.%j.%s.%t"
"""
MOUNTS = (
    ("/proc", "proc", "proc", ()),
    ("/dev", "tmpfs", "tmpfs", ("nosuid", "mode=755")),
    ("/home", "/home", "bind", ("rbind", "rw")),
)


def apptainer() -> Path:
    """Return a folder with Debian sid's Apptainer, no release has one yet; fetches it the first time (19 MB)."""
    target = CACHE / "apptainer-sid"
    with locked(target) as missing:
        if missing:
            with tempfile.TemporaryDirectory(prefix="apptainer-", dir=CACHE) as folder:
                unpack("sid", ["apptainer"], Path(folder), check_date=False).replace(target)
    return target


def write(layer: Path, tree: Path, user: int) -> None:
    """Write the image, its bundle and Slurm's ``oci.conf`` below ``layer``."""
    root = layer / "images" / IMAGE
    for name in ("bin", *FOLDERS):
        (root / name).mkdir(parents=True)
    shutil.copy2(tree / "usr/bin/busybox", root / "bin/busybox")
    for name in APPLETS:
        (root / "bin" / name).symlink_to("busybox")
    (root / "etc/passwd").touch()
    (root / "etc/group").touch()
    (root / "etc/motd").write_text("of the image\n")
    bundle = layer / "bundles" / IMAGE / "config.json"
    bundle.parent.mkdir(parents=True)
    bundle.write_text(json.dumps(_bundle(user), indent=1))
    (layer / "etc/slurm/oci.conf").write_text(OCI)


def _bundle(user: int) -> dict[str, object]:
    mapping = [{"containerID": user, "hostID": user, "size": 1}]
    mounts = [
        {"destination": to, "source": source, "type": kind, "options": [*options]}
        for to, source, kind, options in MOUNTS
    ]
    return {
        "ociVersion": "1.0.2",
        "process": {"user": {"uid": user, "gid": user}, "args": ["sh"], "env": ["PATH=/bin"], "cwd": "/"},
        "root": {"path": f"/images/{IMAGE}", "readonly": True},
        "mounts": mounts,
        "linux": {
            "namespaces": [{"type": one} for one in ("user", "mount", "pid")],
            "uidMappings": mapping,
            "gidMappings": mapping,
        },
    }
