"""The IP families of a Service: what it asks for, as far as the cluster has them.

Pods may have IPv6 addresses, Services have none: so a Service without a cluster IP, whose name stands for its Pods'
addresses, can be of both families, and every other is of IPv4. Source: kubernetes ``pkg/registry/core/service/storage``
(``defaultOnWriteService``, ``initIPFamilyFields``).
"""

from __future__ import annotations

from minik8s_modules.api.errors import Cause, Invalid
from minik8s_modules.api.kinds import SERVICE
from minik8s_modules.api.objects import JsonObject, name, spec

IPV4, IPV6 = "IPv4", "IPv6"
HEADLESS = "None"
_FIELD = "spec.ipFamilyPolicy"


def settle_families(service: JsonObject, *, dual_stack: bool) -> None:
    """Write into the Service, in place, which families it has; ``dual_stack``: Pods have addresses of both.

    Raises:
        Invalid: it requires both, and cannot have them.
    """
    declared = spec(service)
    if declared.get("type") == "ExternalName":
        return
    policy = declared.get("ipFamilyPolicy")
    possible = dual_stack and declared.get("clusterIP") == HEADLESS
    if policy == "RequireDualStack" and not possible:
        raise Invalid(SERVICE, name(service), [Cause("FieldValueInvalid", _why_not(dual_stack=dual_stack), _FIELD)])
    both = possible and policy in {"PreferDualStack", "RequireDualStack"}
    declared["ipFamilies"] = [IPV4, IPV6] if both else [IPV4]


def _why_not(*, dual_stack: bool) -> str:
    start = 'Invalid value: "RequireDualStack": '
    if not dual_stack:
        return start + "this cluster is not configured for dual-stack services"
    return start + "cluster IPs are of IPv4 in this cluster; a Service with clusterIP None can have both families"
