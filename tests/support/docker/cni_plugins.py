"""The reference plugins of the Container Network Interface: Debian's package, unpacked once into ``.cache``."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.support.clients import CACHE, locked, partial
from tests.support.docker.debian import unpack

PACKAGE = "containernetworking-plugins"
INSTALLED = Path("/usr/lib/cni")


def plugins() -> Path:
    """Return the folder of the plugins: the installed package's, else the unpacked one's."""
    if (INSTALLED / "host-local").exists():
        return INSTALLED
    target = CACHE / PACKAGE
    with locked(target) as missing:
        if missing:
            with tempfile.TemporaryDirectory(prefix="cni-") as folder:
                work = Path(folder)
                work.chmod(0o755)
                shutil.rmtree(partial(target), ignore_errors=True)
                shutil.copytree(unpack("bookworm", [PACKAGE], work) / "usr/lib/cni", partial(target))
            partial(target).replace(target)
    return target
