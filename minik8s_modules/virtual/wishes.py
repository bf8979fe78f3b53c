"""Which virtual nodes a process is to carry: the file of the daemon, or the command line. Pure.

nodes:
  - name: cloud            with count: 100, ``cloud-{index}`` becomes cloud-0 to cloud-99
    provider: mock
    config: {cpu: "64"}    or config_file: a YAML file that says the same
    labels: {zone: far}
    taint: true            false: ordinary Pods may come, too
    internal_ip: 192.0.2.7
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from minik8s_modules.api.syntax import dns1123_subdomain
from minik8s_modules.base.config import read_mapping
from minik8s_modules.base.errors import ConfigurationError

INDEX = "{index}"
_KEYS = frozenset(
    {"name", "provider", "count", "config", "config_file", "labels", "taint", "internal_ip", "operating_system"}
)


class Wish(NamedTuple):
    """One node that is to be."""

    name: str
    provider: str
    config: Mapping[str, object] = {}
    config_path: str = ""
    labels: Mapping[str, str] = {}
    taint: bool = True
    internal_ip: str = ""
    operating_system: str = "linux"


def wishes_of(rows: object, where: str) -> list[Wish]:
    """Return the nodes that the list ``rows`` of the file ``where`` names.

    Raises:
        ConfigurationError: a row cannot be used; the message says which, and why.
    """
    if not isinstance(rows, list) or not rows:
        raise ConfigurationError(f"{where}: nodes must be a list of nodes, each with name and provider")
    found = [wish for at, row in enumerate(rows) for wish in _row(row, f"{where}: nodes[{at}]")]
    counted = Counter(wish.name for wish in found)
    if twice := sorted(name for name, times in counted.items() if times > 1):
        raise ConfigurationError(f"{where}: {', '.join(twice[:5])} is named more than once")
    return found


def _row(row: object, where: str) -> list[Wish]:
    if not isinstance(row, Mapping):
        raise ConfigurationError(f"{where} must be a mapping with name and provider")
    if unknown := sorted(map(str, row.keys() - _KEYS)):
        raise ConfigurationError(f"{where}: {', '.join(unknown)} is not known; known: {', '.join(sorted(_KEYS))}")
    name, count = _text(row, "name", where), row.get("count")
    config, path = _config(row, where)
    one = Wish(
        name,
        _text(row, "provider", where),
        config,
        path,
        _labels(row, where),
        _flag(row, "taint", where),
        _text(row, "internal_ip", where, ""),
        _text(row, "operating_system", where, "linux"),
    )
    if count is None:
        return [_named(one, name, where)]
    if isinstance(count, bool) or not isinstance(count, int) or count < 1 or INDEX not in name:
        raise ConfigurationError(f"{where}: count must be a number from 1, and name hold {INDEX}")
    return [_named(one, name.replace(INDEX, str(index)), where) for index in range(count)]


def _named(wish: Wish, name: str, where: str) -> Wish:
    if wrong := dns1123_subdomain(name):
        raise ConfigurationError(f"{where}: {name!r} cannot be the name of a node: {'; '.join(wrong)}")
    return wish._replace(name=name)


def _text(row: Mapping[str, Any], key: str, where: str, default: str | None = None) -> str:
    value = row.get(key, default)
    if not isinstance(value, str) or (default is None and not value):
        raise ConfigurationError(f"{where}: {key} must be a string")
    return value


def _flag(row: Mapping[str, Any], key: str, where: str) -> bool:
    value = row.get(key, True)
    if not isinstance(value, bool):
        raise ConfigurationError(f"{where}: {key} must be true or false")
    return value


def _labels(row: Mapping[str, Any], where: str) -> dict[str, str]:
    labels = row.get("labels") or {}
    if not isinstance(labels, Mapping) or not all(isinstance(each, str) for pair in labels.items() for each in pair):
        raise ConfigurationError(f"{where}: labels must be a mapping of strings")
    return dict(labels)


def _config(row: Mapping[str, Any], where: str) -> tuple[Mapping[str, object], str]:
    inline, path = row.get("config") or {}, _text(row, "config_file", where, "")
    if inline and path:
        raise ConfigurationError(f"{where}: give either config or config_file, not both")
    if path:
        return read_mapping(Path(path), "configuration"), path
    if not isinstance(inline, Mapping):
        raise ConfigurationError(f"{where}: config must be a mapping, as the provider's documentation has it")
    return dict(inline), ""
