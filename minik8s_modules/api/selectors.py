"""Label and field selectors, as they stand in query strings and in objects.

Both parse once and match many times. Label grammar: ``a=b``, ``a==b``, ``a!=b``, ``a in (b,c)``, ``a notin (b,c)``,
``a``, ``!a``, ``a>1``, ``a<1``, joined by commas (k8s.io/apimachinery ``labels/selector.go``). Field selectors know
``=``, ``==`` and ``!=`` on the fields Kubernetes supports for the kind; any other is refused, because a selector that
matches by accident deletes by accident.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from minik8s_modules.api.errors import BadRequest
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject, dig

_TOKEN = re.compile(r"\s*(==|!=|=|!|,|\(|\)|<|>|[^\s=!,()<>]+)")
_KEY = re.compile(
    r"(?=.{1,317}$)([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_PUNCTUATION = frozenset({"==", "!=", "=", "!", ",", "(", ")", "<", ">"})


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label; ``operator`` is one of ``in, notin, exists, !, gt, lt``."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether ``labels`` meet the condition; a missing label meets ``notin`` and ``!``."""
        value = labels.get(self.key)
        if value is None:
            return self.operator in {"notin", "!"}
        if self.operator in {"in", "notin"}:
            return (value in self.values) == (self.operator == "in")
        if self.operator in {"gt", "lt"}:
            return self._compares(value)
        return self.operator == "exists"

    def _compares(self, value: str) -> bool:
        (bound,) = self.values
        try:
            return int(value) > int(bound) if self.operator == "gt" else int(value) < int(bound)
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements must be met; without any it matches everything, unless ``nothing`` is set."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether ``labels`` meet every requirement."""
        return not self.nothing and all(requirement.matches(labels) for requirement in self.requirements)

    @property
    def empty(self) -> bool:
        """Return whether everything matches."""
        return not self.requirements and not self.nothing


NOTHING = LabelSelector(nothing=True)


@lru_cache(maxsize=1024)
def parse_label_selector(text: str) -> LabelSelector:
    """Return the selector ``text`` (a ``labelSelector`` query parameter) says; "" matches everything.

    Raises:
        BadRequest: the text is no selector; the message says what was found where.
    """
    tokens = _tokens(text)
    found: list[Requirement] = []
    while tokens:
        found.append(_requirement(tokens))
        if tokens:
            _expect(tokens, {","})
            if not tokens:
                raise _unparsable("found '', expected: identifier after ','")
    return LabelSelector(tuple(found))


def _unparsable(why: str) -> BadRequest:
    return BadRequest(f"unable to parse requirement: {why}")


def _tokens(text: str) -> list[str]:
    found = [match.group(1) for match in _TOKEN.finditer(text)]
    return found[::-1]  # taken from the end


def _expect(tokens: list[str], wanted: set[str]) -> str:
    token = tokens.pop() if tokens else ""
    if token not in wanted:
        raise _unparsable(f"found '{token}', expected: {', '.join(sorted(wanted))}")
    return token


def _requirement(tokens: list[str]) -> Requirement:
    if tokens[-1] == "!":
        tokens.pop()
        return Requirement(_label_key(tokens), "!")
    key = _label_key(tokens)
    if not tokens or tokens[-1] == ",":
        return Requirement(key, "exists")
    operator = _expect(tokens, {"=", "==", "!=", "in", "notin", "<", ">"})
    if operator in {"in", "notin"}:
        return Requirement(key, operator, _set_values(tokens))
    value = tokens.pop() if tokens and tokens[-1] != "," else ""
    _check_value(value)
    if operator in {"<", ">"}:
        return Requirement(key, "gt" if operator == ">" else "lt", frozenset({_integer(key, value)}))
    return Requirement(key, "notin" if operator == "!=" else "in", frozenset({value}))


def _integer(key: str, value: str) -> str:
    if not re.fullmatch(r"[+-]?[0-9]+", value):
        raise _unparsable(
            f"values[0][{key}]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer"
        )
    return value


def _label_key(tokens: list[str]) -> str:
    key = tokens.pop() if tokens else ""
    if key in _PUNCTUATION or not _KEY.fullmatch(key):
        raise _unparsable(f"found '{key}', expected: !, identifier, or 'end of string'")
    return key


def _set_values(tokens: list[str]) -> frozenset[str]:
    _expect(tokens, {"("})
    values = []
    while True:
        value = tokens.pop() if tokens and tokens[-1] not in {",", ")"} else ""
        _check_value(value)
        values.append(value)
        if _expect(tokens, {",", ")"}) == ")":
            return frozenset(values)


