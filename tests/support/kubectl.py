"""Kubernetes' own kubectl 1.32, as Debian trixie packages it: a real client to try the API server with.

The order is: the file ``MINIK8S_KUBECTL`` names, ``/usr/local/bin/kubectl-1.32``, the copy in ``.cache``, and
at last the package ``kubectl`` of trixie, fetched as one file from the mirror this machine's own apt uses for
Debian and unpacked into ``.cache``; nothing is installed. Whatever else ``PATH`` calls kubectl is left alone:
vendors' builds and bookworm's 1.20 ask a server for other things. Run as a program it prints the path.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

INSTALLED = Path("/usr/local/bin/kubectl-1.32")
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "kubectl-1.32"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
DEFAULT_MIRROR = ""


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
        unpacked = _download(work)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(f".{os.getpid()}")
        shutil.copy2(unpacked, partial)
        partial.replace(target)
    return target


def mirror() -> str:
    """Return the Debian mirror of this machine's apt sources, whatever their form."""
    files = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files if path.is_file())
    found = re.findall(r"^\s*(?:URIs:|deb(?:\s+\[[^\]]*\])?)\s+(\S+/debian)/?(?:\s|$)", text, re.MULTILINE)
    return str(found[0]) if found else DEFAULT_MIRROR


def _download(work: Path) -> Path:
    for folder in ("lists/partial", "cache/archives/partial", "parts"):
        (work / folder).mkdir(parents=True)
    (work / "sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror()} trixie main\n", encoding="utf-8")
    apt = ["apt-get", "-q", "-o", f"Dir::Etc::sourcelist={work}/sources.list"]
    apt += ["-o", f"Dir::Etc::sourceparts={work}/parts", "-o", f"Dir::State::lists={work}/lists"]
    apt += [
        "-o",
        f"Dir::Cache={work}/cache",
        "-o",
        "APT::Sandbox::User=root",
        "-o",
        "Acquire::Languages=none",
    ]
    _run([*apt, "update"], work)
    _run([*apt, "download", "kubectl/trixie"], work)
    (package,) = work.glob("kubectl_*.deb")
    _run(["dpkg", "-x", str(package), str(work / "tree")], work)
    return work / "tree" / "usr" / "bin" / "kubectl"


def _run(argv: list[str], work: Path) -> None:
    done = subprocess.run(argv, cwd=work, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv[:1] + argv[-2:])} failed: {done.stderr.strip() or done.stdout.strip()}")


if __name__ == "__main__":
    print(kubectl_path())
