"""Addresses of others that a Service names (``externalIPs``): refused, unless the installation allows them.

Whoever may write such a Service takes traffic that is meant for somebody else (CVE-2020-8554). What a Service names
already may stay, and be taken away. Source: kubernetes ``plugin/pkg/admission/serviceexternalips``.
"""

from __future__ import annotations

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import SERVICE
from minik8s_modules.apiserver.http.write import Write


def deny_external_ips(write: Write) -> None:
    """Refuse a Service that names other addresses of others than before.

    Raises:
        Forbidden: the installation does not allow it.
    """
    if write.backend.external_ips:
        return
    had = set(objects.spec(write.old or {}).get("externalIPs") or [])
    if new := [each for each in objects.spec(write.new).get("externalIPs") or [] if each not in had]:
        detail = f"externalIPs {', '.join(map(str, new))} are addresses of others (DenyServiceExternalIPs)"
        raise Forbidden(SERVICE, objects.name(write.new), f"{detail}; minik8s_external_ips allows them")
