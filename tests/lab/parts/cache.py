"""Things made once and kept: each named by the hash of what it is made from, made beside its place, moved there whole.

A maker runs programs through ``contained``: they, and all their mounts, end with this process however that ends. What a
killed one leaves is the ``.part`` folder, which the next maker or ``tidy`` removes.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.lab.errors import LabError
from tests.lab.host import Host, drop_lock

PART = ".part"
# Killed when the thread that started it ends; --kill-child hands that down, the pid namespace to everybody in it.
CONTAINED = ["setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child=KILL"]
CONTAINED += ["--mount", "--mount-proc"]


def digest(*parts: str) -> str:
    """Return 12 hexadecimal characters that name what is made from ``parts``."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def digest_of(path: Path) -> str:
    """Return 12 hexadecimal characters that name a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]


def contained(*argv: str | Path) -> list[str]:
    """Return the command line that leaves neither processes nor mounts behind."""
    return [*CONTAINED, *(str(word) for word in argv)]


def say(text: str) -> None:
    """Tell the user what takes so long."""
    print(f"lab: {text}", file=sys.stderr, flush=True)


def once(host: Host, target: Path, what: str, make: Callable[[Path], None]) -> Path:
    """Return ``target``, made by ``make(partial)`` if it is not there; a failed or killed one leaves no target."""
    if target.exists():
        return target
    lock = target.with_name(f"{target.name}.lock")
    with host.locked(lock):
        if not target.exists():
            say(what)
            partial = target.with_name(target.name + PART)
            remove(partial)
            partial.mkdir(parents=True, mode=0o755)
            make(partial)
            partial.replace(target)
        drop_lock(lock)
    return target


@contextlib.contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Lend a folder for a maker's own needs, below the partial it makes: it goes with that when the maker is killed."""
    work = folder / ".work"
    work.mkdir()
    yield work
    remove(work)


def tidy(host: Host, folder: Path) -> None:
    """Remove what makers left half-made; those that are at work are let be."""
    for partial in folder.glob(f"*{PART}"):
        lock = partial.with_name(f"{partial.name.removesuffix(PART)}.lock")
        if not host.is_locked(lock):
            with host.locked(lock):
                remove(partial)
                drop_lock(lock)


def remove(path: Path) -> None:
    """Remove a file or a folder, but nothing that is mounted below it.

    Raises:
        LabError: Something is mounted there.
    """
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    inside = [line.split(" ")[1] for line in mounts if f" {path}/" in line or f" {path} " in line]
    if inside:
        raise LabError(f"{path} cannot be removed: {inside[0]} is still mounted (umount it)")
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
