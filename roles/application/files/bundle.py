#!/usr/bin/env python3
"""Packs what an air-gapped machine of the control plane needs into a cache, once; prints where as JSON.

    bundle.py --repository DIR
    bundle.py --repository DIR --cache DIR --prefix DIR --python X.Y [--wheels DIR]

The first form prints what tells these sources from others. The second makes two archives, each unpacked below the
prefix: ``requirements`` is a virtual environment with the locked requirements, ``project`` is our own package in it,
with playbooks and modules in ``share``. Both are made by pip in a virtual environment here; its path is then exchanged
for the one it will have, and its files are compiled for that path. For another minor version of Python than the one
that runs this, pip takes that version's wheels, no such interpreter is needed here, and ``compiled`` is false: the
machine itself has to compile what it unpacks.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement  # ansible-core needs it, so it is where playbooks run

SHARE = ("ansible.cfg", "library", "minik8s_modules", "playbooks", "roles", "templates")
SOURCES = (*SHARE, "pyproject.toml", "README.md", "LICENSE", "requirements.txt")
KEPT, KEPT_S = 3, 3600
"""Archives of each kind that stay in the cache: so many, and all that were used a moment ago, maybe by another run."""


def run(*argv: str | Path) -> None:
    """Run a program; end with its words where it fails."""
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False, cwd="/")
    if done.returncode:
        sys.exit(f"{' '.join(str(word) for word in argv[:4])} failed: {(done.stderr or done.stdout).strip()[-3000:]}")


def is_ours(version: str) -> bool:
    """Return whether this interpreter's packages are those of the other machine's ``version``."""
    return version == "{}.{}".format(*sys.version_info[:2])


def locked(lock: Path, version: str) -> list[str]:
    """Return what a lock has for a version of Python; of markers, pip asks the Python that it runs on."""
    lines = [line for line in lock.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    found = [Requirement(line) for line in lines]
    here = {"python_version": version, "python_full_version": f"{version}.0"}
    return [f"{one.name}{one.specifier}" for one in found if one.marker is None or one.marker.evaluate(here)]


def files(root: Path, names: Iterable[str]) -> list[Path]:
    """Return the files below ``root`` that belong to the sources ``names``, sorted."""
    found: list[Path] = []
    for name in names:
        path = root / name
        below = (one for one in path.rglob("*") if one.is_file() and "__pycache__" not in one.parts)
        found += [path] if path.is_file() else below
    return sorted(found)


def digest(root: Path, names: Iterable[str], *parts: str) -> str:
    """Return what tells two archives apart: the files, this program, and what it is told."""
    found = hashlib.sha256(Path(__file__).read_bytes() + "\0".join([platform.machine(), *parts]).encode())
    for path in files(root, names):
        found.update(f"\0{path.relative_to(root)}\0".encode() + path.read_bytes())
    return found.hexdigest()[:16]


class Maker:
    """One run of this program; ``work`` is a folder that goes with it."""

    def __init__(self, given: argparse.Namespace, work: Path) -> None:
        self.repository, self.prefix, self.work = Path(given.repository), Path(given.prefix), work
        self.version, self.wheels = str(given.python), str(given.wheels)

    def requirements(self, tree: Path) -> None:
        """Make the virtual environment with the locked requirements below ``tree``."""
        self._environment(tree, *self._index(), *locked(self.repository / "requirements.txt", self.version))

    def project(self, tree: Path) -> None:
        """Make our own package and the folder ``share`` below ``tree``."""
        sources = self.work / "sources"
        for path in files(self.repository, SOURCES):
            copy = sources / path.relative_to(self.repository)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
        shutil.copytree(sources, tree / "share")
        self._environment(tree, *self._index(), "--no-deps", sources)
        for path in (tree / "venv" / "pyvenv.cfg", tree / "venv" / "lib64"):
            path.unlink(missing_ok=True)
        for path in (tree / "venv" / "bin").iterdir():
            if "minik8s" not in path.name:
                path.unlink()

    def _index(self) -> list[str]:
        """Return where pip looks: given wheels have those of the requirements, and what builds our own package."""
        return ["--no-index", f"--find-links={self.wheels}"] if self.wheels else []

    def _environment(self, tree: Path, *what: str | Path) -> None:
        made = tree / "venv"
        pip = [sys.executable, "-m", "pip", "--quiet"]
        install = ["install", "--no-compile", "--no-warn-script-location"]
        if is_ours(self.version):
            run(sys.executable, "-m", "venv", "--without-pip", made)
            run(*pip, f"--python={made}/bin/python", *install, *what)
        else:
            # pip compares what packages need with the Python that it runs on, too
            self._foreign(made, [*pip, *install, "--use-pep517", "--ignore-requires-python"], *what)
        for name in ("python", "python3", f"python{self.version}"):
            (made / "bin" / name).unlink(missing_ok=True)
            (made / "bin" / name).symlink_to("/usr/bin/python3" if name == "python" else "python")
        self._settle(made)
        if is_ours(self.version):
            run(sys.executable, "-m", "compileall", "-q", "-j", "2", "-s", tree, "-p", self.prefix, made / "lib")

    def _foreign(self, made: Path, install: list[str], *what: str | Path) -> None:
        """Fill an environment for another version; the requirements are locked, so nothing has to be resolved."""
        packages = made / "lib" / f"python{self.version}" / "site-packages"
        run(*install, "--no-deps", f"--python-version={self.version}", "--target", packages, *what)
        (packages / "bin").rename(made / "bin")
        for path in (made / "bin").iterdir():
            path.write_bytes(path.read_bytes().replace(os.fsencode(sys.executable), os.fsencode(made / "bin/python")))
        tag = "cpython-" + self.version.replace(".", "")
        wrong = [path.name for path in packages.rglob("*.cpython-*.so") if f".{tag}-" not in path.name]
        if wrong:
            sys.exit(f"no wheels for Python {self.version} of {', '.join(wrong)}: give a folder with them")

    def _settle(self, made: Path) -> None:
        """Have an environment name the path that it will have, and the machine's own Python."""
        for path in (made / "bin").iterdir():
            if path.is_file() and not path.is_symlink():
                text = path.read_bytes()
                path.write_bytes(text.replace(os.fsencode(made), os.fsencode(self.prefix / "venv")))
        lines = ("home = /usr/bin", "include-system-site-packages = false", f"version = {self.version}")
        (made / "pyvenv.cfg").write_text("\n".join(lines) + "\n", encoding="ascii")


