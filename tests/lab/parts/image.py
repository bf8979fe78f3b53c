"""What nodes boot from: a Debian root folder (native) and the same as an ext4 image (UML), in the user's cache.

Two steps, each named by the hash of what goes in: ``debian-<hash>`` (packages, by mmdebstrap, itself a package unpacked
into the cache) and ``image-<hash>`` (files, settings and the lab's public key on top). A changed list makes a new
image, an unchanged one is never made again; one that nobody used for a day goes when a new one has been made.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.lab.errors import LabBuildFailed
from tests.lab.host import Host, HostCommandFailed
from tests.lab.parts import cache
from tests.lab.places import FILES, Places
from tests.lab.records import DEFAULT_RELEASE, Release, read_nodes
from tests.support.docker.debian import mirror, unpack

# trixie's docker.io only recommends its client
FURTHER: Mapping[Release, Sequence[str]] = {"bookworm": (), "trixie": ("docker-cli",)}
TOOLS_SUITE = "bookworm"
# As a node sees its disk; only what it writes takes space.
DISK_SIZE = "8G"
KEEP_UNUSED_S = 86400
LEFT_OUT = ("man", "doc", "locale", "info", "lintian")


def packages(release: Release) -> list[str]:
    """Return the packages of a node with this release."""
    lines = (FILES / "packages.txt").read_text(encoding="utf-8").splitlines()
    return [*(word for line in lines if not line.startswith("#") for word in line.split()), *FURTHER[release]]


def key(host: Host, places: Places) -> Path:
    """Return the private SSH key that opens every lab node of this user; the image knows its other half."""

    def make(folder: Path) -> None:
        host.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "minik8s-lab", "-f", folder / "key"])

    return cache.once(host, places.cache / "ssh", "making an SSH key", make) / "key"


def get(host: Host, places: Places, release: Release = DEFAULT_RELEASE) -> Path:
    """Return a release's folder: ``root/``, ``disk.ext4``, ``empty.ext4`` (a native node's disk), ``host_key.pub``.

    Raises:
        LabBuildFailed: It could not be made; the message holds the program's words.
    """
    public = key(host, places).with_suffix(".pub").read_text(encoding="ascii")
    base = cache.digest(release, *packages(release))
    files = sorted(path for path in (FILES / "image").rglob("*") if path.is_file())
    setup = (FILES / "image-setup.sh").read_text(encoding="utf-8")
    parts = [part for path in files for part in (str(path.relative_to(FILES)), path.read_text(encoding="utf-8"))]
    target = places.cache / f"image-{cache.digest(base, setup, DISK_SIZE, public, *parts)}"
    if not target.exists():
        debian = cache.once(
            host,
            places.cache / f"debian-{base}",
            f"installing Debian {release} for the nodes (a minute)",
            lambda folder: _debian(host, places, release, folder),
        )
        cache.once(host, target, "making the nodes' image", lambda folder: _image(host, debian, setup, public, folder))
        os.utime(debian)
        _prune(places, {debian, target}, time.time())
    os.utime(target)
    return target


def _debian(host: Host, places: Places, release: Release, folder: Path) -> None:
    tool = _mmdebstrap(host, places)
    sources = [f"deb {mirror()} {release} main", f"deb {mirror()} {release}-updates main"]
    sources.append(f"deb {mirror()}-security {release}-security main")
    options = ["--mode=root", "--variant=minbase", f"--include={','.join(packages(release))}", "--quiet"]
    options += ['--aptopt=Acquire::Languages "none"', '--aptopt=APT::Install-Recommends "false"']
    options += ["--dpkgopt=force-unsafe-io", *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in LEFT_OUT)]
    try:
        # It calls its own helper programs by name.
        path = {"PATH": f"{tool.parent}:{os.environ['PATH']}"}
        host.run(cache.contained(tool, *options, release, folder, *sources), environment=path, timeout_s=1800)
    except HostCommandFailed as error:
        raise LabBuildFailed(f"the nodes' Debian cannot be made: {error}") from error


def _mmdebstrap(host: Host, places: Places) -> Path:
    """Return mmdebstrap, a Perl script that needs nothing but apt."""

    def make(folder: Path) -> None:
        with cache.scratch(folder) as work:
            try:
                tree = unpack(TOOLS_SUITE, ["mmdebstrap"], work)
            except RuntimeError as error:
                raise LabBuildFailed(f"mmdebstrap cannot be fetched: {error}") from error
            shutil.copytree(tree / "usr", folder / "usr", symlinks=True)

    return cache.once(host, places.cache / "tools", "fetching mmdebstrap", make) / "usr/bin/mmdebstrap"


def _image(host: Host, debian: Path, setup: str, public: str, folder: Path) -> None:
    root, disk = folder / "root", folder / "disk.ext4"
    host.run(["cp", "--archive", "--reflink=auto", debian, root])
    host.run(["cp", "--recursive", "--no-target-directory", FILES / "image", root])
    host.run(cache.contained("chroot", root, "sh", "-euc", setup))
    (root / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
    (root / "root/.ssh/authorized_keys").write_text(public, encoding="ascii")
    shutil.copy(root / "etc/ssh/ssh_host_ed25519_key.pub", folder / "host_key.pub")
    make = ["mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=16", "-i", "32768"]
    make += ["-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard"]
    host.run(["truncate", f"--size={DISK_SIZE}", disk, folder / "empty.ext4"])
    host.run([*make, "-d", root, disk])
    host.run([*make, folder / "empty.ext4"])


def _prune(places: Places, keep: set[Path], now: float) -> None:
    """Remove images that no lab here uses, nor is about to; a copy-on-write disk refuses any other backing file."""
    used = keep | {Path(node.image) for folder in places.state.glob("*") for node in read_nodes(folder)}
    for old in [*places.cache.glob("image-*"), *places.cache.glob("debian-*")]:
        if old not in used and old.is_dir() and now - old.stat().st_mtime > KEEP_UNUSED_S:
            cache.remove(old)
