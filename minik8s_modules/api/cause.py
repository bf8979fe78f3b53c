"""What a client is told of a field, in kube-apiserver's words.

Source: k8s.io/apimachinery ``util/validation/field``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from minik8s_modules.api.errors import Cause

NOT_NEGATIVE = "must be greater than or equal to 0"


def required(field: str, detail: str = "") -> Cause:
    """Return ``Required value``, with the detail behind a colon when there is one."""
    return Cause("FieldValueRequired", f"Required value: {detail}" if detail else "Required value", field)


def invalid(field: str, value: Any, detail: str) -> Cause:
    """Return ``Invalid value: <the value as JSON>: <detail>``."""
    return all_invalid(field, value, [detail])[0]


def not_supported(field: str, value: Any, supported: Iterable[str], *, in_order: bool = False) -> Cause:
    """Return ``Unsupported value``, with the values that are, sorted unless they come ``in_order``."""
    known = ", ".join(f'"{each}"' for each in (supported if in_order else sorted(supported)))
    return Cause("FieldValueNotSupported", f"Unsupported value: {_shown(value)}: supported values: {known}", field)


def duplicate(field: str, value: Any) -> Cause:
    """Return ``Duplicate value``."""
    return Cause("FieldValueDuplicate", f"Duplicate value: {_shown(value)}", field)


def duplicates(field: str, values: Iterable[str]) -> list[Cause]:
    """Return ``Duplicate value`` for each item of the list ``field`` that stands further up in it, too."""
    seen: set[str] = set()
    causes = []
    for index, value in enumerate(values):
        if value in seen:
            causes.append(duplicate(f"{field}[{index}]", value))
        seen.add(value)
    return causes


def forbidden(field: str, detail: str) -> Cause:
    """Return ``Forbidden: <detail>``."""
    return Cause("FieldValueForbidden", f"Forbidden: {detail}", field)


def not_found(field: str, value: Any) -> Cause:
    """Return ``Not found: <value>``."""
    return Cause("FieldValueNotFound", f"Not found: {_shown(value)}", field)


def too_long(field: str, limit: int) -> Cause:
    """Return ``Too long: may not be more than <limit> bytes``; the value is not repeated."""
    return Cause("FieldValueTooLong", f"Too long: may not be more than {limit} bytes", field)


def too_many(field: str, count: int, limit: int) -> Cause:
    """Return ``Too many: <count>: must have at most <limit> items``."""
    return Cause("FieldValueTooMany", f"Too many: {count}: must have at most {limit} items", field)


def immutable(field: str, value: Any) -> Cause:
    """Return ``field is immutable``."""
    return invalid(field, value, "field is immutable")


# made once: json.dumps makes an encoder for each value, and one request may have 40,000 that are wrong
_shown = json.JSONEncoder(ensure_ascii=False).encode


def all_invalid(field: str, value: Any, messages: Iterable[str]) -> list[Cause]:
    """Return one ``Invalid value`` for each message."""
    found = list(messages)
    shown = _shown(value) if found else ""
    return [Cause("FieldValueInvalid", f"Invalid value: {shown}: {message}", field) for message in found]


def local_path(field: str, path: str) -> list[Cause]:
    """Return what keeps ``path`` from staying below a directory: an absolute path, or a step ``..``."""
    causes = []
    if path.startswith("/"):
        causes.append(invalid(field, path, "must be a relative path"))
    if ".." in path.split("/"):
        causes.append(invalid(field, path, "must not contain '..'"))
    return causes
