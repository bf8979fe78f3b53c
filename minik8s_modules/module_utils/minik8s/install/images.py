"""Builds small images from one static program, with no registry: a tar archive for Docker's import.

Most images are busybox; the pause image is a program of ours where one could be built (label PROBER says so). One for
debugging has programs of the machine besides, with the libraries that they are linked to.
An image carries the digest of its recipe and of the program's bytes as label ``minik8s.io/content``. Whether it must be
built again is decided by that label alone, so a new busybox from Debian gives new images and nothing else does.
The archive holds no times and no names of users: the same recipe gives the same layer on every machine.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ..core.docker import Docker, DockerError

LABEL = "minik8s.io/content"
PROBER = "minik8s.io/prober"
"""Label of an image whose program takes a table of probes from its stdin (roles/images/files/pause.c)."""
_DIRECTORIES = {"bin": 0o755, "dev": 0o755, "etc": 0o755, "proc": 0o755, "root": 0o700, "sys": 0o755}
_TEXTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
}


_LINKED = re.compile(r"(/\S+) \(0x[0-9a-f]+\)$", re.MULTILINE)
Files = Mapping[str, bytes]
"""What an image holds besides its one program: content by path, without the leading slash."""
NO_FILES: Files = {}


class Recipe(NamedTuple):
    """An image: its name with tag, the applets it offers, its command and its environment."""

    name: str
    applets: tuple[str, ...]
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    path: str = ""
    """Where the program stands when it is none of busybox; such an image offers no applets."""
    labels: tuple[tuple[str, str], ...] = ()

    def digest(self, program: bytes, files: Files = NO_FILES) -> str:
        """Return what label ``minik8s.io/content`` must say for this recipe with ``program`` and ``files``."""
        text = json.dumps([*self, _TEXTS], sort_keys=True).encode()
        found = hashlib.sha256(text + b"\0" + program)
        for path, data in sorted(files.items()):
            found.update(f"\0{path}\0{len(data)}\0".encode() + data)
        return found.hexdigest()


def plan_images(wanted: Mapping[str, str], found: Mapping[str, str | None]) -> list[str]:
    """Return the names whose present content (None: no image) is not the wanted one."""
    return [name for name, digest in wanted.items() if found.get(name) != digest]


def plan_aliases(wanted: Mapping[str, Sequence[str]], ids: Mapping[str, str], built: Collection[str]) -> dict[str, str]:
    """Return which of the ``wanted`` names, by image, have to be given: to which image by name.

    ``ids`` are the images that have a name now; those of ``built`` get another.
    """
    return {
        alias: name
        for name, aliases in wanted.items()
        for alias in aliases
        if name in built or name not in ids or ids.get(alias) != ids[name]
    }


def name_image(docker: Docker, name: str, alias: str) -> None:
    """Give an image one more name, which another may have had.

    Raises:
        DockerError: Docker cannot be reached or refuses.
    """
    repository, _colon, tag = alias.rpartition(":")
    docker.call("POST", f"/images/{name}/tag", query={"repo": repository, "tag": tag})


def linked(text: str) -> list[str]:
    """Return the paths of the libraries, and of their loader, that ``ldd`` told of a program."""
    return _LINKED.findall(text)


def archive(recipe: Recipe, program: bytes, files: Files = NO_FILES) -> bytes:
    """Return the image's file system as a tar archive; a file takes the place of the applet of its name."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path, mode in {**_DIRECTORIES, "tmp": 0o1777}.items():
            _add(tar, path, mode, kind=tarfile.DIRTYPE)
        for path, text in _TEXTS.items():
            _add(tar, path, 0o644, text.encode())
        _add(tar, recipe.path or "bin/busybox", 0o755, program)
        for folder in sorted({folder for path in files for folder in _above(path)} - _DIRECTORIES.keys()):
            _add(tar, folder, 0o755, kind=tarfile.DIRTYPE)
        for path, data in sorted(files.items()):
            _add(tar, path, 0o755, data)
        for applet in sorted(set(recipe.applets) - {path[len("bin/") :] for path in files if path.startswith("bin/")}):
            _add(tar, f"bin/{applet}", 0o777, kind=tarfile.SYMTYPE, target="busybox")
    return stream.getvalue()


def _above(path: str) -> list[str]:
    """Return the directories that a path stands in, the outermost first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: number + 1]) for number in range(len(parts))]


def _add(
    tar: tarfile.TarFile, path: str, mode: int, data: bytes = b"", kind: bytes = tarfile.REGTYPE, target: str = ""
) -> None:
    entry = tarfile.TarInfo(path)
    entry.mode, entry.type, entry.linkname, entry.size = mode, kind, target, len(data)
    tar.addfile(entry, io.BytesIO(data))


def changes(recipe: Recipe, digest: str) -> list[str]:
    """Return the Dockerfile lines that Docker applies to the imported file system."""
    lines = [
        f"LABEL {LABEL}={digest}",
        *(f"LABEL {name}={value}" for name, value in recipe.labels),
        f"CMD {json.dumps(list(recipe.command))}",
    ]
    return lines + [f"ENV {name}={json.dumps(value)}" for name, value in recipe.environment]


def import_image(docker: Docker, recipe: Recipe, data: bytes, lines: Sequence[str]) -> None:
    """Make Docker import ``data`` as ``recipe.name``; an image of that name loses its tag.

    Raises:
        DockerError: Docker cannot be reached or refuses.
    """
    repository, _colon, tag = recipe.name.rpartition(":")
    query = [("fromSrc", "-"), ("repo", repository), ("tag", tag), *(("changes", line) for line in lines)]
    try:
        docker.import_tar(data, query)
    except DockerError as error:
        raise DockerError(error.status, f"docker did not import {recipe.name}: {error}") from error
