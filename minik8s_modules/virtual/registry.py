"""The providers there are: those of this package, and those that installed packages offer as entry points.

A package offers a provider by an entry point of the group ``minik8s.providers``: the name is the provider's, the object
is called with an ``InitConfig`` and returns a ``Provider``. It is loaded only when a node asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.virtual.provider import InitConfig, Provider

GROUP = "minik8s.providers"
Factory = Callable[[InitConfig], Provider]

# module and attribute: what nobody asks for is not imported
IN_TREE: dict[str, tuple[str, str]] = {
    "ansible": ("minik8s_modules.virtual.providers.ansible_runs.provider", "make"),
    "mock": ("minik8s_modules.virtual.providers.mock", "make"),
    "simulated": ("minik8s_modules.virtual.providers.simulated", "make"),
    "slurm": ("minik8s_modules.virtual.providers.slurm.provider", "make"),
}


def names() -> list[str]:
    """Return the names of all providers, sorted."""
    return sorted({*IN_TREE, *(one.name for one in entry_points(group=GROUP))})


def factory(name: str) -> Factory:
    """Return what makes the provider ``name``; one of this package wins over a stranger's of the same name.

    Raises:
        ConfigurationError: there is none, or its package cannot be loaded.
    """
    if name in IN_TREE:
        module, attribute = IN_TREE[name]
        made: Factory = getattr(import_module(module), attribute)
        return made
    found = next((one for one in entry_points(group=GROUP) if one.name == name), None)
    if found is None:
        raise ConfigurationError(
            f"there is no provider {name!r}; there are {', '.join(names()) or 'none'} "
            f"(a package offers one by an entry point of the group {GROUP})"
        )
    try:
        loaded: Factory = found.load()
    except Exception as error:
        raise ConfigurationError(f"provider {name}: {found.value} cannot be loaded: {error}") from error
    return loaded
