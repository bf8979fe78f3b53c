"""Columns and cells of the kinds that only the original has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from minik8s_modules.api.network.subsets import pods_of
from minik8s_modules.api.objects import JsonObject, condition, name, spec, status
from minik8s_modules.api.tables.cells import AGE, NAME, NONE, Column, age, columns


def _virtual_service(obj: JsonObject, now: datetime) -> list[Any]:
    declared = spec(obj)
    shares = [f"{each.get('name')}={_choice(each)}" for each in declared.get("subsets") or []]
    return [
        name(obj),
        declared.get("serviceRef", ""),
        declared.get("port") or 0,
        ",".join(shares) or NONE,
        _accepted(obj),
        age(obj, now),
    ]


def _choice(share: JsonObject) -> Any:
    if share.get("weight") is not None:
        return share["weight"]
    return share.get("url") or " ".join(f"{name}:{value}" for name, value in (share.get("headers") or {}).items())


def _accepted(obj: JsonObject) -> str:
    """Return whether a pilot lets it split requests: Unknown where none has decided, the reason where it does not."""
    found = [condition(obj, kind) for kind in ("Accepted", "ResolvedRefs")]
    against = [str(each.get("reason")) for each in found if each is not None and each.get("status") != "True"]
    return against[0] if against else "True" if found[0] is not None else "Unknown"


def _dns(obj: JsonObject, now: datetime) -> list[Any]:
    return [name(obj), ",".join(str(r.get("host")) for r in spec(obj).get("rules") or []) or NONE, age(obj, now)]


_SHOWN = 80


def _subset(obj: JsonObject, now: datetime) -> list[Any]:
    return [name(obj), ",".join(pods_of(obj)) or NONE, age(obj, now)]


def _rolling_update(obj: JsonObject, now: datetime) -> list[Any]:
    declared = spec(obj)
    return [
        name(obj), declared.get("serviceRef", ""), declared.get("port") or 0, declared.get("minimumAlive") or 0,
        status(obj).get("phase", ""), f"{status(obj).get('updated') or 0}/{status(obj).get('total') or 0}",
        (condition(obj, "Progressing") or {}).get("reason", ""), age(obj, now),
    ]  # fmt: skip


def _legacy_autoscaler(obj: JsonObject, now: datetime) -> list[Any]:
    declared = spec(obj)
    target = declared.get("scaleTargetRef") or {}
    bounds = [declared.get(field) or 0 for field in ("minReplicas", "maxReplicas")]
    metrics = ",".join(str(metric.get("name")) for metric in declared.get("metrics") or []) or NONE
    return [name(obj), f"{target.get('kind', '')}/{target.get('name', '')}", metrics, *bounds, age(obj, now)]


def _legacy_job(obj: JsonObject, now: datetime) -> list[Any]:
    reported = status(obj)
    says = " ".join(str(reported.get("result") or reported.get("message") or "").split())
    shown = says if len(says) <= _SHOWN else f"{says[: _SHOWN - 1]}…"
    return [name(obj), spec(obj).get("partition", ""), reported.get("phase", ""), shown or NONE, age(obj, now)]


TABLES: dict[tuple[str, str], tuple[Sequence[Column], Callable[[JsonObject, datetime], list[Any]]]] = {
    ("", "VirtualService"): (
        [NAME, *columns("Service"), Column("Port", "integer"), *columns("Subsets", "Accepted"), AGE],
        _virtual_service,
    ),
    ("", "DNS"): ([NAME, *columns("Hosts"), AGE], _dns),
    ("", "Subset"): ([NAME, *columns("Pods"), AGE], _subset),
    ("", "RollingUpdate"): (
        [
            NAME,
            *columns("Service"),
            Column("Port", "integer"),
            Column("Minimum Alive", "integer"),
            *columns("Phase", "Updated", "Reason"),
            AGE,
        ],
        _rolling_update,
    ),
    ("", "HorizontalPodAutoscaler"): (
        [NAME, *columns("Reference", "Metrics"), Column("MinPods", "integer"), Column("MaxPods", "integer"), AGE],
        _legacy_autoscaler,
    ),
    ("", "Job"): ([NAME, *columns("Partition", "Phase", "Result"), AGE], _legacy_job),
}
