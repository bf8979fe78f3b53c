"""Guests that really boot, for tests, as images without any program: made once into the cache, named by what they hold.

For User-Mode Linux a root file system as a container disk. For QEMU Debian's cloud kernel, and the same files with
Debian's guest agent as its initramfs.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import stat
import subprocess
import tarfile
import tempfile
from pathlib import Path

from tests.support.clients import CACHE, locked
from tests.support.docker.python_image import linked

FILES = Path(__file__).with_name("guest")
BUSYBOX = Path("/bin/busybox")
_FOLDERS = ("bin", "sbin", "dev", "proc", "sys", "run", "etc", "root", "tmp", "modules")
UML_DISK = "minik8s/test-guest-uml:1"
SSH_DISK = "minik8s/test-guest-ssh:1"
QEMU_BOOT = "minik8s/test-guest-qemu:1"
SSHD = Path("/usr/sbin/sshd")
# xor ax,ax; mov ds,ax; mov si,text; mov dx,0x3f8; next: lodsb; test al,al; jz end; out dx,al; jmp next;
# end: hlt; jmp end
_SECTOR = bytes.fromhex("31c0 8ed8 be157c baf803 ac 84c0 7403 ee ebf8 f4 ebfd")
# in the order in which they need one another; that kernel has no driver of SATA
_MODULES = (
    "virtio/virtio_ring", "virtio/virtio", "virtio/virtio_pci_modern_dev", "virtio/virtio_pci_legacy_dev",
    "virtio/virtio_pci", "net/net_failover", "net/virtio_net", "block/virtio_blk", "char/virtio_console",
    "scsi/scsi_common", "scsi/scsi_mod", "scsi/virtio_scsi", "cdrom/cdrom", "scsi/sr_mod", "acpi/button", "input/evdev",
)  # fmt: skip


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
    button = root / "etc/acpi/PWRF/00000080"
    button.parent.mkdir(parents=True)
    button.write_text("#!/bin/sh\npoweroff\n")
    button.chmod(0o755)


def add_sshd(root: Path) -> None:
    """Add this machine's SSH server, with a host key that is no secret."""
    for path in (SSHD, *linked([SSHD])):
        place = root / str(path)[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(path.read_bytes())
        place.chmod(0o755)
    (root / "etc/ssh").mkdir()
    (root / "etc/ssh/sshd_config").touch()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(root / "etc/ssh/host")], check=True)
    with (root / "etc/passwd").open("a") as users:
        users.write("sshd:x:100:65534::/run/sshd:/bin/false\n")


def uml_disk(*, sshd: bool = False) -> Path:
    """Return the root file system of a guest, ext4 in a raw image; with an SSH server where that is asked for."""
    path = CACHE / f"vm-guest-{_digest()}{'-ssh' if sshd else ''}.ext4"
    with locked(CACHE / "vm-guest.flock"):
        if not path.exists():
            with tempfile.TemporaryDirectory() as folder:
                fill(Path(folder) / "root")
                if sshd:
                    add_sshd(Path(folder) / "root")
                made, size = path.with_suffix(".new"), "48M" if sshd else "16M"
                argv = ["mkfs.ext4", "-q", "-F", "-d", f"{folder}/root", "-E", "lazy_itable_init=1", str(made), size]
                subprocess.run(argv, check=True)
                made.rename(path)
    return path


def _digest() -> str:
    files = [*sorted(FILES.iterdir()), BUSYBOX, Path(__file__)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


def qemu_boot() -> dict[str, Path]:
    """Return a guest's kernel and initramfs."""
    kernel, initrd = CACHE / f"vm-guest-{_digest()}.vmlinuz", CACHE / f"vm-guest-{_digest()}.cpio.gz"
    with locked(CACHE / "vm-guest.flock"):
        if not initrd.exists():
            with tempfile.TemporaryDirectory() as folder:
                _make_qemu_boot(Path(folder), kernel, initrd)
    return {"boot/vmlinuz": kernel, "boot/initrd": initrd}


def _make_qemu_boot(work: Path, kernel: Path, initrd: Path) -> None:
    asked = subprocess.run(
        ["apt-cache", "depends", "linux-image-cloud-amd64"], capture_output=True, text=True, check=True
    )
    package = re.findall(r"Depends: (linux-image-\S+)", asked.stdout)[0]
    # by this machine's own sources: kernels are of the suite of security updates
    subprocess.run(["apt-get", "download", package, "qemu-guest-agent"], cwd=work, capture_output=True, check=True)
    tree, root = work / "tree", work / "root"
    for found in work.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(found), str(tree)], check=True)
    fill(root)
    (modules,) = (tree / "lib/modules").iterdir()
    for number, name in enumerate(("../net/core/failover", *_MODULES)):
        found = modules / "kernel/drivers" / f"{name}.ko"
        (root / "modules" / f"{number:02}-{found.name}").write_bytes(found.read_bytes())
    agent = tree / "usr/sbin/qemu-ga"
    for path, place in [(agent, Path("bin/qemu-ga")), *((each, Path(str(each)[1:])) for each in linked([agent]))]:
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_bytes(path.read_bytes())
        (root / place).chmod(0o755)
    kernel.write_bytes(next((tree / "boot").glob("vmlinuz-*")).read_bytes())
    initrd.write_bytes(gzip.compress(_cpio(root), compresslevel=6))


def _cpio(root: Path) -> bytes:
    """Return a folder as an archive that a kernel unpacks ("newc" of cpio(5))."""
    found = []
    for number, path in enumerate([*sorted(root.rglob("*")), None], start=1):
        name = "TRAILER!!!" if path is None else str(path.relative_to(root))
        mode, data = 0, b""
        if path is not None:
            mode = path.lstat().st_mode
            data = os.fsencode(path.readlink()) if stat.S_ISLNK(mode) else path.read_bytes() if path.is_file() else b""
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        found += [head.ljust(-(-len(head) // 4) * 4, b"\0"), data.ljust(-(-len(data) // 4) * 4, b"\0")]
    return b"".join(found)


def sector_disk(text: str) -> bytes:
    """Return a disk that, booted on a PC, writes ``text`` to the serial console and stands still: no system at all."""
    return (_SECTOR + text.encode() + b"\r\n\0").ljust(510, b"\0") + b"\x55\xaa" + bytes((1 << 20) - 512)


def disk_image(name: str, disk: Path) -> str:
    """Make Docker have an image with ``/disk/<file>`` and nothing else, as container disks are; return its name."""
    return image_of(name, {"disk/disk.img": disk})


def image_of(name: str, files: dict[str, Path]) -> str:
    """Make Docker have an image of these files and nothing else; return its name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for at in sorted({str(Path(path).parent) for path in files}):
            folder = tarfile.TarInfo(at)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o555
            archive.addfile(folder)
        for at, path in files.items():
            member = archive.gettarinfo(path, at)
            member.uid = member.gid = 107
            member.mtime = 0
            with path.open("rb") as file:
                archive.addfile(member, file)
    subprocess.run(["docker", "import", "-", name], input=buffer.getvalue(), check=True, capture_output=True)
    return name
