"""Cluster IPs of Services: who has which, decided by etcd.

Each address in use is a claim, a key below ``CLAIMS`` that is made with the address and removed with the
Service. Creating a key fails where it exists, so two servers cannot give one address to two Services. A
crash between claim and Service leaves a claim without a Service; ``release_orphans`` removes those that are
older than ``ORPHAN_S``. ``.1`` is default/kubernetes' and is given to nobody else; ``.0`` is given last,
``.255`` never.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

import orjson

from minik8s_modules.api.errors import Cause, InternalError, Invalid
from minik8s_modules.api.kinds import SERVICE
from minik8s_modules.api.objects import JsonObject, name, namespace, spec, uid
from minik8s_modules.apiserver.backend import Backend
from minik8s_modules.store.errors import KeyExists, KeyMissing, StaleWrite

CLAIMS = "/minik8s/service-addresses/"
ORPHAN_S = 60
HEADLESS = "None"
_FIELD = "spec.clusterIP"


def needs_address(service: JsonObject) -> bool:
    """Return whether a Service of this type has a cluster IP."""
    return spec(service).get("type") != "ExternalName" and spec(service).get("clusterIP") != HEADLESS


def claim(backend: Backend, service: JsonObject, *, dry_run: bool) -> str:
    """Give a new Service its address, in place, and return it; "" when it needs none.

    Raises:
        Invalid: the address it names is outside the range or another Service's.
        InternalError: the range is used up.
    """
    if not needs_address(service):
        return ""
    asked = spec(service).get("clusterIP")
    address = _claim_named(backend, service, asked, dry_run) if asked else _claim_free(backend, service, dry_run)
    service.setdefault("spec", {})["clusterIP"] = address
    service["spec"]["clusterIPs"] = [address]
    return address


def _claim_named(backend: Backend, service: JsonObject, asked: str, dry_run: bool) -> str:  # noqa: FBT001 - inner
    if ipaddress.ip_address(asked) not in backend.service_cidr:
        why = f"failed to allocate IP {asked}: the provided IP is not in the valid range {backend.service_cidr}"
        raise _invalid(service, asked, why)
    if not _claimed(backend, service, asked, dry_run):
        raise _invalid(service, asked, f"failed to allocate IP {asked}: provided IP is already allocated")
    return asked


def _invalid(service: JsonObject, asked: str, why: str) -> Invalid:
    cause = Cause("FieldValueInvalid", f'Invalid value: "{asked}": {why}', _FIELD)
    return Invalid(SERVICE, name(service), [cause])


def _claim_free(backend: Backend, service: JsonObject, dry_run: bool) -> str:  # noqa: FBT001 - inner
    taken = {entry.key.removeprefix(CLAIMS) for entry in backend.store.range(CLAIMS).entries}
    for address in candidates(backend.service_cidr):
        if address not in taken and _claimed(backend, service, address, dry_run):
            return address
    raise InternalError(
        f"failed to allocate a serviceIP: range {backend.service_cidr} is full; delete Services or use clusterIP: None"
    )


def candidates(cidr: ipaddress.IPv4Network) -> Iterator[str]:
    """Yield the addresses to give out, in order."""
    hosts = cidr.hosts()
    next(hosts)
    yield from map(str, hosts)
    yield str(cidr.network_address)


def _claimed(backend: Backend, service: JsonObject, address: str, dry_run: bool) -> bool:  # noqa: FBT001 - inner
    if dry_run:
        return backend.store.get(CLAIMS + address) is None
    holder = {"namespace": namespace(service), "name": name(service), "uid": uid(service)}
    value = {**holder, "claimed": int(backend.clock.now().timestamp())}
    try:
        backend.store.create(CLAIMS + address, orjson.dumps(value))
    except KeyExists:
        return False
    return True


def release(backend: Backend, address: str, holder: str) -> None:
    """Give ``address`` back if it is claimed for the Service with uid ``holder``."""
    entry = backend.store.get(CLAIMS + address) if address else None
    if entry is None or orjson.loads(entry.value).get("uid") != holder:
        return
    try:
        backend.store.delete(entry.key, entry.revision)
    except (KeyMissing, StaleWrite):
        return


def release_orphans(backend: Backend) -> None:
    """Remove old claims whose Service does not exist."""
    services, _ = backend.cache.list(SERVICE.prefix)
    living = {uid(item.object) for item in services}
    oldest = backend.clock.now().timestamp() - ORPHAN_S
    for entry in backend.store.range(CLAIMS).entries:
        held = orjson.loads(entry.value)
        if held.get("uid") not in living and held.get("claimed", 0) < oldest:
            release(backend, entry.key.removeprefix(CLAIMS), held.get("uid", ""))
