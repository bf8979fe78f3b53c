"""Which function validates which kind: ``CREATE`` looks at an object alone, ``UPDATE`` at the new and the old one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject

CREATE: Mapping[tuple[str, str], Callable[[JsonObject], list[Cause]]] = {}
UPDATE: Mapping[tuple[str, str], Callable[[JsonObject, JsonObject], list[Cause]]] = {}