def pack(tree: Path, target: Path) -> None:
    """Write what is below ``tree`` to an archive, whole or not at all."""

    def root(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        return member

    partial = target.with_suffix(".part")
    with tarfile.open(partial, "w:gz", compresslevel=1) as archive:
        for path in sorted(tree.iterdir()):
            archive.add(path, path.name, filter=root)
    partial.replace(target)


def main() -> None:
    """Make what is missing; print the paths."""
    parser = argparse.ArgumentParser(description="Pack the control plane's programs into a cache.")
    parser.add_argument("--repository", required=True, help="the sources")
    parser.add_argument("--cache", default="", help="the folder that keeps the archives")
    parser.add_argument("--prefix", default="", help="the folder that the archives will be unpacked to")
    parser.add_argument("--python", default="", help="version of the other machine's /usr/bin/python3, as 3.11")
    parser.add_argument("--wheels", default="", help="folder with wheels of the requirements; none asks pip's index")
    given = parser.parse_args()
    if not given.cache:
        sys.stdout.write(digest(Path(given.repository), SOURCES) + "\n")
        return
    told = (given.prefix, given.python)
    names = {
        "requirements": digest(Path(given.repository), ["requirements.txt"], *told),
        "project": digest(Path(given.repository), SOURCES, *told),
    }
    cache = Path(given.cache)
    cache.mkdir(parents=True, exist_ok=True)
    paths = {kind: cache / f"{kind}-{name}.tar.gz" for kind, name in names.items()}
    with (cache / "bundle.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for kind, path in paths.items():
            make(kind, path, given)
    told_of = {**{kind: str(path) for kind, path in paths.items()}, "compiled": is_ours(str(given.python))}
    sys.stdout.write(json.dumps(told_of) + "\n")


def make(kind: str, path: Path, given: argparse.Namespace) -> None:
    """Make one archive where it is missing; drop the oldest of its kind."""
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f"{kind}-", suffix=".part") as folder:
            maker, tree = Maker(given, Path(folder)), Path(folder, "tree")
            tree.mkdir()
            (maker.requirements if kind == "requirements" else maker.project)(tree)
            pack(tree, path)
    path.touch()
    others = sorted(path.parent.glob(f"{kind}-*.tar.gz"), key=lambda one: one.stat().st_mtime, reverse=True)
    for old in others[KEPT:]:
        if time.time() - old.stat().st_mtime > KEPT_S:
            old.unlink()


if __name__ == "__main__":
    main()
