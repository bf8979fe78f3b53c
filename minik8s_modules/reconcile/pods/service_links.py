"""The environment variables by which a container finds the Services of its namespace. Pure.

Source: kubernetes ``pkg/kubelet/envvars/envvars.go``, ``pkg/kubelet/kubelet_pods.go: getServiceEnvVarMap``. The API
server's own Service is told by ``environment.service_variables``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.pods.service_links import is_link

_REFERENCE = re.compile(r"\$\(([^)]*)\)")
_MASTER = ("default", "kubernetes")
Links = Callable[[str, Mapping[str, JsonObject | None]], Mapping[str, str]]
"""Gives the variables of a namespace, as they would be if Services (by namespace/name; None: gone) were as given."""


def no_links(_namespace: str, _changes: Mapping[str, JsonObject | None]) -> Mapping[str, str]:
    """Return none."""
    return {}


def link_variables(services: Iterable[JsonObject]) -> dict[str, str]:
    """Return the variables of all Services that have an address, ordered by Service."""
    found: dict[str, str] = {}
    for service in sorted(services, key=objects.name):
        address = objects.spec(service).get("clusterIP") or ""
        if address in ("", "None") or objects.key(service) == _MASTER:
            continue
        found.update(_of_service(_variable(objects.name(service)), address, objects.spec(service).get("ports") or []))
    return found


def takes_in_links(container: JsonObject) -> bool:
    """Return whether the container's variables, command or mounts take in a Service by ``$(NAME)``."""
    variables = container.get("env") or []
    texts = [str(one.get("value") or "") for one in variables]
    texts += [*(container.get("command") or []), *(container.get("args") or [])]
    texts += [str(one.get("subPathExpr") or "") for one in container.get("volumeMounts") or []]
    own = {one["name"] for one in variables}
    names = {name for text in texts for name in _REFERENCE.findall(text)}
    return any(is_link(name) for name in names - own)


def _of_service(prefix: str, address: str, ports: list[JsonObject]) -> Iterator[tuple[str, str]]:
    yield f"{prefix}_SERVICE_HOST", address
    for index, port in enumerate(ports):
        number, protocol = str(port["port"]), str(port.get("protocol") or "TCP")
        target = f"{protocol.lower()}://{f'[{address}]' if ':' in address else address}:{number}"
        if index == 0:
            yield f"{prefix}_SERVICE_PORT", number
            yield f"{prefix}_PORT", target
        if port.get("name"):
            yield f"{prefix}_SERVICE_PORT_{_variable(port['name'])}", number
        own = f"{prefix}_PORT_{number}_{protocol.upper()}"
        yield own, target
        yield f"{own}_PROTO", protocol.lower()
        yield f"{own}_PORT", number
        yield f"{own}_ADDR", address


def _variable(name: str) -> str:
    return name.upper().replace("-", "_")
