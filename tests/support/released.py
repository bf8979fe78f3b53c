"""The wheel as `make dist` builds it, and an environment that has it without this checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from minik8s_modules.base import release

REPOSITORY = Path(__file__).resolve().parents[2]


def built_wheel(folder: Path) -> Path:
    """Build the wheel from a copy of the sources, since a build leaves files beside them; return it."""
    for name in (*release.BESIDE, "minik8s_modules", "setup.py"):
        source, target = REPOSITORY / name, folder / "sources" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder)]
    subprocess.run([*pip, str(folder / "sources")], check=True, cwd=folder)
    (found,) = folder.glob("minik8s-*.whl")
    return found


def environment_without_checkout(folder: Path, wheel: Path) -> Path:
    """Make a virtual environment with the wheel; what it needs is read from the environment that runs this.

    A path in a .pth file is searched for modules, and not for further .pth files: the one that names the checkout
    does not count.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        f"--python={folder}/bin/python",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*pip, "--no-compile", str(wheel)], check=True, cwd=folder)
    packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    (packages / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    return folder