def _check_value(value: str) -> None:
    if value in _PUNCTUATION or not _VALUE.fullmatch(value):
        raise _unparsable(
            f'invalid label value: "{value}": a valid label must be an empty string or consist of alphanumeric '
            "characters, '-', '_' or '.', and must start and end with an alphanumeric character"
        )


_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


def from_label_selector(selector: JsonObject | None) -> LabelSelector:
    """Return the selector a metav1.LabelSelector object says: None matches nothing, ``{}`` everything.

    Raises:
        BadRequest: an operator is unknown.
    """
    if selector is None:
        return NOTHING
    found = [Requirement(key, "in", frozenset({value})) for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or []:
        operator = _OPERATORS.get(expression.get("operator", ""))
        if operator is None:
            raise BadRequest(f'"{expression.get("operator")}" is not a valid label selector operator')
        found.append(Requirement(expression["key"], operator, frozenset(expression.get("values") or ())))
    return LabelSelector(tuple(found))


def from_map(selector: Mapping[str, str] | None) -> LabelSelector:
    """Return the selector a Service's ``spec.selector`` says: no labels at all match nothing."""
    if not selector:
        return NOTHING
    return LabelSelector(tuple(Requirement(key, "in", frozenset({value})) for key, value in selector.items()))


def _path(*path: str) -> Callable[[JsonObject], str]:
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
    return {name: _path(*name.split(".")) for name in names}


_COMMON = _fields("metadata.name", "metadata.namespace")
_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_REGARDING = {f"regarding.{name}": _path("regarding", name) for name in _INVOLVED}
_FIELDS: Mapping[tuple[str, str], dict[str, Callable[[JsonObject], str]]] = {
    ("", "Pod"): {
        **_fields("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"),
        **_fields("status.phase", "status.podIP", "status.nominatedNodeName"),
        "spec.hostNetwork": _flag("spec", "hostNetwork"),
        "status.podIPs": _path("status", "podIP"),
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
    ("", "Namespace"): {**_fields("status.phase"), "name": _path("metadata", "name")},
    ("", "Service"): _fields("spec.clusterIP", "spec.type"),
    ("apps", "ReplicaSet"): {"status.replicas": _count("status", "replicas")},
    ("", "ReplicaSet"): {"status.replicas": _count("status", "replicas")},
    ("batch", "Job"): {"status.successful": _count("status", "succeeded")},
    ("certificates.k8s.io", "CertificateSigningRequest"): _fields("spec.signerName"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """One condition on one field."""

    field: str
    negated: bool
    value: str
    read: Callable[[JsonObject], str]

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
        """Return the value that ``field`` must have, or None when the selector does not say it."""
        found = (r.value for r in self.requirements if r.field == field and not r.negated)
        return next(found, None)


def selectable_fields(kind: Kind) -> dict[str, Callable[[JsonObject], str]]:
    """Return the fields that selectors of this kind may name, each with the function that reads it as text."""
    return {**_COMMON, **_FIELDS.get(kind.id, {})}


def parse_field_selector(kind: Kind, text: str) -> FieldSelector:
    """Return the selector ``text`` (a ``fieldSelector`` query parameter) says; "" matches everything.

    Raises:
        BadRequest: the text is no selector, or names a field that cannot be selected by for this kind.
    """
    return FieldSelector(tuple(_field_requirement(kind, term) for term in _terms(text)))


def _terms(text: str) -> list[str]:
    return [term.strip() for term in re.split(r"(?<!\\),", text) if term.strip()]


def _field_requirement(kind: Kind, term: str) -> FieldRequirement:
    field, operator, value = _split(term)
    read = selectable_fields(kind).get(field)
    if read is None:
        raise BadRequest(f"field label not supported: {field}")
    return FieldRequirement(field, operator == "!=", re.sub(r"\\([\\,=])", r"\1", value), read)


def _split(term: str) -> tuple[str, str, str]:
    match = re.fullmatch(r"([^=!]*)(!=|==|=)(.*)", term)
    if match is None:
        raise BadRequest(f"invalid selector: '{term}'; can't understand '{term}'")
    field, operator, value = match.groups()
    return field.strip(), operator, value.strip()


def describe(selector: Any) -> str:
    """Return a map selector (a Service's) as text, for tables: ``a=b,c=d`` or ``<none>``."""
    return ",".join(f"{key}={value}" for key, value in sorted((selector or {}).items())) or "<none>"
