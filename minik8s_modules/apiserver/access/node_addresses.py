"""What a node may say of addresses: what a Node tells is taken from all Services (api/network/load_balancers.py).

So of the pool it tells at most its own address of each family, and never one that a Service has; its Pods' ranges are
those that are claimed for it, and it claims parts of the cluster's alone. An administrator may give it others.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import NamedTuple

from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import POD_CIDR, SERVICE
from minik8s_modules.api.network.load_balancers import external_ips, virtual_addresses
from minik8s_modules.api.network.surroundings import addresses_of, ranges_of
from minik8s_modules.api.nodes.pod_cidrs import claim_name
from minik8s_modules.api.objects import JsonObject, key, spec
from minik8s_modules.api.syntax import cidr_name, ip
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.http.write import Write


class _Told(NamedTuple):
    first: frozenset[str]
    """The first InternalIP of each family."""
    further: frozenset[str]


def _told(node: JsonObject) -> _Told:
    own = [each for each in addresses_of(node, "InternalIP") if not ip(each)]
    others = [each for each in addresses_of(node, "ExternalIP") if not ip(each)]
    firsts = {":" in each: each for each in reversed(own)}
    return _Told(frozenset(firsts.values()), frozenset((*own, *others)).difference(firsts.values()))


def addresses_told(write: Write, node: str) -> Iterator[str]:
    """Tell what forbids a node's new addresses."""
    before, after = _told(write.old or {}), _told(write.new)
    # what was its own address becomes no further one: it could go on from one to the next
    first, further = after.first - before.first - before.further, after.further - before.further
    if not first and not further:
        return
    balancing = write.backend.addressing.balancing
    held = _held(write.backend)
    for address in sorted(first | further):
        is_pooled = balancing.in_pool(address)
        if address in further and is_pooled:
            yield f'node "{node}" is not allowed to tell the address {address}, which is of the load balancers\' pool'
        elif address in held and (address in further or is_pooled):
            yield f'node "{node}" is not allowed to tell the address {address}, which Service {held[address]} has'


def _held(backend: Backend) -> dict[str, str]:
    """Return the addresses from outside that Services have, and which ones."""
    services = (item.peek() for item in backend.cache.list(SERVICE.prefix).items)
    return {each: str(key(one)) for one in services for each in (*external_ips(one), *virtual_addresses(one))}


def ranges_told(write: Write, node: str) -> Iterator[str]:
    """Tell what forbids a node's new ranges: each is claimed for it, or follows from one that it has."""
    before, good = ranges_of(write.old or {}), set[str]()
    for wanted in dict.fromkeys(ranges_of(write.new)):
        if wanted in before or _has_claimed(write.backend, node, wanted):
            good.add(wanted)
        elif not any(_follows(write.backend, each) == wanted for each in good):
            yield f'node "{node}" is not allowed to set the podCIDR {wanted}, which no PodCIDR claims for it'


def _follows(backend: Backend, cidr: str) -> str:
    return "" if cidr_name(claim_name(cidr)) else backend.addressing.dual_stack.range_of(cidr)


def _has_claimed(backend: Backend, node: str, cidr: str) -> bool:
    """Return whether the range is claimed for the node, as the store has it: a claim is made just before."""
    try:
        claim = backend.latest(Target(POD_CIDR, "", claim_name(cidr))).object
    except NotFound:
        return False
    return bool(spec(claim).get("nodeName") == node)


def range_claimed(write: Write, node: str) -> Iterator[str]:
    """Tell what forbids a claim: others' ranges are theirs, whatever the length of the prefix."""
    cidr = str(spec(write.obj or {}).get("cidr") or "")
    if write.operation != "create" or cidr_name(claim_name(cidr)):  # that is no range, validation refuses
        return
    wanted, addressing = ipaddress.ip_network(cidr), write.backend.addressing
    if not addressing.is_of_pods(wanted):
        yield f'node "{node}" can not claim {cidr}: nodes claim ranges of {" and ".join(addressing.pod_ranges)} alone'
    for claim in (spec(item.peek()) for item in write.backend.cache.list(POD_CIDR.prefix).items):
        if claim.get("nodeName") != node and wanted.overlaps(ipaddress.ip_network(claim["cidr"])):
            yield f'node "{node}" can not claim {cidr}: it overlaps {claim["cidr"]} of node "{claim.get("nodeName")}"'
