"""Requests and limits as Docker takes them, quality of service, addresses of a node.

Source: pkg/kubelet/cm/helpers_linux.go (shares, quota), pkg/apis/core/v1/helper/qos.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_CEILING, Decimal

from minik8s_modules.api import objects, syntax
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods import huge_pages
from minik8s_modules.api.pods.resources import COMPUTE, pod_amounts, pod_level, pod_requests, qos_class
from minik8s_modules.api.quantities import parse, to_bytes, to_milli
from minik8s_modules.module_utils.minik8s.entries.sandboxes import HostPort, PodCgroup

_MIN_SHARES, _MAX_SHARES, _SHARES_PER_CPU = 2, 262144, 1024
_QUOTA_PERIOD_US, _MIN_QUOTA_US = 100_000, 1_000


def _amount(container: JsonObject, kind: str, resource: str) -> str:
    return str(objects.dig(container, "resources", kind, resource) or "0")


def as_limited(pod: JsonObject, container: JsonObject) -> JsonObject:
    """Return the container with the pod's own limits where it has none itself (kubelet's ``getMemoryLimit``)."""
    limits = pod_level(pod).get("limits") or {}
    own = container.get("resources") or {}
    missing = {
        name: limits[name] for name in COMPUTE if name in limits and not to_milli(_amount(container, "limits", name))
    }
    return (
        {**container, "resources": {**own, "limits": {**(own.get("limits") or {}), **missing}}}
        if missing
        else container
    )


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


def pod_cgroup(pod: JsonObject, pids: int) -> PodCgroup:
    """Return the limits of the pod's own cgroup (kubelet's ResourceConfigForPod); 0 is none.

    The shares are of all requests; a limit is there only where the pod or every container has one. An init container
    counts where it asks for more than all containers that run later, and the overhead of the runtime is the pod's.
    Of huge pages the request is the limit.
    """
    total = pod_requests(pod)
    best_effort = qos_class(pod) == "BestEffort"
    shares = _MIN_SHARES if best_effort else max(_MIN_SHARES, total.milli_cpu * _SHARES_PER_CPU // 1000)
    milli, memory = (_pod_limit(pod, name, amount) for name, amount in (("cpu", to_milli), ("memory", to_bytes)))
    entry: PodCgroup = {
        "cpu_shares": min(_MAX_SHARES, shares),
        "cpu_quota_us": max(_MIN_QUOTA_US, milli * _QUOTA_PERIOD_US // 1000) if milli else 0,
        "memory_bytes": memory,
        "pids": pids,
    }
    if huge := {str(huge_pages.page_bytes(name)): size for name, size in huge_pages_of(pod).items()}:
        entry["huge_pages"] = huge
    return entry


def huge_pages_of(pod: JsonObject) -> dict[str, int]:
    """Return the bytes of huge pages that the pod requests, by resource."""
    return {name: size for name, size in pod_requests(pod).other.items() if size and huge_pages.is_resource(name)}


def _pod_limit(pod: JsonObject, resource: str, amount: Callable[[str], int]) -> int:
    def limit(container: JsonObject) -> dict[str, int]:
        return {resource: amount(_amount(container, "limits", resource))}

    own = resource in (pod_level(pod).get("limits") or {})
    if not own and not all(limit(one)[resource] for _, _, one in objects.all_containers(pod)):
        return 0
    return pod_amounts(pod, limit)[resource]


_GUARANTEED_SCORE, _WORST_SCORE = -997, 1000
_CRITICAL_PRIORITY = 2_000_000_000


def oom_score_adj(pod: JsonObject, container: JsonObject, node: JsonObject) -> int:
    """Return which processes the kernel kills first when memory runs out (pkg/kubelet/qos/policy.go).

    A node that cannot give a negative score gives 0.
    """
    quality = qos_class(pod)
    if quality == "Guaranteed" or int(objects.spec(pod).get("priority") or 0) >= _CRITICAL_PRIORITY:
        return _GUARANTEED_SCORE
    if quality == "BestEffort":
        return _WORST_SCORE
    status = objects.status(node)
    has = to_bytes(str((status.get("capacity") or status.get("allocatable") or {}).get("memory") or "0"))
    request = to_bytes(_amount(container, "requests", "memory")) + _share_of_rest(pod)
    score = _WORST_SCORE - (_WORST_SCORE * request // has if has else 0)
    return max(_WORST_SCORE + _GUARANTEED_SCORE, min(score, _WORST_SCORE - 1))


def _share_of_rest(pod: JsonObject) -> int:
    """Return what of the pod's own request for memory no container requests, in equal parts."""
    asked = objects.dig(pod_level(pod), "requests", "memory")
    if asked is None:
        return 0
    each = [to_bytes(_amount(one, "requests", "memory")) for one in objects.lasting_containers(pod)]
    return max(0, to_bytes(str(asked)) - sum(each)) // len(each)


def host_ports(pod: JsonObject) -> list[HostPort]:
    """Return the ports of the node that lead to the pod, as its sandbox's entry has them."""
    return [
        {
            "ip": syntax.shortest_ip(port.get("hostIP") or ""),
            "protocol": port.get("protocol") or "TCP",
            "host_port": int(port["hostPort"]),
            "port": int(port["containerPort"]),
        }
        for container in objects.lasting_containers(pod)
        for port in container.get("ports") or []
        if port.get("hostPort")
    ]


def divided(amount: Decimal, divisor: str | None) -> int:
    """Return ``amount / divisor`` rounded up, as resourceFieldRef has it; the divisor is 1 by default."""
    by = parse(divisor or "1") or Decimal(1)
    return int((amount / by).to_integral_value(rounding=ROUND_CEILING))


def host_ip(node: JsonObject) -> str:
    """Return the node's first InternalIP, or ""."""
    return next(iter(host_ips(node)), "")


def host_ips(node: JsonObject) -> list[str]:
    """Return the node's InternalIPs, the first of each family, as kubelet has them in ``hostIPs``."""
    told = objects.status(node).get("addresses") or []
    found: dict[bool, str] = {}
    for address in (str(one.get("address") or "") for one in told if one.get("type") == "InternalIP"):
        if address:
            found.setdefault(":" in address, address)
    return list(found.values())
