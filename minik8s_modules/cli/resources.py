"""Resource names as people write them: singular, plural, short, ``plural.group``, several by comma.

A name that this command does not know is looked up in the server's discovery, so a newer server's kinds work, too.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Any, NamedTuple

from minik8s_modules.api.kinds import (
    HORIZONTAL_POD_AUTOSCALER,
    JOB,
    KINDS,
    LEGACY_AUTOSCALER,
    LEGACY_JOB,
    Kind,
)
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.client.api import ApiClient

# where an object of the original MiniK8s is looked for when Kubernetes' kind of that name has none
LEGACY: Mapping[Kind, Kind] = {JOB: LEGACY_JOB, HORIZONTAL_POD_AUTOSCALER: LEGACY_AUTOSCALER}
_DISCOVERY = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}


class Target(NamedTuple):
    """What a command is about: a kind, and the names if any were given."""

    kind: Kind
    names: tuple[str, ...]


def name_of(kind: Kind, name: str) -> str:
    """Return how an object is called in what commands print: ``pod/web``, ``deployment.apps/web``."""
    return f"{kind.singular_name}.{kind.group}/{name}" if kind.group else f"{kind.singular_name}/{name}"


def find_kind(text: str, client: ApiClient | None = None) -> Kind:
    """Return the kind that ``text`` names; the core group and Kubernetes' own groups win over ours.

    Raises:
        UsageError: nothing has that name.
    """
    for kind in _everything(client):
        if _is_named(kind, text.lower()):
            return kind
    names = {name: kind.plural for kind in KINDS.all() for name in (kind.plural, kind.singular_name, *kind.short_names)}
    close = sorted({names[name] for name in difflib.get_close_matches(text.lower(), names, 2, 0.7)})
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    raise UsageError(
        f'the server doesn\'t have a resource type "{text}"; {hint}`minik8s api-resources` lists all of them'
    )


def _everything(client: ApiClient | None) -> Iterator[Kind]:
    yield from KINDS.all()
    if client is not None:
        yield from served(client)


def _is_named(kind: Kind, text: str) -> bool:
    name, _, group = text.partition(".")
    version, _, versioned_group = group.partition(".")
    names = (kind.plural, kind.singular_name, kind.kind.lower(), *kind.short_names)
    if name not in names and name.removesuffix("s") not in names:  # hpas, subsets, as the original has them
        return False
    return group in {"", kind.group} or (version, versioned_group) == (kind.version, kind.group)


def served(client: ApiClient) -> tuple[Kind, ...]:
    """Return every kind of the server's discovery, in its order; those we know are ours."""
    return _served(client)


@lru_cache(maxsize=1)
def _served(client: ApiClient) -> tuple[Kind, ...]:
    found: list[Kind] = []
    for path in ("/api", "/apis"):
        answer = client.raw("GET", path, headers=_DISCOVERY)
        items = json.loads(answer.data).get("items") if answer.status == HTTPStatus.OK else None
        for group in items or []:
            for version in group["versions"]:
                found += (_kind(version["version"], resource) for resource in version["resources"])
    return tuple(found)


def _kind(version: str, resource: Mapping[str, Any]) -> Kind:
    group = resource["responseKind"].get("group") or ""
    known = KINDS.by_resource(group, version, resource["resource"])
    return known or Kind(
        group,
        version,
        resource["responseKind"]["kind"],
        resource["resource"],
        "",
        singular=resource.get("singularResource", ""),
        short_names=tuple(resource.get("shortNames", ())),
        namespaced=resource["scope"] == "Namespaced",
        categories=tuple(resource.get("categories", ())),
        subresources=tuple(sub["subresource"] for sub in resource.get("subresources", ())),
        verbs=tuple(resource["verbs"]),
    )


def parse_targets(words: Sequence[str], client: ApiClient | None = None) -> list[Target]:
    """Return the targets of ``pods``, ``pod web db``, ``pod/web node/n1`` or ``pods,nodes``.

    Raises:
        UsageError: no type was given, a type is unknown, or the two forms are mixed.
    """
    if not words:
        raise UsageError("name a resource type, as in `minik8s get pods`")
    if any("/" in word for word in words):
        return [_slashed(word, client) for word in words]
    kinds = [kind for part in words[0].split(",") if part for kind in _kinds(part, client)]
    names = tuple(words[1:])
    if len(kinds) > 1 and names:
        raise UsageError("names can be given for one resource type only; use TYPE/NAME for several")
    return [Target(kind, names) for kind in kinds]


def _kinds(text: str, client: ApiClient | None) -> Iterator[Kind]:
    """Yield the kinds of a category, as ``all``, once each, else the one kind that ``text`` names."""
    seen = set()
    for kind in KINDS.all():
        if text.lower() in kind.categories and kind.prefix not in seen:
            seen.add(kind.prefix)
            yield kind
    if not seen:
        yield find_kind(text, client)


def _slashed(word: str, client: ApiClient | None) -> Target:
    resource, slash, name = word.partition("/")
    if not slash or not name:
        raise UsageError(f'"{word}" is no TYPE/NAME; the forms `TYPE NAME` and `TYPE/NAME` cannot be mixed')
    return Target(find_kind(resource, client), (name,))
