"""What a node's module returned, checked: values from a node are data of a known shape, or they are refused.

The shape is in docs/reference/node-document.md. Unknown keys (Ansible's own among them) are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import Minik8sError
from minik8s_modules.module_utils.minik8s.core.sections import SECTIONS

MAX_KEYS = 20_000  # of one section: 100 times the pods a node can hold
ANSIBLE_KEYS = ("minik8s_item", "failed", "invocation", "warnings", "deprecations", "exception")


class BadResult(Minik8sError):
    """A module failed, or returned what no module of ours returns."""


def _is_mapping(value: object) -> bool:
    return isinstance(value, dict) and len(value) <= MAX_KEYS


def _is_list_of_objects(value: object) -> bool:
    return isinstance(value, list) and len(value) <= MAX_KEYS and all(isinstance(one, dict) for one in value)


def _is_status(value: object) -> bool:
    return (
        _is_mapping(value)
        and isinstance(value, dict)
        and all(one is None or isinstance(one, dict | str) for one in value.values())
    )


def _is_errors(value: object) -> bool:
    return _is_mapping(value) and isinstance(value, dict) and all(isinstance(one, dict) for one in value.values())


def _is_list_of_texts(value: object) -> bool:
    return isinstance(value, list) and len(value) <= MAX_KEYS and all(isinstance(one, str) for one in value)


def _nothing() -> None:
    return None


def _is_differences(value: object) -> bool:
    return isinstance(value, dict) and all(_is_mapping(value.get(when)) for when in ("before", "after"))


def _is(kind: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kind)


# field: (check, value when it is missing)
RESULT: dict[str, tuple[Callable[[object], bool], Callable[[], Any]]] = {
    "changed": (_is(bool), bool),
    "diff": (_is_mapping, lambda: {"before": "", "after": ""}),
    "differences": (_is_differences, lambda: {"before": {}, "after": {}}),
    "section": (_is(str), str),
    "digest": (_is(str), str),
    "steps": (_is_list_of_objects, list),
    "status": (_is_status, dict),
    "errors": (_is_errors, dict),
    "due": (_is_list_of_objects, list),
    "held": (_is_list_of_objects, list),
    "base_mismatch": (_is(bool), bool),
    "fenced": (_is(bool), bool),
    "calls": (_is_list_of_objects, list),
    "in_use": (_is_list_of_texts, _nothing),
}


def check_result(section: str, result: JsonObject) -> JsonObject:
    """Return the module result of ``section`` with its known fields only.

    Raises:
        BadResult: the module failed (the message is its own), or a field has the wrong type.
    """
    if result.get("failed") or result.get("unreachable") or "exception" in result:
        raise BadResult(str(result.get("msg", "the module failed without a message"))[:4096])
    if section not in SECTIONS:
        return {key: value for key, value in result.items() if key not in ANSIBLE_KEYS}
    checked: JsonObject = {}
    for field, (is_right, default) in RESULT.items():
        value = result.get(field)
        if value is not None and not is_right(value):
            raise BadResult(f"the node's result is not what the module returns: {field} is {type(value).__name__}")
        checked[field] = default() if value is None else value
    return checked
