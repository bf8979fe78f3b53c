"""Fills a folder with the wheels of a lock for several versions of Python, ours among them, and what builds our own.

    wheels.py --lock FILE --wheel FILE --pythons 3.11,3.13 FOLDER

What has no wheel is built here, by this Python; another version takes it where it is pure.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement  # ansible-core needs it, so it is where playbooks run

BUILDS = "setuptools>=77"
"""What pyproject.toml asks for: machines get our own package built from its sources."""


def pip(*argv: str) -> None:
    """Run pip; end with its words where it fails."""
    done = subprocess.run([sys.executable, "-m", "pip", "--quiet", *argv], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"pip {argv[0]} failed: {(done.stderr or done.stdout).strip()[-3000:]}")


def locked(lock: Path, version: str) -> list[str]:
    """Return what a lock has for a version of Python; of markers, pip asks the Python that it runs on."""
    lines = [line for line in lock.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    found = [Requirement(line) for line in lines]
    here = {"python_version": version, "python_full_version": f"{version}.0"}
    return [f"{one.name}{one.specifier}" for one in found if one.marker is None or one.marker.evaluate(here)]


def main() -> None:
    """Fill the folder."""
    parser = argparse.ArgumentParser(description="Fill a folder with wheels.")
    parser.add_argument("--lock", required=True)
    parser.add_argument("--wheel", required=True)
    parser.add_argument("--pythons", required=True)
    parser.add_argument("folder")
    given = parser.parse_args()
    folder = Path(given.folder)
    for old in folder.glob("*.whl"):
        old.unlink()
    here = f"--find-links={folder}"
    pip("wheel", "--no-deps", f"--wheel-dir={folder}", f"--requirement={given.lock}", BUILDS)
    for version in given.pythons.split(","):
        other = ["--only-binary=:all:", "--no-deps", f"--python-version={version}", f"--dest={folder}", here]
        pip("download", *other, *locked(Path(given.lock), version))
    shutil.copy(given.wheel, folder)


if __name__ == "__main__":
    main()
