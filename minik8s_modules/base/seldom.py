"""Modules that libraries import and hardly ever use come when somebody asks for something in them.

`dataclasses` imports `inspect` for classes without a docstring, `http.server` imports `html` for error pages, urllib3
and gunicorn import `importlib.metadata` for versions of what nobody installed here, `email` imports `calendar` for a
function, `subprocess` imports `locale` for text, and `prometheus_client` imports servers and clients of HTTP beside
what counts. With what these import in turn, that is 2 to 4 MB of each daemon. Another module is imported in place of
each of them until then, and goes on by asking the real one. That has to be agreed before any of these libraries comes.
A finder has it done, so that packages above are imported first and have what is in them, as with any other module.
"""

from __future__ import annotations

import importlib
import sys
from _thread import allocate_lock
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, cast

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
    """

    def __init__(self, spec: ModuleSpec, functions: Sequence[str] = ()) -> None:
        super().__init__(spec.name)
        self.__file__ = spec.origin
        for each in functions:
            setattr(self, each, _CALLED.get(f"{spec.name}.{each}", _Called)(self, each))

    def real(self) -> ModuleType:
        """Return the module itself, which takes its place, with the modules of it that are there already."""
        name = self.__name__
        with _lock:  # of two threads, the second must not take the first one's module away
            if sys.modules.get(name) is self:
                del sys.modules[name]
        found = importlib.import_module(name)
        for each, below in [*vars(self).items()]:
            if isinstance(below, ModuleType) and below.__name__ == f"{name}.{each}":
                vars(found).setdefault(each, sys.modules.get(below.__name__, below))
        return found

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

    def _own(self) -> Any:
        return getattr(self._module.real(), self._name)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the module's own."""
        return self._own()(*args, **named)

    def __instancecheck__(self, instance: object) -> bool:
        """Return whether something is of the module's own class."""
        return isinstance(instance, self._own())

    def __subclasscheck__(self, subclass: type) -> bool:
        """Return whether a class is one of the module's own class."""
        return issubclass(subclass, self._own())

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        """Have a class made of the module's own one."""
        return (self._own(),)


class _Finder:
    """Finds modules that others are to stand for, before anybody else does, until they have been imported once."""

    def __init__(self) -> None:
        self.wanted: dict[str, Sequence[str]] = {}

    def find_spec(self, name: str, path: Sequence[str] | None = None, _target: object = None) -> ModuleSpec | None:
        """Return a spec by which a `Seldom` is loaded; None for other modules, and where there is no such one."""
        spec = PathFinder.find_spec(name, path) if name in self.wanted else None
        if spec is None:
            return None
        found = ModuleSpec(name, cast("Any", _Loader(self, spec)), origin=spec.origin)
        found.submodule_search_locations = spec.submodule_search_locations
        return found


class _Loader:
    """Loads a `Seldom`; without the base class for loaders, which comes with resources and archives."""

    def __init__(self, finder: _Finder, spec: ModuleSpec) -> None:
        self._finder, self._spec = finder, spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Seldom(self._spec, self._finder.wanted.pop(spec.name, ()))

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__, module.__loader__ = self._spec, self._spec.loader


_finder = _Finder()


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
    """Have Flask do without Jinja until there is a template: 2 MB."""
    stand_for("jinja2", ["BaseLoader", "FileSystemLoader"])
    stand_for("flask.templating", _OF_TEMPLATES)


def have_no_commands() -> None:
    """Have libraries of API servers do without what answers no request: 3 MB.

    That is Flask's command line, Werkzeug's development server, PyJWT's client for keys, and protobuf's text.
    """
    for name, functions in _OF_NO_REQUEST.items():
        stand_for(name, functions)
    stand_for("flask.cli", ["AppGroup"])


class _Groups(_Called):
    def __call__(self) -> Any:
        return _Commands(self._own)


class _Commands:
    """Those of a Flask application, which each has and names: the group itself where somebody asks for one."""

    name: str | None = None

    def __init__(self, groups: Callable[[], Any]) -> None:
        self._groups = groups

    @cached_property
    def _group(self) -> Any:
        return self._groups()(self.name)

    def __getattr__(self, asked: str) -> Any:
        return getattr(self._group, asked)


_CALLED = {"flask.cli.AppGroup": _Groups}


def stand_for(name: str, functions: Sequence[str] = ()) -> None:
    """Have something stand for a module, if it is installed and not there yet; see `Seldom`."""
    if name not in sys.modules:
        _finder.wanted[name] = functions
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
