"""Columns of the kinds that extend the API server. Source: ``pkg/printers/internalversion/printers.go``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from minik8s_modules.api.access import api_services
from minik8s_modules.api.kinds import (
    API_SERVICE,
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_ADMISSION_POLICY,
    VALIDATING_ADMISSION_POLICY_BINDING,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from minik8s_modules.api.objects import JsonObject, name, spec
from minik8s_modules.api.selectors import selector_text
from minik8s_modules.api.tables.cells import AGE, NAME, Column, age, columns


def _webhooks(configuration: JsonObject, now: datetime) -> list[Any]:
    return [name(configuration), len(configuration.get("webhooks") or []), age(configuration, now)]


def _policy(policy: JsonObject, now: datetime) -> list[Any]:
    declared = spec(policy)
    kind = declared.get("paramKind")
    shown = f"{kind.get('apiVersion')}/{kind.get('kind')}" if kind else UNSET
    return [name(policy), len(declared.get("validations") or []), shown, age(policy, now)]


def _binding(binding: JsonObject, now: datetime) -> list[Any]:
    declared = spec(binding)
    ref = declared.get("paramRef")
    shown = UNSET
    if ref and ref.get("name"):
        shown = f"{ref.get('namespace') or '*'}/{ref['name']}"
    elif ref and ref.get("selector") is not None:
        shown = selector_text(ref["selector"])
    return [name(binding), declared.get("policyName") or "", shown, age(binding, now)]


def _api_service(api_service: JsonObject, now: datetime) -> list[Any]:
    service = spec(api_service).get("service")
    shown = f"{service.get('namespace')}/{service.get('name')}" if service else "Local"
    available = api_services.available(api_service)
    reason = available.get("reason")
    text = available["status"] if available["status"] == "True" or not reason else f"{available['status']} ({reason})"
    return [name(api_service), shown, text, age(api_service, now)]


UNSET = "<unset>"
_WEBHOOKS = ([NAME, Column("Webhooks", "integer"), AGE], _webhooks)
TABLES: Mapping[tuple[str, str], tuple[Sequence[Column], Callable[[JsonObject, datetime], list[Any]]]] = {
    MUTATING_WEBHOOK_CONFIGURATION.id: _WEBHOOKS,
    VALIDATING_WEBHOOK_CONFIGURATION.id: _WEBHOOKS,
    VALIDATING_ADMISSION_POLICY.id: ([NAME, Column("Validations", "integer"), *columns("ParamKind"), AGE], _policy),
    API_SERVICE.id: ([NAME, *columns("Service", "Available"), AGE], _api_service),
    VALIDATING_ADMISSION_POLICY_BINDING.id: ([NAME, *columns("PolicyName", "ParamRef"), AGE], _binding),
}
