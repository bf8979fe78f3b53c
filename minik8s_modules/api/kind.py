"""What a served kind is, and the table of all of them; which there are stands in ``kinds.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
SUBRESOURCE_VERBS: Mapping[str, tuple[str, ...]] = {
    "status": ("get", "patch", "update"),
    "binding": ("create",),
    "finalize": ("update",),
    "log": ("get",),
    "exec": ("create", "get"),
    "attach": ("create", "get"),
    "portforward": ("create", "get"),
    "scale": ("get", "patch", "update"),
    "approval": ("get", "patch", "update"),
    "eviction": ("create",),
    "ephemeralcontainers": ("get", "patch", "update"),
    "resize": ("get", "patch", "update"),
    "token": ("create",),
    "proxy": ("create", "delete", "get", "patch", "update"),
}
CONNECTING = frozenset({"exec", "attach", "portforward"})
"""Subresources that reach into what runs. They need the verb ``create`` beside what the request's method means: over
WebSocket they begin with GET, and who may read is not to run programs. Source: kubernetes 1.35,
AuthorizePodWebsocketUpgradeCreatePermission."""
PROXY = "proxy"
"""Below it a request goes on to what runs. Its verb is that of the HTTP method; an upgrade needs ``create``, too."""


class ScalePaths(NamedTuple):
    """Where a custom object says what its Scale says; each is a path of fields, ``selector`` may be ()."""

    replicas: tuple[str, ...]
    status_replicas: tuple[str, ...]
    selector: tuple[str, ...]


class PrinterColumn(NamedTuple):
    """One column of a custom kind's table; ``read`` returns its cell, of a date its RFC 3339 text."""

    name: str
    type: str
    format: str
    description: str
    priority: int
    read: Callable[[JsonObject], Any]


Warn = Callable[[str], None]


def nobody(_warning: str) -> None:
    """Take warnings that nobody is told."""


class Check(Protocol):
    """Says what is wrong with a new object, given the old one (None on create); ``warn`` hears what may stay wrong."""

    def __call__(self, new: JsonObject, old: JsonObject | None, warn: Warn = nobody) -> list[Cause]:
        """Return why the object may not be stored."""


Convert = Callable[[Sequence[JsonObject], str], list[JsonObject]]
"""Returns objects in another version (``group/version``), in their order. Raises StatusError."""


@dataclass(frozen=True, slots=True, eq=False)
class Declaration:
    """What a CustomResourceDefinition says of one version of its kind, compiled once; equal only to itself.

    Attributes:
        schema: returns the OpenAPI schema of an object as it is published.
        shape: returns the object's type (``schema.shapes.Shape``): who owns which field follows it.
        fill: prunes an object and fills in its defaults, in place.
        unknown: names the fields of an object that pruning drops.
        check: says what is wrong with a new object.
        columns: the table's columns after the name; without any the age is shown.
        selectable: fields that selectors may name, beside those of metadata.
        storage_version: the version new objects are kept in.
        sibling: the same kind in another served version (``group/version``), or None.
        status: whether ``status`` is a subresource.
        scale: where the subresource ``scale`` reads and writes; None where there is none.
        warning: what every client of this version is told, "" for nothing.
        convert: asks the webhook that converts objects; None where versions differ in their name alone.
    """

    schema: Callable[[], JsonObject]
    shape: Callable[[], Any]
    fill: Callable[[JsonObject], None]
    unknown: Callable[[JsonObject], list[str]]
    check: Check
    columns: tuple[PrinterColumn, ...]
    selectable: Mapping[str, Callable[[JsonObject], str]]
    storage_version: str
    sibling: Callable[[str], Kind | None]
    status: bool
    scale: ScalePaths | None
    warning: str
    convert: Convert | None = None


