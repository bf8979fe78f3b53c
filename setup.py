"""What pyproject.toml has no word for: in the wheel, as ``minik8s_release``, is what Ansible needs beside the package.

Where these files are found again, and why the package itself is none of them: ``minik8s_modules/base/release.py``.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from minik8s_modules.base import release  # noqa: E402 - it is found by the line above


class WithRelease(build_py):
    """Builds the packages, and puts the release beside them."""

    def run(self) -> None:
        """Build."""
        super().run()
        target = Path(self.build_lib, release.RELEASE)
        shutil.rmtree(target, ignore_errors=True)
        for name in release.BESIDE:
            source = HERE / name
            if source.is_dir():
                shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():  # what an installation's share does not have is left out
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target / name)


setup(cmdclass={"build_py": WithRelease})
