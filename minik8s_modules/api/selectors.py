"""Label selectors, as they stand in query strings and in objects; field selectors are in ``field_selectors.py``.

They are parsed once and match many times. Grammar: ``a=b``, ``a==b``, ``a!=b``, ``a in (b,c)``, ``a notin (b,c)``,
``a``, ``!a``, ``a>1``, ``a<1``, joined by commas (k8s.io/apimachinery ``labels/selector.go``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from minik8s_modules.api.errors import BadRequest
from minik8s_modules.api.objects import JsonObject

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


def as_label_selector(selector: JsonObject | None) -> JsonObject | None:
    """Return the ``spec.selector`` of a workload as a metav1.LabelSelector: a ReplicationController's is a plain map.

    The two cannot be confused: values of the map are strings, fields of a LabelSelector are a map and a list.
    """
    if selector and all(isinstance(value, str) for value in selector.values()):
        return {"matchLabels": selector}
    return selector


def from_map(selector: Mapping[str, str] | None) -> LabelSelector:
    """Return the selector a Service's ``spec.selector`` says: no labels at all match nothing."""
    if not selector:
        return NOTHING
    return LabelSelector(tuple(Requirement(key, "in", frozenset({value})) for key, value in selector.items()))


def describe(selector: Any) -> str:
    """Return a map selector (a Service's) as text, for tables: ``a=b,c=d`` or ``<none>``."""
    return ",".join(f"{key}={value}" for key, value in sorted((selector or {}).items())) or "<none>"


def selector_text(selector: JsonObject | None) -> str:
    """Return the selector of a workload as kubectl prints it."""
    selector = as_label_selector(selector)
    if selector is None:
        return "<none>"
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for each in selector.get("matchExpressions") or []:
        key, values = each.get("key", ""), ",".join(sorted(each.get("values") or []))
        shown = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        parts.append(shown.get(each.get("operator", ""), key))
    return ",".join(parts) or "<none>"
