"""Pods with a sidecar: the two init containers that a mesh asks for, and Pods that cannot have them. Pure.

First the rules that lead the Pod's connections to the sidecar, then the sidecar (KEP-753: an init container that is
restarted always runs before the application and ends after it). In the other order, the rules cut the stream that the
sidecar has to its pilot by then.
"""

from __future__ import annotations

import copy

from minik8s_modules.api.objects import JsonObject, all_containers

IMAGE = "minik8s/envoy:1"
USER = 1337
"""User and group whose connections the rules let through (roles/envoy/files/intercept)."""
RULES: JsonObject = {
    "name": "intercept",
    "image": IMAGE,
    "command": ["/bin/intercept"],
    "securityContext": {"runAsUser": 0, "runAsNonRoot": False, "capabilities": {"add": ["NET_ADMIN"]}},
}
SIDECAR: JsonObject = {
    "name": "envoy",
    "image": IMAGE,
    "restartPolicy": "Always",
    "securityContext": {"runAsUser": USER},
    "startupProbe": {
        "exec": {"command": ["/bin/wget", "-q", "-O", "/dev/null", "http://127.0.0.1:15000/ready"]},
        "periodSeconds": 1,
        "failureThreshold": 600,
    },
}


def has_sidecar(spec: JsonObject) -> bool:
    """Return whether a Pod's spec has one, ours or the like."""
    return any(each.get("image") == IMAGE for _field, _number, each in all_containers({"spec": spec}))


def sidecar_obstacle(spec: JsonObject) -> str:
    """Return why a Pod of this spec can have no sidecar, "" if it can."""
    if spec.get("hostNetwork"):
        return "it has its node's network (hostNetwork), whose rules are not the Pod's to write"
    if spec.get("automountServiceAccountToken") is False:
        return "it has no token (automountServiceAccountToken: false), by which the pilot knows the sidecar"
    whole = spec.get("securityContext") or {}
    for field, number, each in all_containers({"spec": spec}):
        if each.get("name") in {RULES["name"], SIDECAR["name"]}:
            return f"{field}[{number}] is called {each['name']}, as a container of the sidecar is"
        own = {**whole, **(each.get("securityContext") or {})}
        for word, runs_as in (("user", own.get("runAsUser")), ("group", own.get("runAsGroup"))):
            if runs_as == USER:
                return f"{field}[{number}] runs as {word} {USER}, whose connections pass the sidecar by"
    return ""


def with_sidecar(spec: JsonObject) -> JsonObject:
    """Return a Pod's spec with the two containers before its other init containers; ``spec`` stays as it is."""
    added = copy.deepcopy([RULES, SIDECAR])
    return {**spec, "initContainers": [*added, *(spec.get("initContainers") or [])]}
