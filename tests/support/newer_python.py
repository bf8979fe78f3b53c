"""Newer Pythons of Debian with what the locks have for them, beside this machine's own; nothing is installed.

An interpreter and its C library are unpacked into ``.cache``, and the program is told where these lie, so that it
runs, and starts this machine's own programs, like any other.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.clients import CACHE, ROOT, locked, run
from tests.support.docker.debian import unpack, unpack_whole

LOCK = ROOT / "requirements-dev.txt"
SUITES = {"3.13": "trixie", "3.14": "sid"}
"""The releases of Debian that have a version of Python."""


def interpreter(version: str) -> Path:
    """Return the interpreter without packages; fetches it the first time (15 MB)."""
    suite = SUITES[version]
    target = CACHE.resolve() / f"{suite}-interpreter"  # a cache may be a link of a checkout that goes
    program = target / "usr/bin" / f"python{version}"
    with locked(target) as missing:
        if missing or not _starts(program):
            shutil.rmtree(target, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix="interpreter-", dir=CACHE) as folder:
                for name in ("tree", "patchelf"):
                    Path(folder, name).mkdir()
                made = unpack_whole(suite, [program.name], Path(folder, "tree"))
                patchelf = unpack("bookworm", ["patchelf"], Path(folder, "patchelf")) / "usr/bin/patchelf"
                libraries = target / "usr/lib/x86_64-linux-gnu"
                paths = [f"--set-interpreter={libraries}/ld-linux-x86-64.so.2", f"--set-rpath={libraries}"]
                words = [word for path in paths for word in path.split("=", 1)]
                run([str(patchelf), "--force-rpath", *words, str(made / "usr/bin" / program.name)])
                made.replace(target)
    return program


def _starts(program: Path) -> bool:
    """Return whether a program runs; one whose C library was elsewhere when the cache was moved does not."""
    try:
        return subprocess.run([str(program), "-V"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def python(version: str) -> Path:
    """Return the interpreter of a virtual environment with the locked packages; makes it the first time (a minute)."""
    found, name = interpreter(version), f"{SUITES[version]}-environment"
    target = CACHE.resolve() / f"{name}-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}"
    made = target / "bin/python"
    with locked(target) as missing:
        if missing or not _starts(made):
            for older in CACHE.glob(f"{name}-*"):
                if older.is_dir():
                    shutil.rmtree(older)
            try:
                run([str(found), "-m", "venv", "--without-pip", str(target)])
                _install(made)
            except BaseException:
                shutil.rmtree(target, ignore_errors=True)
                raise
        _use_this_checkout(made)
    return made


def _install(python: Path) -> None:
    """Fill the environment by a pip that its Python can run; Debian's for this machine is too old."""
    with tempfile.TemporaryDirectory() as folder:
        argv = ["-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, "pip"]
        run([str(ROOT / ".venv/bin/python"), *argv])
        pip = next(Path(folder).glob("pip-*.whl")) / "pip"
        run([str(python), str(pip), "install", "--quiet", "--no-compile", "--requirement", str(LOCK)])


def _use_this_checkout(python: Path) -> None:
    """Have the environment find our own package in this checkout, also where another one made it."""
    packages = run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()
    Path(packages, "minik8s.pth").write_text(f"{ROOT}\n", encoding="utf-8")
