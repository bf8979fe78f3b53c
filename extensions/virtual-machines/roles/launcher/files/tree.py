"""Gathers the launcher's part of its image: this machine's Python with the modules it imports, compiled, and no others.

    tree.py PACKED INTO

PACKED is an archive with the package ``minik8s_virtual_machines``. What the launcher imports is found by importing it.
Compiled files are taken without a look at their sources, which the image does not have, so a start compiles nothing.
"""

from __future__ import annotations

import importlib
import pkgutil
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "minik8s_virtual_machines"
LAUNCHER = f"{PACKAGE}.launcher"
# loaded only when it comes to it: errors with their traces, threads, names of encodings
LATER = ("concurrent.futures.thread", "encodings.ascii", "encodings.idna", "encodings.latin_1", "encodings.utf_16_be",
         "stringprep", "traceback")  # fmt: skip
# OpenSSL alone is half of it all; asyncio and hashlib do without
LEFT_OUT = frozenset({"_hashlib", "_ssl", "ssl", "sitecustomize", "usercustomize", "apport_python_hook"})
PROGRAM = Path(sys.executable).resolve()


def modules(packages: Path) -> Iterator[tuple[str, Path]]:
    """Yield name and file of each module that the launcher needs."""
    sys.path.insert(0, str(packages))
    for name in ("ssl", "_ssl", "_hashlib"):
        sys.modules[name] = None  # type: ignore[assignment]  # importing it fails
    launcher = importlib.import_module(LAUNCHER)
    for found in pkgutil.walk_packages(launcher.__path__, f"{LAUNCHER}."):
        importlib.import_module(found.name)
    for name in LATER:
        importlib.import_module(name)
    for name, module in sorted(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if path and name not in LEFT_OUT and name != "__main__" and not name.startswith("tests"):
            yield name, Path(path)


def gather(packages: Path, into: Path) -> None:
    """Make the tree: Python's own folder, and the libraries that its extension modules are linked to."""
    library = into / f"usr/lib/python{sys.version_info[0]}.{sys.version_info[1]}"
    extensions = [PROGRAM]
    for name, path in modules(packages):
        place = name.replace(".", "/") + ("/__init__" if path.stem == "__init__" else "")
        if path.suffix == ".py":
            target = library / f"{place}.pyc"
            target.parent.mkdir(parents=True, exist_ok=True)
            mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
            py_compile.compile(str(path), str(target), f"{place}.py", doraise=True, optimize=1, invalidation_mode=mode)
        else:
            target = library / "lib-dynload" / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
            extensions.append(path)
    shutil.copy(PROGRAM, _made(into / "usr/bin/python3"))
    for found in linked(extensions):
        shutil.copy(found, _made(into / found.lstrip("/")))


def linked(files: list[Path]) -> list[str]:
    """Return the shared libraries of ``files``, and their loader."""
    done = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, check=True)
    return sorted(set(re.findall(r"(/\S+) \(0x", done.stdout)))


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def main() -> None:
    """Make it beside the old one, and put it in that one's place."""
    packed, into = map(Path, sys.argv[1:])
    fresh = into.with_name(f"{into.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    with tempfile.TemporaryDirectory() as packages:
        shutil.unpack_archive(packed, packages)
        gather(Path(packages), fresh)
    shutil.rmtree(into, ignore_errors=True)
    fresh.rename(into)


if __name__ == "__main__":
    main()
