"""Debian 13's Python with what the locks have for it, beside the older one of this machine; nothing is installed.

The interpreter and its C library are unpacked into ``.cache``, and the program is told where these lie, so that it
runs, and starts this machine's own programs, like any other.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from tests.support.clients import CACHE, ROOT, locked, run
from tests.support.docker.debian import unpack, unpack_whole

LOCK = ROOT / "requirements-dev.txt"
PYTHON = "python3.13"


def interpreter() -> Path:
    """Return the interpreter without packages; fetches it the first time (15 MB)."""
    target = CACHE / "trixie-interpreter"
    with locked(target) as missing:
        if missing:
            with tempfile.TemporaryDirectory(prefix="interpreter-", dir=CACHE) as folder:
                for name in ("tree", "patchelf"):
                    Path(folder, name).mkdir()
                made = unpack_whole("trixie", [PYTHON], Path(folder, "tree"))
                patchelf = unpack("bookworm", ["patchelf"], Path(folder, "patchelf")) / "usr/bin/patchelf"
                libraries = target / "usr/lib/x86_64-linux-gnu"
                paths = [f"--set-interpreter={libraries}/ld-linux-x86-64.so.2", f"--set-rpath={libraries}"]
                words = [word for path in paths for word in path.split("=", 1)]
                run([str(patchelf), "--force-rpath", *words, str(made / "usr/bin" / PYTHON)])
                made.replace(target)
    return target / "usr/bin" / PYTHON


def python() -> Path:
    """Return the interpreter of a virtual environment with the locked packages; makes it the first time (a minute)."""
    found = interpreter()
    target = CACHE / f"trixie-environment-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}"
    made = target / "bin/python"
    with locked(target) as missing:
        if missing:
            for older in CACHE.glob("trixie-environment-*"):
                if older.is_dir():
                    shutil.rmtree(older)
            try:
                run([str(found), "-m", "venv", "--without-pip", str(target)])
                _install(made)
            except BaseException:
                shutil.rmtree(target, ignore_errors=True)
                raise
    return made


def _install(python: Path) -> None:
    """Fill the environment by a pip that its Python can run; Debian's for this machine is too old."""
    with tempfile.TemporaryDirectory() as folder:
        argv = ["-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, "pip"]
        run([str(ROOT / ".venv/bin/python"), *argv])
        pip = next(Path(folder).glob("pip-*.whl")) / "pip"
        run([str(python), str(pip), "install", "--quiet", "--no-compile", "--requirement", str(LOCK)])
    packages = run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()
    Path(packages, "minik8s.pth").write_text(f"{ROOT}\n", encoding="utf-8")
