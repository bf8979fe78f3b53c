"""Hands commands to the installed kubectl, and asks it for the objects that words name.

``translating`` decides what kubectl is told; here files in the original's dialect are rewritten in memory (kubectl
reads them from /proc/self/fd), and kubectl takes the place of this process, so its exit code is the command's.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NoReturn

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.original import translating
from minik8s_modules.client.bearer import in_cluster
from minik8s_modules.client.kubeconfig import ADMIN_KUBECONFIG, is_chosen

INSTALLED = Path("/opt/minik8s/bin/kubectl")
MOST_BYTES = 64 << 20
"""Of an answer that a Pod gives: the configuration of a sidecar with 1,000 Services has some 10 MB."""
_MOST_ERROR_BYTES = 64 << 10


def find() -> str:
    """Return the path of the cluster's own kubectl, else of the one on PATH.

    Raises:
        UsageError: there is neither.
    """
    found = str(INSTALLED) if os.access(INSTALLED, os.X_OK) else shutil.which("kubectl")
    if found is None:
        raise UsageError(
            f"kubectl is not installed: there is no {INSTALLED} and none on PATH; "
            "install Debian's package kubectl (or kubernetes-client), or copy the file from the control plane"
        )
    return found


def environment() -> dict[str, str]:
    """Return the environment for kubectl: the administrator's kubeconfig is used where nothing else names a cluster."""
    if is_chosen() or in_cluster() is not None or not os.access(ADMIN_KUBECONFIG, os.F_OK):
        return dict(os.environ)
    return {**os.environ, "KUBECONFIG": str(ADMIN_KUBECONFIG)}


def translated(argv: Sequence[str]) -> list[str]:
    """Return the arguments for kubectl; those of files that it is to read from memory stay good in this process.

    Raises:
        UsageError: the original's form cannot be translated.
    """
    return translating.translated(argv, _names, _rewritten)


def hand_over(argv: Sequence[str]) -> NoReturn:
    """Become kubectl with the translated arguments.

    Raises:
        UsageError: there is no kubectl, or the original's form cannot be translated.
    """
    program, arguments = find(), translated(argv)
    sys.stdout.flush()
    os.execve(program, ["kubectl", *arguments], environment())  # noqa: S606 - argv as given, no shell


def read(argv: Sequence[str]) -> tuple[list[JsonObject], bool, str]:
    """Return the objects that a ``get`` finds, whether it found all, and what kubectl said besides.

    Raises:
        UsageError: there is no kubectl, or the original's form cannot be translated.
    """
    done = _run(translated([*argv, "-o", "json"]))
    if not done.stdout.strip():
        return [], done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return found.get("items", [found]), done.returncode == 0, done.stderr


def kustomized(folder: str) -> str:
    """Return what kubectl makes of a kustomization; what it says besides is said.

    Raises:
        UsageError: there is no kubectl, or it refuses, in its words.
    """
    done = _run(["kustomize", folder])
    if done.returncode:
        raise UsageError(done.stderr.strip().removeprefix("error: ") or f"kubectl kustomize failed ({done.returncode})")
    sys.stderr.write(done.stderr)
    return done.stdout


def start(argv: Sequence[str]) -> subprocess.Popen[str]:
    """Return kubectl running with the translated arguments, its outputs to be read.

    Raises:
        UsageError: there is no kubectl, or the original's form cannot be translated.
    """
    return subprocess.Popen(
        [find(), *translated(argv)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        close_fds=False,  # rewritten files are open files
    )


def lines_of(argv: Sequence[str], timeout_s: float | None = None) -> list[str]:
    """Return what kubectl prints, [] where it fails or takes longer than ``timeout_s``."""
    try:
        return _run(argv, timeout_s).stdout.splitlines()
    except subprocess.TimeoutExpired:
        return []


def output_of(argv: Sequence[str], timeout_s: float) -> str:
    """Return what kubectl prints; what a Pod makes it print has an end, in bytes and in time.

    Raises:
        ValueError: it refused, and the message is what it says; it took longer; or it printed more than ``MOST_BYTES``.
    """
    words = [find(), *argv]
    process = subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    error_output: list[bytes] = []

    def hear(errors: BinaryIO) -> None:
        error_output.append(errors.read(_MOST_ERROR_BYTES))
        while errors.read(_MOST_ERROR_BYTES):
            continue

    assert process.stdout is not None  # noqa: S101 - both are pipes, as was asked for above
    assert process.stderr is not None  # noqa: S101
    reading = threading.Thread(target=hear, args=(process.stderr,), daemon=True)
    patience = threading.Timer(timeout_s, process.kill)
    for each in (reading, patience):
        each.start()
    try:
        found = process.stdout.read(MOST_BYTES + 1)
        if len(found) > MOST_BYTES:
            process.kill()
        code = process.wait()
    finally:
        process.kill()
        patience.cancel()
        reading.join()
        process.stdout.close()
        process.stderr.close()
    if len(found) > MOST_BYTES:
        raise ValueError(f"its answer has more than {MOST_BYTES} bytes")
    if code:
        raise ValueError(error_output[0].decode(errors="replace").strip() or f"no answer within {timeout_s:g} s")
    return found.decode(errors="replace")


def _run(argv: Sequence[str], timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [find(), *argv],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        close_fds=False,  # rewritten files are open files
        timeout=timeout_s,
    )


def _names(argv: Sequence[str]) -> set[str]:
    return set(lines_of(argv))


def _rewritten(path: str, *, recursive: bool, dialect: str) -> str:
    """Return where kubectl is to read what ``path`` holds: in place, or from memory where it is the original's.

    What can be read only once (standard input, a pipe) is read here, and by kubectl from memory in any case.
    """
    from minik8s_modules.cli.original import manifests  # noqa: PLC0415 - only commands with files pay for kinds and schemas

    stdin = path == "-"
    text = _read_once(sys.stdin.buffer) if stdin else None
    if not stdin and Path(path).exists() and not (Path(path).is_file() or Path(path).is_dir()):
        with Path(path).open("rb") as pipe:
            text = _read_once(pipe)
    changed = manifests.in_kubernetes_terms(path, text, recursive=recursive, dialect=dialect)
    given = text if changed is None else changed
    if given is None:
        return path
    handle = os.memfd_create("manifest", 0)  # without MFD_CLOEXEC: kubectl inherits it
    with open(handle, "wb", closefd=False) as file:
        file.write(given.encode("utf-8", "surrogateescape"))
    if not stdin:
        return f"/proc/self/fd/{handle}"
    os.lseek(handle, 0, os.SEEK_SET)
    os.dup2(handle, 0)
    return path


def _read_once(file: BinaryIO) -> str:
    return file.read().decode("utf-8", "surrogateescape")  # what is no text is kubectl's to refuse
