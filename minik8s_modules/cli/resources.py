"""Resource names as people write them: singular, plural, short, ``plural.group``, several by comma."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from minik8s_modules.api.kinds import KINDS, Kind
from minik8s_modules.cli.errors import UsageError


class Target(NamedTuple):
    """What a command is about: a kind, and the names if any were given."""

    kind: Kind
    names: tuple[str, ...]


def find_kind(text: str) -> Kind:
    """Return the kind that ``text`` names; the core group and Kubernetes' own groups win over ours.

    Raises:
        UsageError: nothing has that name.
    """
    name, _, group = text.lower().partition(".")
    for kind in KINDS.all():
        if name in (kind.plural, kind.singular_name, kind.kind.lower(), *kind.short_names) and group in (
            "",
            kind.group,
        ):
            return kind
    raise UsageError(f'the cluster has no resource type "{text}"; `minik8s api-resources` lists them')


def parse_targets(words: Sequence[str]) -> list[Target]:
    """Return the targets of ``pods``, ``pod web db``, ``pod/web node/n1`` or ``pods,nodes``.

    Raises:
        UsageError: no type was given, a type is unknown, or the two forms are mixed.
    """
    if not words:
        raise UsageError("name a resource type, as in `minik8s get pods`")
    if any("/" in word for word in words):
        return [_slashed(word) for word in words]
    kinds = [kind for part in words[0].split(",") if part for kind in _kinds(part)]
    names = tuple(words[1:])
    if len(kinds) > 1 and names:
        raise UsageError("names can be given for one resource type only; use TYPE/NAME for several")
    return [Target(kind, names) for kind in kinds]


def _kinds(text: str) -> list[Kind]:
    """Return the kinds of a category, as ``all``, else the one kind that ``text`` names."""
    return [kind for kind in KINDS.all() if text.lower() in kind.categories] or [find_kind(text)]


def _slashed(word: str) -> Target:
    resource, slash, name = word.partition("/")
    if not slash or not name:
        raise UsageError(f'"{word}" is no TYPE/NAME; the forms `TYPE NAME` and `TYPE/NAME` cannot be mixed')
    return Target(find_kind(resource), (name,))
