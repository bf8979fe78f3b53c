r"""Field selectors: the text of a query parameter, the requirements it says, and what they match.

``=``, ``==`` and ``!=`` on the fields that Kubernetes supports for the kind; any other field is refused, because a
selector that matches by accident deletes by accident. Grammar: k8s.io/apimachinery ``fields/selector.go``. Commas
separate terms, the first operator of a term ends its field, and in a value ``\\``, ``\,`` and ``\=`` stand for the
characters themselves; a backslash before anything else, or an ``=`` without one, is an error.

The text is read here and nowhere else: whoever decides by a selector decides by ``FieldSelector``, and whoever needs
one more condition adds a requirement (``with_exact``). Clients write terms with ``exactly``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from minik8s_modules.api.errors import BadRequest
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject, dig

_OPERATORS = ("!=", "==", "=")
"""Those that begin like others come first."""
_ESCAPED = frozenset("\\,=")


class Term(NamedTuple):
    """One term of a selector's text; ``value`` is unescaped."""

    field: str
    negated: bool
    value: str


def terms(text: str) -> list[Term]:
    """Return the terms of a selector's text; empty ones are left out.

    Raises:
        BadRequest: the text is no selector.
    """
    return [_term(text, part) for part in _parts(text) if part]


def _parts(text: str) -> Iterator[str]:
    """Yield what commas separate; one after a backslash separates nothing."""
    start, escaped = 0, False
    for index, character in enumerate(text):
        if character == "," and not escaped:
            yield text[start:index]
            start = index + 1
        escaped = character == "\\" and not escaped
    yield text[start:]


def _term(text: str, part: str) -> Term:
    for index in range(len(part)):
        for operator in _OPERATORS:
            if part.startswith(operator, index):
                return Term(part[:index], operator == "!=", _unescaped(part[index + len(operator) :]))
    raise BadRequest(f"invalid selector: '{text}'; can't understand '{part}'")


def _unescaped(text: str) -> str:
    found: list[str] = []
    characters = iter(text)
    for character in characters:
        if character == "\\":
            following = next(characters, "")
            if following not in _ESCAPED:
                raise BadRequest(f"invalid field selector: invalid escape sequence: \\{following}")
            found.append(following)
        elif character in _ESCAPED:
            raise BadRequest(f"invalid field selector: unescaped character in value: {character}")
        else:
            found.append(character)
    return "".join(found)


def exactly(**values: str) -> str:
    r"""Return the text that selects by exact values; ``__`` in a name stands for its dot.

    >>> exactly(metadata__name="a,b", type="x")
    'metadata.name=a\\,b,type=x'
    """
    return ",".join(f"{name.replace('__', '.')}={_escaped(value)}" for name, value in values.items())


def _escaped(value: str) -> str:
    return "".join(f"\\{character}" if character in _ESCAPED else character for character in value)


def text_at(*path: str) -> Callable[[JsonObject], str]:
    """Return what reads the field at ``path`` as selectors compare it; "" where there is none."""

    def read(obj: JsonObject) -> str:
        value = dig(obj, *path)
        if isinstance(value, bool):
            return "true" if value else "false"
        return "" if value is None else str(value)

    return read


def _flag(*path: str) -> Callable[[JsonObject], str]:
    return lambda obj: "true" if dig(obj, *path) else "false"


def _count(*path: str) -> Callable[[JsonObject], str]:
    return lambda obj: str(dig(obj, *path) or 0)


def _fields(*names: str) -> dict[str, Callable[[JsonObject], str]]:
    return {name: text_at(*name.split(".")) for name in names}


_COMMON = _fields("metadata.name", "metadata.namespace")
_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_REGARDING = {f"regarding.{name}": text_at("regarding", name) for name in _INVOLVED}
_FIELDS: Mapping[tuple[str, str], dict[str, Callable[[JsonObject], str]]] = {
    ("", "Pod"): {
        **_fields("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"),
        **_fields("status.phase", "status.podIP", "status.nominatedNodeName"),
        "spec.hostNetwork": _flag("spec", "hostNetwork"),
        "status.podIPs": text_at("status", "podIP"),
    },
    ("", "Event"): {
        **_fields(*(f"involvedObject.{name}" for name in _INVOLVED), "reason", "reportingComponent", "type"),
        "source": lambda obj: str(dig(obj, "source", "component") or dig(obj, "reportingComponent") or ""),
    },
    ("events.k8s.io", "Event"): {
        **_REGARDING,
        **_fields("reason", "type", "reportingController"),
    },
    ("", "Node"): {"spec.unschedulable": _flag("spec", "unschedulable")},
    ("", "Secret"): _fields("type"),
    ("", "Namespace"): {**_fields("status.phase"), "name": text_at("metadata", "name")},
    ("", "Service"): _fields("spec.clusterIP", "spec.type"),
    ("apps", "ReplicaSet"): {"status.replicas": _count("status", "replicas")},
    ("", "ReplicationController"): {"status.replicas": _count("status", "replicas")},
    ("", "ReplicaSet"): {"status.replicas": _count("status", "replicas")},
    ("batch", "Job"): {"status.successful": _count("status", "succeeded")},
    ("certificates.k8s.io", "CertificateSigningRequest"): _fields("spec.signerName"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """One condition on one field; two of the same kind with equal terms are equal."""

    field: str
    negated: bool
    value: str
    read: Callable[[JsonObject], str] = dataclasses.field(compare=False)

    def matches(self, obj: JsonObject) -> bool:
        """Return whether the object's field is (or with ``negated`` is not) the value; an absent field is ""."""
        return (self.read(obj) == self.value) != self.negated


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """All requirements must be met; without any it matches everything."""

    requirements: tuple[FieldRequirement, ...] = ()

    def matches(self, obj: JsonObject) -> bool:
        """Return whether the object meets every requirement."""
        return all(requirement.matches(obj) for requirement in self.requirements)

    @property
    def empty(self) -> bool:
        """Return whether everything matches."""
        return not self.requirements

    def exact(self, field: str) -> str | None:
        """Return a value that ``field`` must have, or None when the selector does not say one.

        Where it says two, nothing matches, and either is true of all that does.
        """
        found = (r.value for r in self.requirements if r.field == field and not r.negated)
        return next(found, None)

    def requires(self, field: str, value: str) -> bool:
        """Return whether whatever matches has ``value`` in ``field``."""
        return any((r.field, r.negated, r.value) == (field, False, value) for r in self.requirements)


EVERYTHING = FieldSelector()


def selectable_fields(kind: Kind) -> dict[str, Callable[[JsonObject], str]]:
    """Return the fields that selectors of this kind may name, each with the function that reads it as text."""
    return {**_COMMON, **(_FIELDS.get(kind.id, {}) if kind.custom is None else kind.custom.selectable)}


def parse_field_selector(kind: Kind, text: str) -> FieldSelector:
    """Return the selector ``text`` (a ``fieldSelector`` query parameter) says; "" matches everything.

    Raises:
        BadRequest: the text is no selector, or names a field that cannot be selected by for this kind.
    """
    return FieldSelector(tuple(_requirement(kind, term) for term in terms(text)))


def with_exact(kind: Kind, selector: FieldSelector, field: str, value: str) -> FieldSelector:
    """Return the selector with one more requirement: ``field`` is ``value``."""
    return FieldSelector((*selector.requirements, _requirement(kind, Term(field, False, value))))  # noqa: FBT003 - a field


def _requirement(kind: Kind, term: Term) -> FieldRequirement:
    read = selectable_fields(kind).get(term.field)
    if read is None:
        raise BadRequest(f"field label not supported: {term.field}")
    return FieldRequirement(*term, read)
