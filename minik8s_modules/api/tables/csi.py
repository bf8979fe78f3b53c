"""Columns of the kinds of CSI drivers. Source: ``pkg/printers/internalversion/printers.go``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from minik8s_modules.api.kinds import CSI_DRIVER, CSI_NODE, CSI_STORAGE_CAPACITY, VOLUME_ATTACHMENT
from minik8s_modules.api.objects import JsonObject, dig, name, spec, status
from minik8s_modules.api.tables.cells import AGE, NAME, Column, age, columns

_UNSET = "<unset>"


def _said(value: Any) -> str:
    return str(bool(value)).lower()


def _driver(driver: JsonObject, now: datetime) -> list[Any]:
    declared = spec(driver)
    attach = declared.get("attachRequired")
    audiences = ",".join(str(one.get("audience") or "") for one in declared.get("tokenRequests") or [])
    return [
        name(driver), "true" if attach is None else _said(attach), _said(declared.get("podInfoOnMount")),
        _said(declared.get("storageCapacity")), audiences or _UNSET, _said(declared.get("requiresRepublish")),
        ",".join(declared.get("volumeLifecycleModes") or []) or "<none>", age(driver, now),
    ]  # fmt: skip


def _node(node: JsonObject, now: datetime) -> list[Any]:
    return [name(node), len(spec(node).get("drivers") or []), age(node, now)]


def _attachment(attachment: JsonObject, now: datetime) -> list[Any]:
    declared = spec(attachment)
    volume = str(dig(attachment, "spec", "source", "persistentVolumeName") or "")
    cells = [declared.get("attacher") or "", volume, declared.get("nodeName") or ""]
    return [name(attachment), *cells, _said(status(attachment).get("attached")), age(attachment, now)]


def _capacity(capacity: JsonObject, now: datetime) -> list[Any]:
    amount = capacity.get("capacity")
    shown = _UNSET if amount is None else str(amount)
    return [name(capacity), capacity.get("storageClassName") or "", shown, age(capacity, now)]


TABLES: Mapping[tuple[str, str], tuple[Sequence[Column], Callable[[JsonObject, datetime], list[Any]]]] = {
    CSI_DRIVER.id: (
        [NAME, *columns("AttachRequired", "PodInfoOnMount", "StorageCapacity", "TokenRequests", "RequiresRepublish",
                        "Modes"), AGE], _driver,
    ),
    CSI_NODE.id: ([NAME, Column("Drivers", "integer"), AGE], _node),
    VOLUME_ATTACHMENT.id: ([NAME, *columns("Attacher", "PV", "Node", "Attached"), AGE], _attachment),
    CSI_STORAGE_CAPACITY.id: ([NAME, *columns("StorageClassName", "Capacity"), AGE], _capacity),
}  # fmt: skip
