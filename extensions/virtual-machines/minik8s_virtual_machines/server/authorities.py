"""Whom to believe: the front proxy, as ConfigMap ``kube-system/extension-apiserver-authentication`` names it."""

from __future__ import annotations

from minik8s_modules.api.kinds import CONFIG_MAP
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.client.interface import Getter
from minik8s_virtual_machines.server.listener import Proxy, loads

NAMESPACE, NAME = "kube-system", "extension-apiserver-authentication"
_AUTHORITY, _NAMES = "requestheader-client-ca-file", "requestheader-allowed-names"


def front_proxy(api: Getter) -> Proxy:
    """Return the front proxy.

    Raises:
        ConfigurationError: the cluster names none; without one nobody could be believed.
        StatusError: the ConfigMap cannot be read.
        TemporaryError: the API server does not answer.
    """
    data = api.get(CONFIG_MAP, NAME, NAMESPACE).get("data") or {}
    authority = data.get(_AUTHORITY) or ""
    if "BEGIN CERTIFICATE" not in authority:
        raise ConfigurationError(
            f"ConfigMap {NAMESPACE}/{NAME} has no {_AUTHORITY}: without the front proxy's authority nobody who asks "
            "for subresources could be believed"
        )
    return Proxy(authority, loads(data.get(_NAMES) or "[]"))


def names(proxy: Proxy) -> str:
    """Return what to log of a front proxy."""
    return ", ".join(sorted(proxy.names)) or "any name"
