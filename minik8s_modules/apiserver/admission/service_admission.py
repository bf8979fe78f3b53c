"""Addresses of others that a Service names (``externalIPs``): refused, unless the installation allows them.

Whoever may write such a Service takes traffic that is meant for somebody else (CVE-2020-8554). What a Service names
already may stay, and be taken away. Source: kubernetes ``plugin/pkg/admission/serviceexternalips``.

That of the cluster's name server is refused in any case, as link-local addresses are, of which it usually is.
"""

from __future__ import annotations

from minik8s_modules.api import objects, syntax
from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import SERVICE
from minik8s_modules.apiserver.http.write import Write


def deny_external_ips(write: Write) -> None:
    """Refuse a Service that names other addresses of others than before.

    Raises:
        Forbidden: the installation does not allow it, or one is the name server's.
    """
    had = set(objects.spec(write.old or {}).get("externalIPs") or [])
    new = [str(each) for each in objects.spec(write.new).get("externalIPs") or [] if each not in had]
    if new and not write.backend.external_ips:
        detail = f"externalIPs {', '.join(new)} are addresses of others (DenyServiceExternalIPs)"
        raise Forbidden(SERVICE, objects.name(write.new), f"{detail}; minik8s_external_ips allows them")
    if taken := [each for each in new if syntax.shortest_ip(each) == write.backend.name_server]:
        detail = f"externalIPs {', '.join(taken)} is the address of the cluster's DNS (minik8s_dns_address)"
        raise Forbidden(SERVICE, objects.name(write.new), detail)
