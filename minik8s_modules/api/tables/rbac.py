"""Columns and cells of roles and bindings. Source: kubernetes ``pkg/printers/internalversion/printers.go``."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from minik8s_modules.api.objects import JsonObject, name
from minik8s_modules.api.tables.cells import AGE, NAME, Column, age

ROLE_COLUMNS = [NAME, Column("Created At")]
BINDING_COLUMNS = [
    NAME, Column("Role"), AGE, Column("Users", priority=1), Column("Groups", priority=1),
    Column("ServiceAccounts", priority=1),
]  # fmt: skip


def role(obj: JsonObject, _now: datetime) -> list[Any]:
    """Return the cells of a Role or ClusterRole."""
    return [name(obj), (obj.get("metadata") or {}).get("creationTimestamp") or "<unknown>"]


def binding(obj: JsonObject, now: datetime) -> list[Any]:
    """Return the cells of a RoleBinding or ClusterRoleBinding."""
    ref = obj.get("roleRef") or {}
    subjects: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in obj.get("subjects") or []:
        space, called = subject.get("namespace"), subject.get("name", "")
        subjects.setdefault(subject.get("kind", ""), []).append(f"{space}/{called}" if space else called)
    joined = [", ".join(subjects[kind]) for kind in ("User", "Group", "ServiceAccount")]
    return [name(obj), f"{ref.get('kind')}/{ref.get('name')}", age(obj, now), *joined]
