"""Modules that libraries import and hardly ever use come when somebody asks for something in them.

`dataclasses` imports `inspect` for classes without a docstring, `http.server` imports `html` for error pages, urllib3
and gunicorn import `importlib.metadata` for versions of what nobody installed here, `email` imports `calendar` for a
function, `subprocess` imports `locale` for text, and `prometheus_client` imports servers and clients of HTTP beside
what counts. With what these import in turn, that is 2 to 4 MB of each daemon. Another module stands for each of them
until then, and goes on by asking the real one. It has to be there before any of these libraries is.
"""

from __future__ import annotations

import importlib
import sys
from _thread import allocate_lock
from collections.abc import Sequence
from functools import cached_property, partial
from importlib.machinery import ModuleSpec, PathFinder
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

_OF_NO_REQUEST: dict[str, Sequence[str]] = {
    "click": (),
    "google.protobuf.internal.python_message": (),
    "jwt.jwks_client": ("PyJWKClient",),
    "werkzeug.serving": ("is_running_from_reloader", "run_simple"),
}


class Seldom(ModuleType):
    """Stands for a module in `sys.modules`.

    Args:
        spec: of the module.
        functions: what is imported from it, by ``from``, to be called seldom.
        needs: another module that must be the real one before this one comes, since it makes classes of what is there.
    """

    def __init__(self, spec: ModuleSpec, functions: Sequence[str] = (), needs: str = "") -> None:
        super().__init__(spec.name)
        self.__spec__, self.__file__, self._needs = spec, spec.origin, needs
        if spec.submodule_search_locations is not None:
            self.__path__ = list(spec.submodule_search_locations)
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
        """Return what the module itself has; of a package, a module by itself."""
        if name == "__path__":
            raise AttributeError(name)  # it is no package
        path = vars(self).get("__path__")
        if path and PathFinder.find_spec(f"{self.__name__}.{name}", path):
            return importlib.import_module(f"{self.__name__}.{name}")
        return getattr(self.real(), name)

    def __dir__(self) -> Sequence[str]:
        """Return the names that the module itself has."""
        return dir(self.real())


class _Called:
    """A function or a class of a module, to be called; one that is no method where a class has it."""

    def __init__(self, module: Seldom, name: str) -> None:
        self._module, self._name = module, name
        self.__name__ = self.__qualname__ = name

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the module's own."""
        return getattr(self._module.real(), self._name)(*args, **named)


def come_later() -> None:
    """Have modules that are seldom used, and are not there yet, come when they are used."""
    for name in ("html", "inspect", "locale", "tokenize"):
        stand_for(name)
    stand_for("calendar", ["timegm"])
    stand_for("importlib.metadata", ["version"])
    stand_for("prometheus_client")
    stand_for("prometheus_client.decorator", ["decorate"])


def is_daemon() -> bool:
    """Return whether this process is one of ours: nobody else's modules are to be others than he has asked for."""
    program = sys.argv[0].rpartition("/")[2]
    return program.startswith("minik8s-") or (
        program == "-m" and any(each.startswith("minik8s_modules.") for each in sys.orig_argv)
    )


def have_no_templates() -> None:
    """Have Flask do without Jinja until there is a template: 2 MB. Nobody else in the process may subclass it."""
    stand_for("jinja2", ["BaseLoader", "FileSystemLoader"])
    stand_for("flask.templating", _OF_TEMPLATES, needs="jinja2")


def have_no_commands() -> None:
    """Have libraries of API servers do without what answers no request: 3 MB.

    That is Flask's command line, Werkzeug's development server, PyJWT's client for keys, and protobuf's text.
    """
    for name, functions in _OF_NO_REQUEST.items():
        stand_for(name, functions)
    stand_for("flask.cli", needs="click")
    if isinstance(found := sys.modules.get("flask.cli"), Seldom):
        vars(found)["AppGroup"] = partial(_Commands, found)


class _Commands:
    """Those of a Flask application, which each has and names: the group itself where somebody asks for one."""

    name: str | None = None

    def __init__(self, module: Seldom) -> None:
        self._module = module

    @cached_property
    def _group(self) -> Any:
        return self._module.real().AppGroup(self.name)

    def __getattr__(self, asked: str) -> Any:
        return getattr(self._group, asked)


def stand_for(name: str, functions: Sequence[str] = (), needs: str = "") -> None:
    """Have something stand for a module that is installed and not there yet; see `Seldom`."""
    parent, _, last = name.rpartition(".")
    spec = _installed(name) if name not in sys.modules else None
    if spec is not None:
        sys.modules[name] = found = Seldom(spec, functions, needs)
        if parent in sys.modules:
            setattr(sys.modules[parent], last, found)  # as an import does


def _installed(name: str) -> ModuleSpec | None:
    parent = name.rpartition(".")[0]
    above = _installed(parent) if parent else None
    if parent and above is None:
        return None
    return PathFinder.find_spec(name, above.submodule_search_locations if above else None)
