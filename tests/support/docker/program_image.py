"""An image of one program under the name its users ask for: what a registry would give, where there is none."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.docker.python_image import linked

NOBODY = 65534
_FOLDERS = {"tmp": 0o1777, "etc": 0o755, "var/run": 0o755}


@contextmanager
def program_image(name: str, program: Path, at: str, user: int = NOBODY) -> Iterator[None]:
    """Make the image ``name``: ``program`` as ``at``, its entry point, with what it links to; it goes at the end."""
    changes = [f"ENTRYPOINT {json.dumps([at])}", f"USER {user}"]
    options = [word for change in changes for word in ("--change", change)]
    archive = _archive(program, at)
    subprocess.run(["docker", "import", *options, "-", name], input=archive, check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["docker", "rmi", "--force", name], check=False, capture_output=True)


def _archive(program: Path, at: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as archive:
        for folder, mode in _FOLDERS.items():
            member = tarfile.TarInfo(folder)
            member.type, member.mode = tarfile.DIRTYPE, mode
            archive.addfile(member)
        archive.add(program, at.lstrip("/"), filter=_executable)
        for library in sorted(linked([program])):
            archive.add(library, str(library).lstrip("/"))
    return buffer.getvalue()


def _executable(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mode = 0o755
    return member
