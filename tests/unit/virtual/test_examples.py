"""The example of a provider passes its own tests: what every provider passes, and more."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[3] / "examples" / "providers" / "processes"


def _loaded(name: str) -> ModuleType:
    """Return a module of a package that is not installed."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_loaded("processes")
TestProcesses = _loaded("test_processes").TestProcesses
