"""What is shipped to nodes imports with nothing but the standard library, under isolated Python; one file: pyroute2."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[3] / "minik8s_modules" / "module_utils" / "minik8s"
IMPORT_ALL = """
import importlib, pathlib, sys
sys.path.insert(0, sys.argv[1])
for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.py")):
    if path.name == "rtnetlink.py":  # pyroute2 as we take it, imported by who opens a socket
        continue
    importlib.import_module(".".join(path.relative_to(sys.argv[1]).with_suffix("").parts).removesuffix(".__init__"))
"""


OPEN = """
import sys
sys.path.insert(0, sys.argv[1])
from minik8s.core.faults import PassFault
from minik8s.network.netlink import Netlink
try:
    Netlink("/proc/self/ns/net")
except PassFault as fault:
    print(fault)
"""


def test_every_file_imports_alone(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "minik8s", ignore=shutil.ignore_patterns("__pycache__"))
    argv = [sys.executable, "-I", "-S", "-c", IMPORT_ALL, str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_node_without_pyroute2_is_told_what_to_install() -> None:
    argv = [sys.executable, "-I", "-S", "-c", OPEN, str(PACKAGE.parent)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert f"{sys.executable} on {socket.gethostname()} cannot import pyroute2" in done.stdout
    assert "install the Debian package python3-pyroute2" in done.stdout


def test_pyroute2_comes_without_its_databases_until_somebody_asks_for_one() -> None:
    told = """
import sys
from minik8s_modules.module_utils.minik8s.network import rtnetlink
print("pyroute2.ndb" in sys.modules)
from pyroute2 import NDB, IPRoute
print("pyroute2.ndb" in sys.modules, IPRoute is rtnetlink.IPRoute)
import pyroute2
print(hasattr(pyroute2, "nothing_of_this_name"))
"""
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False", "True True", "False"]


def test_nothing_but_the_package_lies_in_module_utils() -> None:
    names = {path.name for path in PACKAGE.parent.iterdir()} - {"__pycache__"}
    assert names == {"__init__.py", "minik8s"}  # a loose file here would shadow ansible-core's own
