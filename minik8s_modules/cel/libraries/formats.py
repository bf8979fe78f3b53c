"""Named formats (pkg/cel/library/format.go) with the messages of apimachinery's validation."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from minik8s_modules.cel import types
from minik8s_modules.cel.errors import EvaluationError
from minik8s_modules.cel.libraries import times, urls
from minik8s_modules.cel.types import Type
from minik8s_modules.cel.values import NONE, Optional

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_QUALIFIED})?"
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_LABEL_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    f"'{_LABEL_1035}')"
)
_QUALIFIED_TEXT = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED}')"
)
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'{_VALUE}')"
)
_UUID = re.compile(r"[a-f0-9]{8}-?[a-f0-9]{4}-?[a-f0-9]{4}-?[a-f0-9]{4}-?[a-f0-9]{12}", re.IGNORECASE)
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
_LABEL_LENGTH, _SUBDOMAIN_LENGTH = 63, 253
Validate = Callable[[str], list[str]]


def _length(most: int) -> str:
    return f"must be no more than {most} characters"


def _matching(pattern: str, message: str, most: int, *, prefix: bool = False) -> Validate:
    expression = re.compile(pattern)

    def validate(text: str) -> list[str]:
        name = f"{text[:-1]}a" if prefix and len(text) > 1 and text.endswith("-") else text
        found = [_length(most)] if len(name.encode()) > most else []
        return found if expression.fullmatch(name) else [*found, message]

    return validate


def _qualified(text: str) -> list[str]:
    parts = text.split("/")
    if len(parts) > 2:  # noqa: PLR2004 - prefix and name
        return [
            "a qualified name " + _QUALIFIED_TEXT.removesuffix(")")
            + ") with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]  # fmt: skip
    found: list[str] = []
    if len(parts) > 1:
        prefix = parts[0]
        found += (
            ["prefix part must be non-empty"] if not prefix else [f"prefix part {text}" for text in _subdomain(prefix)]
        )
    name = parts[-1]
    if not name:
        found.append("name part must be non-empty")
    elif len(name) > _LABEL_LENGTH:
        found.append(f"name part {_length(_LABEL_LENGTH)}")
    if not re.fullmatch(_QUALIFIED, name):
        found.append(f"name part {_QUALIFIED_TEXT}")
    return found


def _parsed(parse: Callable[[str], object], message: str = "") -> Validate:
    def validate(text: str) -> list[str]:
        try:
            parse(text)
        except EvaluationError as error:
            return [message or str(error).removeprefix("URL parse error during conversion from string: ")]
        return []

    return validate


def _full(expression: re.Pattern[str], message: str) -> Validate:
    return lambda text: [] if expression.fullmatch(text) else [message]


_subdomain = _matching(_SUBDOMAIN, _SUBDOMAIN_TEXT, _SUBDOMAIN_LENGTH)


@dataclass(frozen=True, slots=True)
class Format:
    """A named format; ``regex_size`` is what costs take for the length of its expression."""

    name: str
    validate: Validate
    regex_size: int
    cel_type: ClassVar[Type] = types.FORMAT


_URL_REGEX, _BASE64_REGEX, _DATE_REGEX, _UUID_REGEX = 1080, 86, 83, 72  # lengths of upstream's expressions
FORMATS = {
    "dns1123Label": Format("DNS1123Label", _matching(_LABEL, _LABEL_TEXT, _LABEL_LENGTH), 30),
    "dns1123Subdomain": Format("DNS1123Subdomain", _subdomain, 60),
    "dns1035Label": Format("DNS1035Label", _matching(_LABEL_1035, _LABEL_1035_TEXT, _LABEL_LENGTH), 30),
    "qualifiedName": Format("QualifiedName", _qualified, 60),
    "dns1123LabelPrefix": Format("DNS1123LabelPrefix", _matching(_LABEL, _LABEL_TEXT, _LABEL_LENGTH, prefix=True), 30),
    "dns1123SubdomainPrefix": Format(
        "DNS1123SubdomainPrefix", _matching(_SUBDOMAIN, _SUBDOMAIN_TEXT, _SUBDOMAIN_LENGTH, prefix=True), 60
    ),
    "dns1035LabelPrefix": Format(
        "DNS1035LabelPrefix", _matching(_LABEL_1035, _LABEL_1035_TEXT, _LABEL_LENGTH, prefix=True), 30
    ),
    "labelValue": Format("LabelValue", _matching(_VALUE, _VALUE_TEXT, _LABEL_LENGTH), 40),
    "uri": Format("URI", _parsed(urls.parse_url), _URL_REGEX),
    "uuid": Format("uuid", _full(_UUID, "does not match the UUID format"), _UUID_REGEX),
    "byte": Format("byte", _full(_BASE64, "invalid base64"), _BASE64_REGEX),
    "date": Format("date", _parsed(times.schema_date, "invalid date"), _DATE_REGEX),
    "datetime": Format("datetime", _parsed(times.parse_timestamp, "invalid datetime"), _DATE_REGEX),
}


def _named(name: str) -> Optional:
    found = FORMATS.get(name)
    return Optional(present=True, value=found) if found else NONE


def _validate(form: Format, text: str) -> Optional:
    found = form.validate(text)
    return Optional(present=True, value=found) if found else NONE


def _constant(value: Format) -> Callable[[], Format]:
    return lambda: value


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "format-named": _named,
    "format-validate": _validate,
    **{f"format.{name}": _constant(form) for name, form in FORMATS.items()},
}
