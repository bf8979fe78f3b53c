"""What is shipped to nodes imports with nothing but the standard library, under isolated Python."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[3] / "minik8s_modules" / "module_utils" / "minik8s"
IMPORT_ALL = """
import importlib, pathlib, sys
sys.path.insert(0, sys.argv[1])
for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.py")):
    importlib.import_module(".".join(path.relative_to(sys.argv[1]).with_suffix("").parts).removesuffix(".__init__"))
"""


def test_every_file_imports_alone(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "minik8s", ignore=shutil.ignore_patterns("__pycache__"))
    argv = [sys.executable, "-I", "-S", "-c", IMPORT_ALL, str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_nothing_but_the_package_lies_in_module_utils() -> None:
    names = {path.name for path in PACKAGE.parent.iterdir()} - {"__pycache__"}
    assert names == {"__init__.py", "minik8s"}  # a loose file here would shadow ansible-core's own
