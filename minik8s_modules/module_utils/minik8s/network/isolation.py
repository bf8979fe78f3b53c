"""Whether the rules that isolate a pod were made: without them its sandbox is not started.

The section ``policies`` comes before that of sandboxes and keeps, beside its entries, what it could not realize. So a
pod that NetworkPolicies isolate starts with its rules or not at all, after a boot as well; ``required: false`` of the
filter turns that around. One that runs already goes on, but gets no IPv6 address before it has rules for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.faults import KeyFault
from ..core.keyed_documents import Ledger

SECTION, FILTER, FAULTS = "policies", "filter", "faults"
NOT_ENFORCED = "PolicyNotEnforced"


def check_isolated(state_dir: str, key: str, entry: Mapping[str, Any]) -> None:
    """Refuse the sandbox of a pod that policies isolate and whose rules are not there.

    Raises:
        KeyFault: PolicyNotEnforced.
    """
    own_address = entry["ip"] or (entry.get("ipv6") or {}).get("ip")
    if entry["host_network"] or not own_address:
        return
    with Ledger(state_dir, SECTION, readable=True) as ledger:
        config = ledger.entries([FILTER]).get(FILTER)
        if config is None or not config.get("required", True):
            return
        found = ledger.at_addresses([own_address]).items()
        own = {name: one for name, one in found if one.get("ingress") is not None or one.get("egress") is not None}
        faults: Mapping[str, str] = ledger.extra().get(FAULTS) or {} if own else {}
    why = next((faults[name] for name in (FILTER, *own) if name in faults), "")
    if own and not why and entry.get("ipv6") and not config.get("ipv6"):
        why = "the filter is declared for IPv4 alone"
    if why:
        raise KeyFault(NOT_ENFORCED, f"NetworkPolicies isolate the pod {key}, and their rules are not there: {why}")
