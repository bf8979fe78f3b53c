"""Kubernetes' own kubectl 1.32, as Debian trixie packages it: a real client to try the API server with.

The order is: the file ``MINIK8S_KUBECTL`` names, ``/usr/local/bin/kubectl-1.32``, the copy in ``.cache``, and
at last the package ``kubectl`` of trixie, fetched as one file from the mirror this machine's own apt uses for
Debian and unpacked into ``.cache``; nothing is installed. Whatever else ``PATH`` calls kubectl is left alone:
vendors' builds and bookworm's 1.20 ask a server for other things. Run as a program (``-m``) it prints the path.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from tests.support.docker.debian import unpack

INSTALLED = Path("/usr/local/bin/kubectl-1.32")
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "kubectl-1.32"


def kubectl_path() -> Path:
    """Return kubectl 1.32's path; fetches it the first time.

    Raises:
        RuntimeError: apt could not fetch or unpack the package; the message holds apt's words.
    """
    named = os.environ.get("MINIK8S_KUBECTL")
    if named:
        return Path(named)
    if INSTALLED.exists():
        return INSTALLED
    cached = CACHE / "kubectl"
    return cached if cached.exists() else fetch(cached)


def fetch(target: Path) -> Path:
    """Unpack trixie's kubectl to ``target`` and return it."""
    with tempfile.TemporaryDirectory(prefix="kubectl-") as folder:
        work = Path(folder)
        work.chmod(0o755)
        unpacked = unpack("trixie", ["kubectl"], work) / "usr" / "bin" / "kubectl"
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(f".{os.getpid()}")
        shutil.copy2(unpacked, partial)
        partial.replace(target)
    return target


if __name__ == "__main__":
    print(kubectl_path())
