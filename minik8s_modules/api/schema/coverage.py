"""What minik8s does with every field of every served kind: the rules of ``coverage.yml``, compiled.

A field is ``implemented``, ``refused`` (validation answers Invalid), ``warned`` (stored, not acted on, and the client
is told), or its own definition's fields say it (``see``). Rules are keyed by OpenAPI definition and field; a rule other
than ``see`` covers the whole subtree. A generated test holds the file to the definitions, so a field of a new
Kubernetes version cannot slip in unclassified, and to the tests that show what is implemented.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.schema import structural
from minik8s_modules.base.once import once

Treatment = Literal["implemented", "refused", "warned", "see"]
_CLASSIFIED: tuple[Treatment, ...] = ("implemented", "see")
_REASONED: tuple[Treatment, ...] = ("refused", "warned")
_PREFIXES = ("io.k8s.apimachinery.pkg.apis.", "io.k8s.api.", "io.")
_UNSET: tuple[Any, ...] = (False, "", [])  # values that say what absence says, unless the rule has its own list


class Rule(NamedTuple):
    """What is done with a field.

    Attributes:
        treatment: implemented, refused, warned or see.
        reason: why, for refused and warned.
        unless: values that are accepted silently because they ask for what happens anyway.
    """

    treatment: Treatment
    reason: str = ""
    unless: tuple[Any, ...] = _UNSET

    def accepts(self, value: Any) -> bool:
        """Return whether ``value`` needs neither refusal nor warning."""
        return self.treatment in {"implemented", "see"} or any(
            value == each and isinstance(value, bool) == isinstance(each, bool) for each in self.unless
        )


@once
def rules() -> dict[str, dict[str, Rule]]:
    """Return the rules by full name of the OpenAPI definition and field."""
    file = Path(__file__).with_name("coverage.yml")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    data = yaml.load(file.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506 - a safe loader, in C where there is one
    return {name: dict(_rules(fields)) for name, fields in data.items()}


def _rules(written: JsonObject) -> Iterator[tuple[str, Rule]]:
    """Yield the rule of each field of a definition, written as in the head of ``coverage.yml``."""
    for treatment in _CLASSIFIED:
        for field in written.get(treatment, ()):
            yield field, Rule(treatment)
    for treatment in _REASONED:
        for field, reason in written.get(treatment, {}).items():
            given = {"why": reason} if isinstance(reason, str) else reason
            yield field, Rule(treatment, given["why"], tuple(given.get("unless", _UNSET)))


@cache
def rules_of(definition: str) -> dict[str, Rule]:
    """Return the rules of the fields of an OpenAPI definition, none where nobody classified it."""
    for prefix in _PREFIXES:
        if definition.startswith(prefix):
            return rules().get(definition.removeprefix(prefix), {})
    return {}


class Finding(NamedTuple):
    """A field of an object that a rule speaks about."""

    path: str
    rule: Rule


def findings(kind: Kind, obj: JsonObject) -> list[Finding]:
    """Return each field of ``obj`` that is refused or warned about, in document order."""
    found: list[Finding] = []
    _walk(structural.kind_shape(kind), obj, "", found)
    return found


@cache
def _speaking(definition: str) -> dict[str, Rule]:
    """Return the rules that have something to say, or to look for below: every write is walked along them."""
    return {field: rule for field, rule in rules_of(definition).items() if rule.treatment != "implemented"}


def _walk(shape: structural.Shape, value: Any, path: str, found: list[Finding]) -> None:
    if isinstance(value, list) and shape.items is not None:
        for index, inner in enumerate(value):
            _walk(shape.items, inner, f"{path}[{index}]", found)
    elif isinstance(value, dict) and shape.kind == "object":
        speaking = _speaking(shape.definition)
        for field, inner in value.items():
            rule = speaking.get(field)
            if rule is None:
                continue
            if rule.treatment == "see":
                if isinstance(inner, (dict, list)):
                    _walk(shape.fields[field], inner, f"{path}.{field}" if path else field, found)
            elif not rule.accepts(inner):
                found.append(Finding(f"{path}.{field}" if path else field, rule))


class CoveredField(NamedTuple):
    """A field of a kind's schema with its rule, None when nobody classified it; ``shape`` is the field's type."""

    path: str
    rule: Rule | None
    shape: structural.Shape


def covered(kind: Kind) -> Iterator[CoveredField]:
    """Yield every field of the kind's schema down to where a rule covers the rest; for tests and documentation."""
    yield from _covered(structural.kind_shape(kind), "")


def _covered(shape: structural.Shape, path: str) -> Iterator[CoveredField]:
    if shape.kind != "object" and shape.items is not None:
        yield from _covered(shape.items, f"{path}[]" if shape.kind == "list" else f"{path}{{}}")
        return
    known = rules_of(shape.definition)
    for field in shape.fields:
        here = f"{path}.{field}" if path else field
        rule = known.get(field)
        if rule is not None and rule.treatment == "see":
            yield from _covered(shape.fields[field], here)
        else:
            yield CoveredField(here, rule, shape.fields[field])
