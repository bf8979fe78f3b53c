"""What we take of pyroute2, without all else that its package imports.

``import pyroute2`` brings databases, tests' helpers and protocols along: 85 of its 140 ms of CPU, and 12 of its 20 MB
(0.7 of Debian 12), in every process that makes networks. So the package comes without its ``__init__``, which runs when
somebody asks for a name that only that has.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from typing import Any


def _bare_package() -> None:
    """Have package ``pyroute2`` be there without what its ``__init__`` imports."""
    spec = None if "pyroute2" in sys.modules else importlib.util.find_spec("pyroute2")
    if spec is None or spec.loader is None:
        return
    package, loader = importlib.util.module_from_spec(spec), spec.loader

    def whole(name: str) -> Any:
        if not name.startswith("__") and importlib.util.find_spec(f"pyroute2.{name}") is None:
            del package.__getattr__
            loader.exec_module(package)
            return getattr(package, name)
        raise AttributeError(f"module pyroute2 has no attribute {name}")  # a part of it is imported by whoever asked

    package.__getattr__ = whole  # type: ignore[method-assign]
    sys.modules["pyroute2"] = package
    # of 0.7: a base class that can replace sockets by mocks, for which it imports unittest and asyncio
    if importlib.util.find_spec("pyroute2.lab") is not None:
        lab = types.ModuleType("pyroute2.lab")
        lab.LAB_API = type("LAB_API", (), {})  # type: ignore[attr-defined]
        sys.modules["pyroute2.lab"] = lab


_bare_package()

from pyroute2.iproute.linux import IPRoute  # noqa: E402  (its package must be there before)
from pyroute2.netlink.exceptions import NetlinkDumpInterrupted, NetlinkError  # noqa: E402
from pyroute2.netns import setns  # noqa: E402

__all__ = ["IPRoute", "NetlinkDumpInterrupted", "NetlinkError", "setns"]
