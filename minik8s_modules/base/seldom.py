"""Modules that libraries import and hardly ever use come when somebody asks for something in them.

`dataclasses` imports `inspect` for classes without a docstring, `http.server` imports `html` for error pages, urllib3
and gunicorn import `importlib.metadata` for versions of what nobody installed here, `email` imports `calendar` for a
function, and `prometheus_client` imports servers and clients of HTTP beside what counts. With what these import in
turn, that is 2 to 4 MB of each daemon. Another module stands for each of them until then, and goes on by asking the
real one. It has to be there before any of these libraries is.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from _thread import allocate_lock
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

_lock = allocate_lock()


class Seldom(ModuleType):
    """Stands for a module in `sys.modules`.

    Args:
        name: of the module.
        functions: what is imported from it, by ``from``, to be called seldom.
        path: of a package, where its modules are.
    """

    def __init__(self, name: str, functions: Sequence[str] = (), path: Sequence[str] = ()) -> None:
        super().__init__(name)
        if path:
            self.__path__ = list(path)
        for each in functions:
            setattr(self, each, self._calling(each))

    def _calling(self, function: str) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            return getattr(self._loaded(), function)(*args, **named)

        return call

    def _loaded(self) -> ModuleType:
        name = self.__name__
        with _lock:  # of two threads, the second must not take the first one's module away
            if sys.modules.get(name) is self:
                del sys.modules[name]
        return importlib.import_module(name)

    def __getattr__(self, name: str) -> Any:
        """Return what the module itself has."""
        path = vars(self).get("__path__", [])
        if name == "__path__" or importlib.machinery.PathFinder.find_spec(f"{self.__name__}.{name}", path):
            raise AttributeError(name)  # it is no package; or it is, and whoever imports its module needs no other
        return getattr(self._loaded(), name)


def come_later() -> None:
    """Have modules that are seldom used, and are not there yet, come when they are used."""
    for name in ("calendar", "html", "inspect", "tokenize"):
        _stand_for(name)
    _stand_for("importlib.metadata", ["version"], [f"{importlib.__path__[0]}/metadata"])
    found = importlib.machinery.PathFinder.find_spec("prometheus_client")
    if found is not None:
        _stand_for("prometheus_client", path=found.submodule_search_locations or ())
        _stand_for("prometheus_client.decorator", ["decorate"])


def _stand_for(name: str, functions: Sequence[str] = (), path: Sequence[str] = ()) -> None:
    if name not in sys.modules:
        sys.modules[name] = found = Seldom(name, functions, path)
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, found)  # as an import does
