"""Requests and limits as Docker takes them, quality of service, addresses of a node.

Source: pkg/kubelet/cm/helpers_linux.go (shares, quota), pkg/apis/core/v1/helper/qos.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Decimal
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.quantities import parse, to_bytes, to_milli

JsonObject = dict[str, Any]
_MIN_SHARES, _MAX_SHARES, _SHARES_PER_CPU = 2, 262144, 1024
_QUOTA_PERIOD_US, _MIN_QUOTA_US = 100_000, 1_000
_COMPUTE = ("cpu", "memory")


def _amount(container: JsonObject, kind: str, resource: str) -> str:
    return str(objects.dig(container, "resources", kind, resource) or "0")


def cpu_shares(container: JsonObject) -> int:
    """Return Docker's CpuShares: the request, else the limit, 1024 a CPU, 2 at least."""
    milli = to_milli(_amount(container, "requests", "cpu")) or to_milli(_amount(container, "limits", "cpu"))
    return min(_MAX_SHARES, max(_MIN_SHARES, milli * _SHARES_PER_CPU // 1000))


def cpu_quota_us(container: JsonObject) -> int:
    """Return Docker's CpuQuota for a period of 100 ms; 0 means no limit."""
    milli = to_milli(_amount(container, "limits", "cpu"))
    return max(_MIN_QUOTA_US, milli * _QUOTA_PERIOD_US // 1000) if milli else 0


def memory_bytes(container: JsonObject) -> int:
    """Return Docker's Memory; 0 means no limit."""
    return to_bytes(_amount(container, "limits", "memory"))


def divided(amount: Decimal, divisor: str | None) -> int:
    """Return ``amount / divisor`` rounded up, as resourceFieldRef has it; the divisor is 1 by default."""
    by = parse(divisor or "1") or Decimal(1)
    return int((amount / by).to_integral_value(rounding=ROUND_CEILING))


def qos_class(pod: JsonObject) -> str:
    """Return Guaranteed, Burstable or BestEffort."""
    containers = [container for _, _, container in objects.all_containers(pod)]
    given = [
        (kind, name)
        for container in containers
        for kind in ("requests", "limits")
        for name in _COMPUTE
        if not math.isclose(float(parse(_amount(container, kind, name))), 0.0)
    ]
    if not given:
        return "BestEffort"
    return "Guaranteed" if all(_guaranteed(container) for container in containers) else "Burstable"


def _guaranteed(container: JsonObject) -> bool:
    return all(
        parse(limit := _amount(container, "limits", name)) > 0
        and parse(_amount(container, "requests", name) if _has_request(container, name) else limit) == parse(limit)
        for name in _COMPUTE
    )


def _has_request(container: JsonObject, name: str) -> bool:
    return objects.dig(container, "resources", "requests", name) is not None


def host_ip(node: JsonObject) -> str:
    """Return the node's InternalIP, or ""."""
    for address in objects.status(node).get("addresses") or []:
        if address.get("type") == "InternalIP":
            return str(address.get("address") or "")
    return ""
