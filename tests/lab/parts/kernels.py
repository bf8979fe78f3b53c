"""Kernels of UML nodes, each unpacked to a folder of the cache: ``linux``, ``modules/``, ``version``, maybe ``lib/``.

``find`` takes the first there is: what MINIK8S_LAB_KERNEL or ``--kernel`` names, the project's neighbour
``../shared/lab/uml-linux-*.tar.xz``, one that was built here, Debian trixie's package. ``build`` makes one from
Debian's source, 16 CPU-minutes, only on request.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.lab.errors import LabBuildFailed, LabUsage
from tests.lab.host import Host
from tests.lab.parts import cache
from tests.lab.places import FILES, Places
from tests.support.docker.debian import unpack

VARIABLE = "MINIK8S_LAB_KERNEL"
SOURCE_SUITE, SOURCE_PACKAGE = "sid", "linux-source-7.2"
DEBIAN_SUITE = "trixie"
TOOLS_SUITE = "bookworm"
SECCOMP_SINCE = (6, 16)
# Debian configures its UML kernels without nftables for IPv4: 6.1, 6.12 and sid's 7.2 alike.
LIBRARIES = ("libc.so.6", "ld-linux-x86-64.so.2")


@dataclass(frozen=True)
class Kernel:
    """A kernel in its folder."""

    folder: Path

    @property
    def program(self) -> Path:
        """The kernel is a program."""
        return self.folder / "linux"

    @property
    def modules(self) -> Path:
        """What a node mounts on /lib/modules."""
        return self.folder / "modules"

    @property
    def libraries(self) -> Path | None:
        """The C library it needs where the host's is older."""
        return self.folder / "lib" if (self.folder / "lib").exists() else None

    @property
    def version(self) -> str:
        """Its version as it says itself, such as ``7.2.13-lab``."""
        return (self.folder / "version").read_text(encoding="ascii").strip()

    @property
    def has_seccomp(self) -> bool:
        """Tell whether it knows ``seccomp=on``, which makes system calls several times faster."""
        return release(self.version) >= SECCOMP_SINCE


def release(version: str) -> tuple[int, int]:
    """Return the first two numbers of a kernel's version."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if not found:
        raise LabUsage(f"{version!r} is not the version of a kernel")
    return int(found[1]), int(found[2])


def find(host: Host, places: Places, wanted: str = "", environment: Mapping[str, str] = os.environ) -> Kernel:
    """Return the kernel for new UML nodes; fetches or unpacks it the first time.

    Args:
        host: Runs programs.
        places: Where the cache is.
        wanted: An archive, a folder with ``linux`` and ``modules``, ``debian``, ``build``; "" takes the first there is.
        environment: Where MINIK8S_LAB_KERNEL may say the same.

    Raises:
        LabUsage: What was named is no kernel.
        LabBuildFailed: It could not be fetched or built.
    """
    named = wanted or environment.get(VARIABLE, "")
    if named == "build":
        return build(host, places)
    if named == "debian":
        return debian(host, places)
    if named:
        return _named(host, places, Path(named))
    shared = places.project.parent / "shared" / "lab"
    ready = sorted(shared.glob("next/uml-linux-*.tar.xz")) or sorted(shared.glob("uml-linux-*.tar.xz"))
    if ready:
        return _unpacked(host, places, ready[-1])
    built = built_folder(places)
    return Kernel(built) if built.exists() else debian(host, places)


def _named(host: Host, places: Places, path: Path) -> Kernel:
    path = path.absolute()
    if path.is_file():
        return _unpacked(host, places, path)
    if not (path / "linux").is_file() or not (path / "modules").is_dir():
        raise LabUsage(f"{path} is no kernel: neither an archive nor a folder with linux and modules/")

    def make(folder: Path) -> None:
        shutil.copy(path / "linux", folder / "linux")
        shutil.copytree(path / "modules", folder / "modules", symlinks=True)
        _finish(host, folder)

    name = cache.digest(cache.digest_of(path / "linux"), *sorted(str(file) for file in (path / "modules").rglob("*")))
    return Kernel(cache.once(host, places.cache / f"uml-{name}", f"copying the kernel {path}", make))


def _unpacked(host: Host, places: Places, archive: Path) -> Kernel:
    def make(folder: Path) -> None:
        host.run(["tar", "--extract", "--no-same-owner", "--file", archive, "--directory", folder])
        _finish(host, folder)

    return Kernel(cache.once(host, places.cache / f"uml-{cache.digest_of(archive)}", f"unpacking {archive.name}", make))


def debian(host: Host, places: Places) -> Kernel:
    """Return trixie's 6.12, fetched as a package: it has legacy iptables only, and is slower."""

    def make(folder: Path) -> None:
        with cache.scratch(folder) as work:
            tree = _fetch(DEBIAN_SUITE, ["user-mode-linux", "libc6"], work)
            (tree / "usr/bin/linux.uml").rename(folder / "linux")
            (tree / "usr/lib/uml/modules").rename(folder / "modules")
            (folder / "lib").mkdir()
            for file in LIBRARIES:
                shutil.copy(tree / "usr/lib/x86_64-linux-gnu" / file, folder / "lib")
        _finish(host, folder)

    return Kernel(cache.once(host, places.cache / f"uml-debian-{DEBIAN_SUITE}", "fetching Debian's UML kernel", make))


