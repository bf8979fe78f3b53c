"""YAML whose values know their lines, so that an error can name file, line and key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minik8s_modules.base.errors import ConfigurationError

if TYPE_CHECKING:
    import yaml

_KEYS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge")


class Located:
    """A value of a file, with the key and the line at which it stands."""

    def __init__(self, value: Any, file: str, lines: Mapping[tuple[Any, ...], int], path: tuple[Any, ...] = ()) -> None:
        self.value, self._file, self._lines, self._path = value, file, lines, path

    @property
    def key(self) -> str:
        """Its key, as in ``profiles[0].schedulerName``."""
        path = ""
        for step in self._path:
            path += f"[{step}]" if isinstance(step, int) else (f".{step}" if path else str(step))
        return path

    def wrong(self, why: str) -> ConfigurationError:
        """Return the error that says what is wrong with this value."""
        path = self._path
        while path and path not in self._lines:
            path = path[:-1]
        return ConfigurationError(f"{self._file}:{self._lines.get(path, 1)}: {self.key or 'the file'}: {why}")

    def at(self, step: Any) -> Located:
        """Return what stands below; its value is None where there is nothing."""
        found = None
        if isinstance(self.value, Mapping):
            found = self.value.get(step)
        elif isinstance(self.value, Sequence) and isinstance(step, int) and step < len(self.value):
            found = self.value[step]
        return Located(found, self._file, self._lines, (*self._path, step))

    def mapping(self, known: Mapping[str, str] | Sequence[str]) -> Iterator[tuple[str, Located]]:
        """Yield the entries of a mapping that has no other keys than ``known``. Raises ConfigurationError."""
        if self.value is None:
            return
        if not isinstance(self.value, Mapping):
            raise self.wrong(f"it must be a mapping, not {type(self.value).__name__}")
        for name in self.value:
            if name not in known:
                raise self.at(name).wrong(f"there is no such field; there are {', '.join(known)}")
            yield str(name), self.at(name)

    def items(self) -> list[Located]:
        """Return the items of a list; None is an empty one. Raises ConfigurationError."""
        if self.value is None:
            return []
        if not isinstance(self.value, list):
            raise self.wrong(f"it must be a list, not {type(self.value).__name__}")
        return [self.at(index) for index in range(len(self.value))]

    def text(self, *choices: str) -> str:
        """Return a string that is not empty, one of ``choices`` if any. Raises ConfigurationError."""
        if not isinstance(self.value, str) or not self.value:
            raise self.wrong(f"it must be a string that is not empty, not {self.value!r}")
        if choices and self.value not in choices:
            raise self.wrong(f"it must be {' or '.join(choices)}, not {self.value!r}")
        return self.value

    def number(self, least: int, most: int) -> int:
        """Return an integer between ``least`` and ``most``. Raises ConfigurationError."""
        if type(self.value) is not int or not least <= self.value <= most:
            raise self.wrong(f"it must be an integer between {least} and {most}, not {self.value!r}")
        return self.value

    def flag(self) -> bool:
        """Return a truth value. Raises ConfigurationError."""
        if not isinstance(self.value, bool):
            raise self.wrong(f"it must be true or false, not {self.value!r}")
        return self.value


def read(path: Path) -> Located:
    """Return what a YAML file says. Raises ConfigurationError."""
    try:
        return parse(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: it cannot be read: {error}") from error


def parse(text: str, file: str) -> Located:
    """Return what YAML text says. Raises ConfigurationError."""
    import yaml  # noqa: PLC0415 - 0.7 MB, and most schedulers have no such file

    lines: dict[tuple[Any, ...], int] = {}
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        value = yaml.safe_load(text)
        if root is not None:
            _note(root, (), lines, file)
    except yaml.YAMLError as error:
        mark, place = getattr(error, "problem_mark", None), getattr(error, "position", 0)
        line = mark.line if mark else text.count("\n", 0, place)
        why = getattr(error, "problem", None) or getattr(error, "reason", error)
        raise ConfigurationError(f"{file}:{line + 1}: it is not valid YAML: {why}") from error
    return Located(value, file, lines)


def _note(
    node: yaml.Node,
    path: tuple[Any, ...],
    lines: dict[tuple[Any, ...], int],
    file: str,
    above: tuple[yaml.Node, ...] = (),
) -> None:
    """Note the lines of a node and what is below it. Raises ConfigurationError for what cannot be told by keys."""
    import yaml  # noqa: PLC0415 - see above

    line = node.start_mark.line + 1
    if any(node is one for one in above):
        raise ConfigurationError(f"{file}:{line}: {path[-1] if path else 'the file'}: it contains itself")
    lines.setdefault(path, line)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            below, line = (*path, key.value), key.start_mark.line + 1
            if below in lines:
                raise ConfigurationError(f"{file}:{line}: {key.value}: it is given twice")
            if key.tag not in _KEYS:
                raise ConfigurationError(f"{file}:{line}: {key.value}: a key must be a string")
            lines[below] = line
            _note(value, below, lines, file, (*above, node))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _note(value, (*path, index), lines, file, (*above, node))
