"""Configuration files of the daemons: YAML in, a checked mapping out, errors that name file and key."""

from __future__ import annotations

import contextlib
import ipaddress
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.places import parse_place

_LARGEST_PORT = 65535


class Configuration:
    """A mapping whose lookups name the file and key in their errors."""

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        self._data = data
        self._where = where
        self._looked_up: set[str] = set()

    def text(self, key: str, default: str | None = None) -> str:
        """Return the string at dotted ``key``."""
        return str(self._typed(key, (str,), "a string", default))

    def choice(self, key: str, choices: Collection[str], default: str) -> str:
        """Return which of ``choices`` stands at dotted ``key``."""
        text = self.text(key, default)
        if text not in choices:
            raise ConfigurationError(f"{self._where}: {key} must be {' or '.join(choices)}, not {text!r}")
        return text

    def number(self, key: str, default: int | None = None) -> int:
        """Return the integer at dotted ``key``."""
        value = self._typed(key, (int,), "an integer", default)
        if isinstance(value, bool):
            raise ConfigurationError(f"{self._where}: {key} must be an integer, not {value}")
        return int(value)

    def flag(self, key: str, *, default: bool | None = None) -> bool:
        """Return the truth value at dotted ``key``."""
        return bool(self._typed(key, (bool,), "true or false", default))

    def network(
        self, key: str, default: str | None = None, *, may_be_empty: bool = False, may_be_ipv6: bool = False
    ) -> str:
        """Return the IPv4 network at dotted ``key``, or one of IPv6 or "" where that is allowed and given."""
        text = self.text(key, default)
        if not text and may_be_empty:
            return ""
        ipv6 = may_be_ipv6 and ":" in text
        what = "IPv6 network such as fd00:10:244::/48" if ipv6 else "IPv4 network such as 10.244.0.0/16"
        try:
            return str((ipaddress.IPv6Network if ipv6 else ipaddress.IPv4Network)(text))
        except ValueError as error:
            raise ConfigurationError(f"{self._where}: {key} must be an {what}: {error}") from error

    def host_and_port(self, key: str, default: str | None = None) -> tuple[str, int]:
        """Return the host and the port at dotted ``key``, which stand there as HOST:PORT."""
        text = self.text(key, default)
        host, port = parse_place(text)
        if not host or not port.isdecimal() or int(port) > _LARGEST_PORT:
            raise ConfigurationError(f"{self._where}: {key} must be HOST:PORT, not {text!r}")
        return host, int(port)

    def texts(self, key: str, default: list[str] | None = None) -> list[str]:
        """Return the list of strings at dotted ``key``."""
        value = self._typed(key, (list,), "a list of strings", default)
        if not all(isinstance(item, str) for item in value):
            raise ConfigurationError(f"{self._where}: {key} must be a list of strings")
        return list(value)

    def mapping(self, key: str) -> dict[str, Any]:
        """Return the mapping at dotted ``key``; all below it counts as read."""
        return dict(self._typed(key, (Mapping,), "a mapping", None))

    def rows(self, key: str) -> list[Any]:
        """Return the list at dotted ``key``, whatever it holds; all of it counts as read."""
        return list(self._typed(key, (list,), "a list", None))

    def has(self, key: str) -> bool:
        """Return whether dotted ``key`` is given and not null."""
        return self._find(key) is not None

    def unread(self) -> list[str]:
        """Return the dotted keys of the file that nobody has looked up yet: misspelt ones, once a daemon has begun."""
        return [key for key in _leaves(self._data) if not any(_covers(known, key) for known in self._looked_up)]

    @property
    def file(self) -> str:
        """Where it was read."""
        return self._where

    def again(self) -> Configuration:
        """Return what the file says now. Raises ConfigurationError as ``load`` does."""
        return load(Path(self._where))

    def _find(self, key: str) -> Any:
        self._looked_up.add(key)
        value: Any = self._data
        for part in key.split("."):
            if not isinstance(value, Mapping) or part not in value:
                return None
            value = value[part]
        return value

    def _typed(self, key: str, types: tuple[type, ...], wanted: str, default: Any) -> Any:
        value = self._find(key)
        if value is None:
            if default is None:
                raise ConfigurationError(f"{self._where}: {key} is missing; add it ({wanted})")
            return default
        if not isinstance(value, types):
            raise ConfigurationError(f"{self._where}: {key} must be {wanted}, not {type(value).__name__}")
        return value


def _leaves(data: Mapping[Any, Any], prefix: str = "") -> Iterator[str]:
    for name, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _covers(known: str, key: str) -> bool:
    return key == known or key.startswith(f"{known}.")


def load(path: Path) -> Configuration:
    """Read the YAML file ``path``. Raises ConfigurationError as ``read_mapping`` does."""
    return Configuration(read_mapping(path, "configuration"), str(path))


def read_mapping(path: Path, what: str) -> Mapping[str, Any]:
    """Return the mapping in the YAML file ``path``, which errors call ``what``.

    Raises:
        ConfigurationError: the file cannot be read, is no YAML, or is no mapping.
    """
    try:
        data = _parsed(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read {what} {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"{what} {path} is not valid YAML: {error}") from error
    if not isinstance(data, Mapping):
        raise ConfigurationError(f"{what} {path} must hold a mapping at its top level")
    return data


def _parsed(text: str) -> Any:
    """Return what a text of YAML says. That of an installation is JSON, for which nobody needs YAML's 0.7 MB.

    Raises:
        ValueError: it is no YAML.
    """
    if text.startswith("{"):
        with contextlib.suppress(ValueError):  # YAML has such mappings, too, with other words in them
            return json.loads(text)
    import yaml  # noqa: PLC0415 - see above

    try:
        return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


LONGEST_OF_SERVICES = 126


def read_services_ipv6(configuration: Configuration, *, dual_stack: bool) -> ipaddress.IPv6Network | None:
    """Return the range of Services' IPv6 addresses, None for none.

    Raises:
        ConfigurationError: it is no range, is too small, or Pods have no such addresses.
    """
    text = configuration.text("service_cidr_ipv6", "")
    if not text:
        return None
    if not dual_stack:
        raise ConfigurationError(f"service_cidr_ipv6 is {text}: Services lead to Pods; give them addresses, too")
    try:
        network = ipaddress.IPv6Network(text)
    except ValueError as error:
        raise ConfigurationError(
            f"service_cidr_ipv6 must be an IPv6 network such as fd00:10:96::/112: {error}"
        ) from error
    if network.prefixlen > LONGEST_OF_SERVICES:
        raise ConfigurationError(f"service_cidr_ipv6 {network} is too small; give at least a /{LONGEST_OF_SERVICES}")
    return network
