"""Takes steps that are taken for no owner, one after the other. Steps for an owner are ``acting.py``'s."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from minik8s_modules.api import objects
from minik8s_modules.api.errors import AlreadyExists, Conflict, NotFound
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.controllers.core.steps import Create, Delete, Patch, RecordEvent, Step, WriteStatus
from minik8s_modules.runtime.controller import Context

log = logging.getLogger(__name__)


def take_all(context: Context, steps: Iterable[Step]) -> None:
    """Take the steps in order; what exists, or is gone, by now is taken as done.

    Raises:
        StatusError: the API refused one; those behind it were not tried.
        TemporaryError: it did not answer.
    """
    for step in steps:
        match step:
            case Create(kind, obj):
                _create(context, kind, obj)
            case Delete(kind, obj):
                _delete(context, kind, obj, step.grace_s)
            case Patch(kind, obj, body, subresource):
                _patch(context, kind, obj, body, subresource)
            case WriteStatus(kind, obj, status):
                _write_status(context, kind, obj, status)
            case RecordEvent(obj, event_type, reason, message):
                context.recorder.event(obj, event_type, reason, message)
            case _:
                raise TypeError(f"{type(step).__name__} needs an owner")


def _create(context: Context, kind: Kind, obj: JsonObject) -> None:
    try:
        context.client.create(kind, obj)
    except AlreadyExists:
        log.debug("%s %s exists", kind.kind, objects.key(obj))


def _delete(context: Context, kind: Kind, obj: JsonObject, grace_s: int | None) -> None:
    key = objects.key(obj)
    try:
        context.client.delete(kind, key.name, key.namespace, grace_s=grace_s, uid=objects.uid(obj) or None)
    except (NotFound, Conflict) as error:
        log.debug("%s %s is gone: %s", kind.kind, key, error)


def _patch(context: Context, kind: Kind, obj: JsonObject, body: JsonObject, subresource: str) -> None:
    key, meta = objects.key(obj), {**(body.get("metadata") or {}), "uid": objects.uid(obj)}
    try:
        context.client.patch(kind, key.name, key.namespace, {**body, "metadata": meta}, subresource=subresource)
    except NotFound:
        log.debug("%s %s is gone", kind.kind, key)


def _write_status(context: Context, kind: Kind, obj: JsonObject, status: JsonObject) -> None:
    try:
        context.client.update(kind, {**obj, "status": status}, subresource="status")
    except NotFound:
        log.debug("%s %s is gone", kind.kind, objects.key(obj))
