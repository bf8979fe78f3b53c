"""Object bytes in the store have no ``metadata.resourceVersion``; those that leave it do.

Whatever was put there, by hand or by another release, in the metadata of what leaves texts, numbers, maps and lists are
such: all rooms rely on that for every object. What is inside owner references and managedFields, and whether a text is
a time, nobody has looked at; that leaves as it is stored, and so does the rest (``readable``).
"""

from __future__ import annotations

import logging
import uuid
from copy import copy
from typing import Any

import orjson

from minik8s_modules.api.schema import structural

log = logging.getLogger(__name__)


def with_revision(value: bytes, revision: int, key: str = "") -> tuple[bytes, dict[str, Any]]:
    """Return a stored object's bytes with ``metadata.resourceVersion`` set, and the object itself.

    Args:
        value: what is stored.
        revision: of the write.
        key: where it is stored; metadata that lacks a name has it from there.

    Raises:
        ValueError: ``value`` is no JSON object.
    """
    stored = orjson.loads(value)
    if not isinstance(stored, dict):
        raise ValueError("a stored value must be a JSON object")  # noqa: TRY004 - as broken JSON
    metadata = stored.get("metadata")
    if type(metadata) is not dict or "name" not in metadata or not _is_plain(metadata):
        log.warning("%s: its metadata cannot be read as it is stored; what can be read is shown", key)
        metadata = stored["metadata"] = _mended(metadata, key)
    metadata["resourceVersion"] = str(revision)
    return orjson.dumps(stored), stored


_ITEMS: dict[str, type] = {"finalizers": str, "ownerReferences": dict, "managedFields": dict}
_MAPS = frozenset({"labels", "annotations"})
_NUMBERS = frozenset({"generation", "deletionGracePeriodSeconds"})
_NO_TEXTS = frozenset({*_ITEMS, *_MAPS, *_NUMBERS})


def _is_plain(metadata: dict[str, Any]) -> bool:
    """Return whether the fields are of the types that readers rely on: 2 µs, where a walk along types takes twenty."""
    for field, value in metadata.items():
        kind = type(value)
        if kind is str:
            if field in _NO_TEXTS:
                return False
        elif kind is dict:
            if field not in _MAPS or not all(type(inner) is str for inner in value.values()):
                return False
        elif kind is list:
            wanted = _ITEMS.get(field)
            if wanted is None or not all(type(inner) is wanted for inner in value):
                return False
        elif kind is not int or field not in _NUMBERS:
            return False
    return True


def _mended(metadata: Any, key: str) -> dict[str, Any]:
    """Return what of metadata can be read; without a name or uid, those that the object's key gives it.

    Of finalizers of which none can be read one stays, so that a deletion waits until somebody has removed it.
    """
    found: dict[str, Any] = metadata if isinstance(metadata, dict) else {}
    held = copy(found.get("finalizers"))
    structural.drop_mistyped_metadata(found)
    if held and not found.get("finalizers"):  # whatever it was kept the object
        found["finalizers"] = [held if isinstance(held, str) else _UNREADABLE]
    if not key:
        return found
    *above, name = key.split("/")
    if not found.get("name"):
        found["name"] = name
    if not found.get("namespace") and len(above) > _ABOVE_NAMESPACES:
        found["namespace"] = above[-1]
    if not found.get("uid"):
        found["uid"] = str(uuid.uuid5(uuid.NAMESPACE_URL, key))  # the same each time it is read
    return found


_UNREADABLE = "minik8s.io/unreadable"
_ABOVE_NAMESPACES = 4  # parts of /registry/<group>/<plural>


def exact(data: bytes) -> bytes:
    """Return a copy of ``data`` that holds no more memory than its length.

    What orjson returns keeps all of the buffer it was written into: 16 KiB for 1.4 KB.
    """
    return memoryview(data).tobytes()  # bytes() and slices would return ``data`` itself


def without_revision(value: dict[str, Any]) -> bytes:
    """Return the bytes to store for an object; the object itself stays as it is."""
    metadata = {name: part for name, part in value["metadata"].items() if name != "resourceVersion"}
    return orjson.dumps({**value, "metadata": metadata})
