"""What all reconcilers of a cluster have in common, as ConfigMap ``kube-system/minik8s-nodes``.

The control plane's reconciler publishes it whenever it begins to lead; a node with a reconciler of its own reads it
when it joins and later (``startup.py``). It holds settings of the cluster, never of a machine, and no secrets.
"""

from __future__ import annotations

import json

from minik8s_modules.api.errors import AlreadyExists, NotFound
from minik8s_modules.api.kinds import CONFIG_MAP
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.client.interface import Api

NAMESPACE, NAME, KEY = "kube-system", "minik8s-nodes", "reconciler.json"
TEXTS = (
    "cluster_cidr",
    "cluster_cidr_ipv6",
    "service_cidr",
    "service_cidr_ipv6",
    "proxy_mode",
    "pause_image",
    "bridge",
    "api_address",
    "drift",
)
NUMBERS = ("pod_pids_limit", "pod_stop_delay_s", "kubelet_port")
PARTS = ("network", "dns", "ingress", "housekeeping", "load_balancer")


def shared_of(configuration: Configuration) -> JsonObject:
    """Return what of a reconciler's configuration is the cluster's; static pods are a machine's own."""
    found: JsonObject = {key: configuration.text(key) for key in TEXTS if configuration.has(key)}
    found |= {key: configuration.number(key) for key in NUMBERS if configuration.has(key)}
    found |= {key: configuration.mapping(key) for key in PARTS if configuration.has(key)}
    if configuration.has("cluster_dns"):
        found["cluster_dns"] = configuration.texts("cluster_dns")
    if "housekeeping" in found:
        found["housekeeping"] = {k: v for k, v in found["housekeeping"].items() if not k.startswith("manifests")}
    return found


def publish(api: Api, shared: JsonObject) -> None:
    """Store ``shared`` unless it is there. Raises as the API does."""
    data = {KEY: json.dumps(shared, sort_keys=True)}
    metadata = {"name": NAME, "namespace": NAMESPACE}
    try:
        found = api.get(CONFIG_MAP, NAME, NAMESPACE)
    except NotFound:
        try:
            api.create(CONFIG_MAP, {"metadata": metadata, "data": data})
        except AlreadyExists:
            publish(api, shared)
        return
    if found.get("data") != data:
        api.update(CONFIG_MAP, {**found, "data": data})


def read(api: Api) -> JsonObject:
    """Return what is published. Raises as the API does, NotFound before the control plane has published it.

    Raises:
        ConfigurationError: it cannot be read.
    """
    found = api.get(CONFIG_MAP, NAME, NAMESPACE)
    try:
        shared = json.loads((found.get("data") or {})[KEY])
    except (KeyError, ValueError) as error:
        raise ConfigurationError(f"ConfigMap {NAMESPACE}/{NAME} holds no settings at {KEY}: {error}") from error
    known = {*TEXTS, *NUMBERS, *PARTS, "cluster_dns"}
    return {str(key): value for key, value in shared.items() if key in known} if isinstance(shared, dict) else {}
