"""What a template imports of archives, and how what one of them brought is found in the next.

Standard library only, Python 3.8 and newer: it travels with `server.py`.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import zipfile
from types import ModuleType

from minik8s_modules.plugins.warm.compiled import checksums

OF_ARCHIVES = ("ansible", "ansible_collections")


def import_all(archive: str) -> None:
    """Import all module_utils of ``archive``: they are there because its module imports them.

    And its packages, so that `share_imports` can have them find the modules of another archive.
    """
    with zipfile.ZipFile(archive) as file:
        packages = [name[: -len("/__init__.py")] for name in file.namelist() if name.endswith("/__init__.py")]
    import_names([package.replace("/", ".") for package in packages])
    for name in checksums(archive):
        if name.startswith("ansible.module_utils.") and "_extensions" not in name and "_respawn" not in name:
            with contextlib.suppress(Exception, SystemExit):  # the module itself will say what is wrong
                importlib.import_module(name)


def import_names(names: list[str]) -> None:
    """Import what can be imported of ``names``: some stand for nothing that can be (`__mp_main__`)."""
    for name in names:
        with contextlib.suppress(Exception, SystemExit):
            importlib.import_module(name)


def share_imports(known: list[str], other: str) -> None:
    """Have what is imported from archives ``known`` find in ``other`` what they lack; their common code is equal.

    A package may have come with any of them: the first archive need not have it.
    """
    sys.path.insert(1, other)
    for module in _loaded():
        if hasattr(module, "__path__"):
            module.__path__ = [*module.__path__, *sorted(_moved(module, known, other).difference(module.__path__))]


def keep_imports(old: list[str], new: str) -> None:
    """Make what was imported from archives ``old`` count as imported from ``new``, if its code is the same there."""
    before = {name: crc for archive in old for name, crc in checksums(archive).items()}
    after = checksums(new)
    loaded = [module.__name__ for module in _loaded()]
    is_same = all(before.get(name) == after[name] for name in loaded if name in after)
    for name in loaded:
        module = sys.modules[name]
        if not is_same or name not in after:
            del sys.modules[name]
        elif hasattr(module, "__path__"):
            module.__path__ = sorted(_moved(module, old, new))


def _moved(package: ModuleType, old: list[str], new: str) -> set[str]:
    """Return where a package, which may have come with any of the ``old`` archives, is in the ``new`` one."""
    return {entry.replace(one, new, 1) for entry in package.__path__ for one in old if entry.startswith(one)}


def _loaded() -> list[ModuleType]:
    return [module for name, module in list(sys.modules.items()) if name.partition(".")[0] in OF_ARCHIVES]
