"""Columns of the kinds that extend the API server. Source: ``pkg/printers/internalversion/printers.go``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from minik8s_modules.api.kinds import MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION
from minik8s_modules.api.objects import JsonObject, name
from minik8s_modules.api.tables.cells import AGE, NAME, Column, age


def _webhooks(configuration: JsonObject, now: datetime) -> list[Any]:
    return [name(configuration), len(configuration.get("webhooks") or []), age(configuration, now)]


_WEBHOOKS = ([NAME, Column("Webhooks", "integer"), AGE], _webhooks)
TABLES: Mapping[tuple[str, str], tuple[Sequence[Column], Callable[[JsonObject, datetime], list[Any]]]] = {
    MUTATING_WEBHOOK_CONFIGURATION.id: _WEBHOOKS,
    VALIDATING_WEBHOOK_CONFIGURATION.id: _WEBHOOKS,
}