@dataclass(frozen=True)  # without slots: what each request asks of it several times is kept
class Kind:
    """One served kind.

    Attributes:
        group: API group, "" for core.
        plural: the resource's name in paths.
        subresources: names below an object's path; their verbs stand in ``SUBRESOURCE_VERBS``.
        definition: name of the OpenAPI definition.
        stored: whether objects are kept; else only ``create`` answers.
        storage: (group, plural) under which objects are kept when that is another kind's; None for its own.
        lists: the kind of lists, where a definition names another than ``<kind>List``.
        custom: what a CustomResourceDefinition declares of it; None for kinds that are built in.
    """

    group: str
    version: str
    kind: str
    plural: str
    definition: str
    singular: str = ""
    short_names: tuple[str, ...] = ()
    namespaced: bool = True
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    stored: bool = True
    storage: tuple[str, str] | None = None
    has_spec: bool = field(default=True)
    lists: str = ""
    custom: Declaration | None = None

    @cached_property
    def api_version(self) -> str:
        """Return ``group/version``, or the version alone for core."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """Return the group-resource as messages name it: ``pods``, ``leases.coordination.k8s.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def list_kind(self) -> str:
        """Return the kind of lists."""
        return self.lists or f"{self.kind}List"

    @property
    def singular_name(self) -> str:
        """Return the name for one object, lower-case."""
        return self.singular or self.kind.lower()

    @cached_property
    def id(self) -> tuple[str, str]:
        """Return (group, kind): what the tables of defaults, validation and columns are looked up by."""
        return (self.group, self.kind)

    @property
    def converted(self) -> bool:
        """Return whether a program outside may have to be asked for objects of this kind."""
        return self.custom is not None and self.custom.convert is not None

    @cached_property
    def prefix(self) -> str:
        """Return the store's key prefix of all objects, with the slash at its end."""
        group, plural = self.storage or (self.group, self.plural)
        return f"/registry/{group or 'core'}/{plural}/"

    def key(self, namespace: str, name: str) -> str:
        """Return the store's key of an object; ``namespace`` is not looked at for cluster-scoped kinds."""
        return f"{self.prefix}{namespace}/{name}" if self.namespaced else f"{self.prefix}{name}"


class Kinds:
    """The registry that is served now. It is exchanged as a whole: who has one goes on with what it says.

    ``complete`` is False as long as definitions are not read yet: what the registry lacks may be there.
    """

    __slots__ = ("complete", "registry")

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.complete = True


class Registry:
    """All kinds, looked up by resource or by kind."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._kinds = tuple(kinds)
        self._by_resource = {(k.group, k.version, k.plural): k for k in self._kinds}
        self._by_kind = {(k.group, k.version, k.kind): k for k in self._kinds}
        self._members: dict[tuple[str, str], tuple[Kind, ...]] = {}
        for kind in self._kinds:
            at = (kind.group, kind.version)
            self._members[at] = (*self._members.get(at, ()), kind)
        self._groups: dict[str, tuple[str, ...]] = {}
        for group, version in self._members:
            self._groups[group] = (*self._groups.get(group, ()), version)

    def by_resource(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind served under that path, or None."""
        return self._by_resource.get((group, version, plural))

    def by_kind(self, group: str, version: str, kind: str) -> Kind | None:
        """Return the kind of that name, or None."""
        return self._by_kind.get((group, version, kind))

    def by_api_version(self, api_version: str, kind: str) -> Kind | None:
        """Return the kind an object's ``apiVersion`` and ``kind`` name, or None."""
        group, _, version = api_version.rpartition("/")
        return self.by_kind(group, version, kind)

    def by_name(self, text: str) -> Kind | None:
        """Return the kind a person means: kind, plural, singular, short name or ``plural.group``, case-insensitive."""
        wanted = text.lower()
        for kind in self._kinds:
            names = (kind.plural, kind.singular_name, kind.kind.lower(), kind.resource, *kind.short_names)
            if wanted in names:
                return kind
        return None

    def with_custom(self, kinds: Iterable[Kind]) -> Registry:
        """Return a registry with ``kinds`` beside these; where both have a path or a kind, these stay."""
        more = [
            kind
            for kind in kinds
            if (kind.group, kind.version, kind.plural) not in self._by_resource
            and (kind.group, kind.version, kind.kind) not in self._by_kind
        ]
        return Registry((*self._kinds, *more))

    def all(self) -> tuple[Kind, ...]:
        """Return every kind, in the order of declaration."""
        return self._kinds

    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """Return versions by group, the preferred version first; core is ""."""
        return self._groups

    def in_group(self, group: str, version: str) -> tuple[Kind, ...]:
        """Return the kinds of one group and version."""
        return self._members.get((group, version), ())
