"""The files of a node's three daemons, from the cluster's settings, the machine's own, and the node's file. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.places import place
from minik8s_modules.reconcile.standalone.shared_settings import PARTS, TEXTS
from minik8s_modules.reconcile.values.node_file import NodeFile

STREAM_PORT, PLAN_PORT = 6446, 6445
_PORTS = frozenset({"stream_port", "plan_port"})
OWN_KEYS = frozenset({*TEXTS, *PARTS, "cluster_dns", *_PORTS})
MANIFESTS_EVERY_S = 20
"""kubelet's fileCheckFrequency: looking costs one small item on this machine alone."""


class Machine(NamedTuple):
    """This machine and the node it is."""

    node: str
    address: str
    """Where API servers reach its gateway."""
    state_dir: str
    run_dir: str
    docker_socket: str
    folder: str
    """Where files stand (files.py); sockets stand in ``run_dir/agent``."""
    project_dir: str
    servers: tuple[str, ...]

    @property
    def streams(self) -> str:
        """Return the folder of the process that parses streams (stream_user.py)."""
        return f"{self.run_dir}/agent-streams"


def shard_of(node: str) -> str:
    """Return the shard of a node's own reconciler; its Lease is the node's (apiserver/access/node_access.py)."""
    return f"node.{node}"


def check_own(own: Mapping[str, Any], where: str) -> None:
    """Raise ConfigurationError when ``own`` holds what no daemon here looks at."""
    unknown = sorted(set(own) - OWN_KEYS)
    if unknown:
        raise ConfigurationError(f"{where}: {unknown[0]} would do nothing; known are {', '.join(sorted(OWN_KEYS))}")
    for key in sorted(_PORTS):
        Configuration(dict(own), where).number(key, 0)


def inventory(machine: Machine) -> JsonObject:
    """Return the inventory with this one host."""
    variables = {
        "ansible_connection": "warm_local",
        "minik8s_shard": shard_of(machine.node),
        "minik8s_state_dir": machine.state_dir,
        "minik8s_run_dir": machine.run_dir,
        "minik8s_docker_socket": machine.docker_socket,
    }
    return {"all": {"hosts": {machine.node: variables}}}


def gateway(machine: Machine, own: Mapping[str, Any]) -> JsonObject:
    """Return gateway.yml."""
    return {
        **_common(machine),
        "socket": f"{machine.run_dir}/agent/gateway.sock",
        "run_dir": machine.run_dir,
        "streams": {
            "socket": f"{machine.streams}/gateway.sock",
            "advertise": _stream_place(machine, own),
            "server_name": serving_name(machine.node),
            "client_ca": f"{machine.folder}/ca.crt",
        },
    }


def streams(machine: Machine, own: Mapping[str, Any]) -> JsonObject:
    """Return streams.yml."""
    serving = f"{machine.streams}/serving.pem"
    return {
        "listen": _stream_place(machine, own),
        "cert": serving,
        "key": serving,
        "client_ca": f"{machine.streams}/ca.crt",
        "gateway_socket": f"{machine.streams}/gateway.sock",
    }


def _stream_place(machine: Machine, own: Mapping[str, Any]) -> str:
    return place(machine.address, own.get("stream_port", STREAM_PORT))


def _serving(machine: Machine) -> JsonObject:
    """Return with what the reconciler serves the API servers, and nobody else."""
    own = f"{machine.folder}/serving.pem"
    return {"cert": own, "key": own, "client_ca": f"{machine.folder}/ca.crt"}


def serving_name(node: str) -> str:
    """Return the name that a node's serving certificate is for (controllers/access/signing_requests.py)."""
    return f"{node}.node.minik8s.internal"


def reconciler(machine: Machine, shared: Mapping[str, Any], own: Mapping[str, Any], file: NodeFile) -> JsonObject:
    """Return reconciler.yml; what ``own`` says wins over what the cluster does, the node's file over both."""
    chosen = {**shared, **{key: value for key, value in own.items() if key not in _PORTS}}
    if file.manifests:
        every = {"manifests_every_s": MANIFESTS_EVERY_S}
        chosen["housekeeping"] = {**every, **(chosen.get("housekeeping") or {}), "manifests": file.manifests}
    return {
        **_common(machine),
        "gateway_socket": f"{machine.run_dir}/agent/gateway.sock",
        "private_data_dir": f"{machine.run_dir}/agent/runner",
        "project_dir": machine.project_dir,
        "hmac_key_file": f"{machine.folder}/hmac.key",
        "plan": {"listen": place(machine.address, own.get("plan_port", PLAN_PORT)), **_serving(machine)},
        **chosen,
        "nodes": {machine.node: file.declared.as_json()},
    }


def _common(machine: Machine) -> JsonObject:
    return {
        "kubeconfig": f"{machine.folder}/kubeconfig",
        "inventory": f"{machine.folder}/hosts.yml",
        "shard": shard_of(machine.node),
        **({"servers": list(machine.servers)} if len(machine.servers) > 1 else {}),
    }