def _fetch(suite: str, packages: list[str], work: Path, *, check_date: bool = True) -> Path:
    try:
        return unpack(suite, packages, work, check_date=check_date)
    except RuntimeError as error:
        raise LabBuildFailed(f"{', '.join(packages)} of Debian {suite} cannot be fetched: {error}") from error


def _finish(host: Host, folder: Path) -> None:
    """Ask the kernel for its version, by its own dynamic linker where it needs a newer C library."""
    if not (folder / "linux").is_file() or not (folder / "modules").is_dir():
        raise LabUsage(f"the kernel holds {sorted(p.name for p in folder.iterdir())}, not linux and modules")
    loader: list[str | Path] = (
        [folder / "lib" / LIBRARIES[1], "--library-path", folder / "lib"] if (folder / "lib").exists() else []
    )
    said = host.run([*loader, folder / "linux", "--version"]).strip().splitlines()
    (folder / "version").write_text(said[-1] + "\n", encoding="ascii")


def built_folder(places: Places) -> Path:
    """Return where a kernel built with the present configuration lies."""
    configuration = (FILES / "uml.config").read_text(encoding="utf-8")
    return places.cache / f"uml-built-{cache.digest(SOURCE_PACKAGE, configuration)}"


def build(host: Host, places: Places) -> Kernel:
    """Return the kernel compiled from Debian's source with ``files/uml.config``; the first time 16 CPU-minutes."""

    def make(folder: Path) -> None:
        with cache.scratch(folder) as work:
            _compile(host, work, folder)
        _finish(host, folder)

    return Kernel(cache.once(host, built_folder(places), "compiling a kernel (16 CPU-minutes)", make))


def _compile(host: Host, work: Path, folder: Path) -> None:
    folders = [work / name for name in ("fetched", "tools", "source", "objects")]
    for made in folders:
        made.mkdir()
    fetched, tools_folder, source, objects = folders
    # sid's lists on a mirror that lags may be past their date; their signature is checked all the same.
    packed = _fetch(SOURCE_SUITE, [SOURCE_PACKAGE], fetched, check_date=False) / f"usr/src/{SOURCE_PACKAGE}.tar.xz"
    usr = _fetch(TOOLS_SUITE, ["flex", "bison", "m4"], tools_folder) / "usr"
    host.run(["tar", "--extract", "--file", packed, "-C", source, "--strip-components=1"])
    tools = {
        "PATH": f"{usr}/bin:{os.environ['PATH']}",
        "BISON_PKGDATADIR": f"{usr}/share/bison",
        "M4": f"{usr}/bin/m4",
    }
    make: list[str | Path] = ["make", "-s", "-C", source, f"O={objects}", "ARCH=um"]
    merge = ["sh", "-c", 'cd "$1" && exec scripts/kconfig/merge_config.sh -m -O "$2" "$2/.config" "$3"', "merge"]
    host.run([*make, "defconfig"], environment=tools)
    host.run([*merge, source, objects, FILES / "uml.config"], environment=tools)
    host.run([*make, "olddefconfig"], environment=tools)
    host.run(cache.contained(*make, f"-j{os.cpu_count() or 1}", "linux", "modules"), environment=tools, timeout_s=7200)
    host.run([*make, "modules_install", f"INSTALL_MOD_PATH={folder}"], environment=tools)
    for link in folder.glob("lib/modules/*/build"):
        link.unlink()
    (folder / "lib/modules").rename(folder / "modules")
    (folder / "lib").rmdir()
    host.run(["strip", "--output-file", folder / "linux", objects / "linux"])
