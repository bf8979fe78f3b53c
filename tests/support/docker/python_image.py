"""An image with this machine's Python and nothing else: what a real program in a pod is written in, without a registry.

The interpreter, the libraries it and its extension modules link to, and the standard library without its tests.
"""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PYTHON = Path("/usr/bin/python3").resolve()
LIBRARY = Path("/usr/lib") / PYTHON.name
_LEFT_OUT = {
    "test",
    "idlelib",
    "lib2to3",
    "ensurepip",
    "distutils",
    "tkinter",
    "turtledemo",
    "pydoc_data",
    "__pycache__",
}


def linked(files: list[Path]) -> set[Path]:
    """Return the shared libraries that the dynamic linker finds for ``files``, the linker itself among them."""
    done = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, check=False)
    return {Path(found) for found in re.findall(r"(/\S+\.so\S*) \(0x", done.stdout)}


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = Path(member.name).name
    return None if name in _LEFT_OUT or name.startswith("config-") or name.endswith(".a") else member


def _archive() -> bytes:
    buffer = io.BytesIO()
    extensions = sorted((LIBRARY / "lib-dynload").glob("*.so"))
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as archive:
        archive.add(LIBRARY, str(LIBRARY).lstrip("/"), filter=_kept)
        for path in sorted({PYTHON, *linked([PYTHON, *extensions])}):
            archive.add(path, str(path).lstrip("/"))
        for folder in ("tmp", "etc", "var/run"):
            member = tarfile.TarInfo(folder)
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(member)
    return buffer.getvalue()


@contextmanager
def python_image() -> Iterator[str]:
    """Yield the image's name; its entry point is Python. The image goes at the end."""
    name = f"minik8s/test-python-{uuid.uuid4().hex[:8]}:1"
    entry = f'ENTRYPOINT ["{PYTHON}"]'
    subprocess.run(["docker", "import", "-c", entry, "-", name], input=_archive(), check=True, capture_output=True)
    try:
        yield name
    finally:
        subprocess.run(["docker", "rmi", "--force", name], check=False, capture_output=True)
