"""Which AuthorizationPolicies say something: those that their own definition takes (roles/mesh/vars/authorization.yml).

Policies that were put into the store by hand, or under another definition such as Istio's own, may say more, or less: a
list that is empty, or a field that nobody enforces. Left out, each would make a rule wider. So the form is closed here,
and a policy without it denies everything, to pilots as to ``plan`` and ``trace``. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from minik8s_modules.api.network.authorization import ALLOW, DENY, negated
from minik8s_modules.api.objects import JsonObject

_NO_CHARACTER = re.compile(r"[\ud800-\udfff]")
"""Halves of characters: JSON has them, UTF-8 and so Envoy's messages have not."""


class Text(NamedTuple):
    """A text of at most so many characters, which has all of the patterns, from end to end, and nothing refused."""

    longest: int
    patterns: tuple[str, ...] = ()
    refused: str = ""


class Many(NamedTuple):
    """A list of so many items."""

    item: Any
    most: int = 64
    least: int = 1


class Labels(NamedTuple):
    """A map of so many texts, by any name."""

    item: Text
    most: int


class Fields(NamedTuple):
    """An object that has none but these fields, and if it is ``filled`` one of them."""

    fields: Mapping[str, Any]
    filled: bool = False


_PRINCIPALS = Many(Text(512, (r"^(\*|\*?[^*]+|[^*]+\*)$",), r"\Aspiffe://"))
_NAMESPACES = Many(Text(64, (r"^(\*|\*?[-a-z0-9]+|[-a-z0-9]+\*)$",)))
_HOSTS = Many(Text(260, (r"^(\*|\*?[-._:A-Za-z0-9\[\]]+|[-._:A-Za-z0-9\[\]]+\*)$",)))
_PORT = r"^([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$"
_PORTS = Many(Text(5, (_PORT,)))
_METHODS = Many(Text(32, (r"^(\*|\*?[-A-Z]+|[-A-Z]+\*)$",)))
_PATH = r"^(\*|/([^*/{}?#\\]+/)*[^*/{}?#\\]*\*?|\*/?([^*/{}?#\\]+/)*[^*/{}?#\\]+/?)$"
_ENCODED = r"^([^%]|%([013-9a-fA-F][0-9a-fA-F]|2[0-9a-dA-DfF]))*$"
_PATHS = Many(Text(200, (_PATH, _ENCODED), r"(?i)/\.\.?(/|$)|%(2f|5c|00)"), 32)


def _both(lists: Mapping[str, Many]) -> Fields:
    """Return an object with lists and their negations."""
    return Fields({name: each for field, each in lists.items() for name in (field, negated(field))}, filled=True)


_SOURCE = _both({"principals": _PRINCIPALS, "namespaces": _NAMESPACES})
_OPERATION = _both({"hosts": _HOSTS, "ports": _PORTS, "methods": _METHODS, "paths": _PATHS})
_RULE = Fields(
    {
        "from": Many(Fields({"source": _SOURCE}, filled=True), 16),
        "to": Many(Fields({"operation": _OPERATION}, filled=True), 8),
    }
)
SELECTOR = Fields({"matchLabels": Labels(Text(63), 64)})
SPEC = Fields({
    "selector": SELECTOR, "action": Text(5, (f"^({ALLOW}|{DENY})$",)), "rules": Many(_RULE, 64, 0),
})  # fmt: skip


def readable_policy(policy: JsonObject) -> tuple[JsonObject, str]:
    """Return an AuthorizationPolicy as it is enforced, and what cannot be read of it, in words; "" for nothing.

    One that cannot be read denies everything to those that it selects or, if its selector cannot be read, to all Pods
    of its namespace.
    """
    fault = next(_faults(SPEC, policy.get("spec", {}), "spec"), "")
    return (denying(policy), fault) if fault else (policy, "")


def denying(policy: JsonObject) -> JsonObject:
    """Return a policy that denies everything to those whom another may select."""
    spec = policy.get("spec")
    selector = spec.get("selector", {}) if isinstance(spec, dict) else {}
    kept = {} if any(_faults(SELECTOR, selector, "")) else {"selector": selector}
    return {**policy, "spec": {**kept, "action": DENY, "rules": [{}]}}


def _faults(form: Any, value: Any, place: str) -> Iterator[str]:
    """Yield where a value has another form."""
    if isinstance(form, Fields):
        yield from _faults_of_fields(form, value, place)
    elif isinstance(form, Text):
        yield from _faults_of_text(form, value, place)
    elif not isinstance(value, list if isinstance(form, Many) else dict):
        yield f"{place} is not {'a list' if isinstance(form, Many) else 'an object'}"
    elif len(value) > form.most or (isinstance(form, Many) and len(value) < form.least):
        yield f"{place} has {len(value)} items"
    else:
        for name, each in enumerate(value) if isinstance(value, list) else value.items():
            yield from _faults(form.item, each, f"{place}[{name}]")


def _faults_of_fields(form: Fields, value: Any, place: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{place} is not an object"
    elif form.filled and not value:
        yield f"{place} is empty"
    else:
        for name, each in value.items():
            if name in form.fields:
                yield from _faults(form.fields[name], each, f"{place}.{name}")
            else:
                yield f"{place}.{name} is not supported"


def _faults_of_text(form: Text, value: Any, place: str) -> Iterator[str]:
    if not isinstance(value, str):
        yield f"{place} is not a text"
    elif (
        len(value) > form.longest
        or _NO_CHARACTER.search(value)
        or not all(re.fullmatch(each, value) for each in form.patterns)
        or (form.refused and re.search(form.refused, value))
    ):
        yield f"{place} is {value!a}, which is not supported there"
