"""Guests that really boot, for tests: a root file system for User-Mode Linux, as a container disk without any program.

Made once into the cache; what it holds decides its name.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
import tempfile
from pathlib import Path

from tests.support.clients import CACHE, locked

FILES = Path(__file__).with_name("guest")
BUSYBOX = Path("/bin/busybox")
_FOLDERS = ("bin", "sbin", "dev", "proc", "sys", "run", "etc", "root", "tmp", "modules")
UML_DISK = "minik8s/test-guest-uml:1"


def fill(root: Path) -> None:
    """Put the guest's files below ``root``."""
    for name in _FOLDERS:
        (root / name).mkdir(parents=True)
    (root / "sbin/init").write_bytes((FILES / "init").read_bytes())
    (root / "init").symlink_to("sbin/init")  # where an initramfs has it
    for name in ("shell", "on-lease", "read-iso"):
        (root / "bin" / name).write_bytes((FILES / name).read_bytes())
    (root / "bin/busybox").write_bytes(BUSYBOX.read_bytes())
    for path in (root / "sbin/init", *(root / "bin").iterdir()):
        path.chmod(0o755)
    for name, text in (("passwd", "root::0:0:root:/root:/bin/sh\n"), ("group", "root:x:0:\n"), ("resolv.conf", "")):
        (root / "etc" / name).write_text(text)


def uml_disk() -> Path:
    """Return the root file system of a guest, ext4 in a raw image."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in [*sorted(FILES.iterdir()), BUSYBOX, Path(__file__)]))
    path = CACHE / f"vm-guest-{digest.hexdigest()[:12]}.ext4"
    with locked(CACHE / "vm-guest.flock"):
        if not path.exists():
            with tempfile.TemporaryDirectory() as folder:
                fill(Path(folder) / "root")
                made = path.with_suffix(".new")
                argv = ["mkfs.ext4", "-q", "-F", "-d", f"{folder}/root", "-E", "lazy_itable_init=1", str(made), "16M"]
                subprocess.run(argv, check=True)
                made.rename(path)
    return path


def disk_image(name: str, disk: Path) -> str:
    """Make Docker have an image with ``/disk/<file>`` and nothing else, as container disks are; return its name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        folder = tarfile.TarInfo("disk")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o555
        archive.addfile(folder)
        member = archive.gettarinfo(disk, "disk/disk.img")
        member.uid = member.gid = 107
        member.mtime = 0
        with disk.open("rb") as file:
            archive.addfile(member, file)
    subprocess.run(["docker", "import", "-", name], input=buffer.getvalue(), check=True, capture_output=True)
    return name
