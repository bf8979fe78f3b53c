"""Fields that are refused or warned about, by the data of ``coverage.yml``."""

from __future__ import annotations

from minik8s_modules.api.errors import Cause
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject


def refused(kind: Kind, obj: JsonObject) -> list[Cause]:
    """Return a ``Forbidden`` for each field of the object that minik8s does not act on and must not ignore."""
    return []


def warned(kind: Kind, obj: JsonObject) -> list[str]:
    """Return a text for each field of the object that is stored and not acted on."""
    return []
