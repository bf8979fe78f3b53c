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
from collections.abc import Sequence
from types import ModuleType
from typing import Any

_lock = allocate_lock()
_OF_TEMPLATES = (
    "render_template",
    "render_template_string",
    "stream_template",
    "stream_template_string",
    "Environment",
    "DispatchingJinjaLoader",
    "_default_template_ctx_processor",
)
"""What Flask imports of its own templates: to be called, where anybody renders one."""


class Seldom(ModuleType):
    """Stands for a module in `sys.modules`.

    Args:
        name: of the module.
        functions: what is imported from it, by ``from``, to be called seldom.
        path: of a package, where its modules are.
        needs: another module that must be the real one before this one comes, since it makes classes of what is there.
    """

    def __init__(self, name: str, functions: Sequence[str] = (), path: Sequence[str] = (), needs: str = "") -> None:
        super().__init__(name)
        self._needs = needs
        if path:
            self.__path__ = list(path)
        for each in functions:
            setattr(self, each, _Called(self, each))

    def real(self) -> ModuleType:
        """Return the module itself, which takes its place."""
        name = self.__name__
        if isinstance(needed := sys.modules.get(self._needs), Seldom):
            needed.real()
        with _lock:  # of two threads, the second must not take the first one's module away
            if sys.modules.get(name) is self:
                del sys.modules[name]
        return importlib.import_module(name)

    def __getattr__(self, name: str) -> Any:
        """Return what the module itself has."""
        path = vars(self).get("__path__", [])
        if name == "__path__" or importlib.machinery.PathFinder.find_spec(f"{self.__name__}.{name}", path):
            raise AttributeError(name)  # it is no package; or it is, and whoever imports its module needs no other
        return getattr(self.real(), name)


class _Called:
    """A function or a class of a module, to be called; one that is no method where a class has it."""

    def __init__(self, module: Seldom, name: str) -> None:
        self._module, self._name = module, name

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the module's own."""
        return getattr(self._module.real(), self._name)(*args, **named)


def come_later() -> None:
    """Have modules that are seldom used, and are not there yet, come when they are used."""
    for name in ("calendar", "html", "inspect", "tokenize"):
        stand_for(name)
    stand_for("importlib.metadata", ["version"], [f"{importlib.__path__[0]}/metadata"])
    if path := _installed("prometheus_client"):
        stand_for("prometheus_client", path=path)
        stand_for("prometheus_client.decorator", ["decorate"])


def have_no_templates() -> None:
    """Have Flask do without Jinja until there is a template: 2 MB. Nobody else in the process may subclass it."""
    if path := _installed("jinja2"):
        stand_for("jinja2", ["BaseLoader", "FileSystemLoader"], path)
        stand_for("flask.templating", _OF_TEMPLATES, needs="jinja2")


def stand_for(name: str, functions: Sequence[str] = (), path: Sequence[str] = (), needs: str = "") -> None:
    """Have something stand for a module that is not there yet; see `Seldom`."""
    if name not in sys.modules:
        sys.modules[name] = found = Seldom(name, functions, path, needs)
        parent, _, last = name.rpartition(".")
        if parent in sys.modules:
            setattr(sys.modules[parent], last, found)  # as an import does


def _installed(package: str) -> Sequence[str]:
    found = importlib.machinery.PathFinder.find_spec(package)
    return list(found.submodule_search_locations or ()) if found else []
