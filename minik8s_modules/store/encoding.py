"""Object bytes in the store have no ``metadata.resourceVersion``; those that leave it do."""

from __future__ import annotations

from typing import Any

import orjson


def with_revision(value: bytes, revision: int) -> tuple[bytes, dict[str, Any]]:
    """Return a stored object's bytes with ``metadata.resourceVersion`` set, and the object itself.

    Raises:
        ValueError: ``value`` is no JSON object with a ``metadata`` object.
    """
    stored = orjson.loads(value)
    metadata = stored.get("metadata") if isinstance(stored, dict) else None
    if not isinstance(metadata, dict):
        raise ValueError("a stored value must be a JSON object with metadata")  # noqa: TRY004 - as broken JSON
    metadata["resourceVersion"] = str(revision)
    return orjson.dumps(stored), stored


def exact(data: bytes) -> bytes:
    """Return a copy of ``data`` that holds no more memory than its length.

    What orjson returns keeps all of the buffer it was written into: 16 KiB for 1.4 KB.
    """
    return memoryview(data).tobytes()  # bytes() and slices would return ``data`` itself


def without_revision(value: dict[str, Any]) -> bytes:
    """Return the bytes to store for an object; the object itself stays as it is."""
    metadata = {name: part for name, part in value["metadata"].items() if name != "resourceVersion"}
    return orjson.dumps({**value, "metadata": metadata})
