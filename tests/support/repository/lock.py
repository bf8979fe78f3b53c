"""Writes what pip has installed as a lock: ``pip freeze`` comes by standard input, ``make lock`` is who calls.

Python 3.11 makes the lock. Of a package in ``NEWER``, newer Pythons get a newer version, each by an environment marker.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

REPOSITORY = Path(__file__).resolve().parents[3]
NEWER = {"ansible-core": "3.12"}
"""By name the first Python for which there is a newer version."""


def newest(name: str, python: str) -> str:
    """Return the newest version that pyproject.toml allows and ``python`` runs."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = next(text for text in project["dependencies"] if Requirement(text).name == name)
    with tempfile.TemporaryDirectory() as folder:
        argv = ["--quiet", "--no-deps", "--only-binary=:all:", f"--python-version={python}", f"--dest={folder}", asked]
        subprocess.run([sys.executable, "-m", "pip", "download", *argv], check=True)
        wheel = next(Path(folder).glob("*.whl"))
    return wheel.name.split("-")[1]


def written(line: str) -> str:
    """Return the lines of the lock for a line of ``pip freeze``."""
    name = line.partition("==")[0]
    python = NEWER.get(name)
    if python is None:
        return line
    return f'{line} ; python_version < "{python}"\n{name}=={newest(name, python)} ; python_version >= "{python}"'


def main() -> None:
    """Print the lock."""
    print(f"# Written by `make lock`: {sys.argv[1]}.")
    for line in sys.stdin.read().splitlines():
        print(written(line))


if __name__ == "__main__":
    main()
