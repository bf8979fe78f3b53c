"""Pods with a sidecar: which ask for one, the init container that it is, and Pods that cannot have it. Pure.

``minik8s inject`` and the API server (apiserver/admission/sidecar_injection.py) make the same of a Pod, and a plan
predicts it for Pods that controllers would make.

The sidecar is an init container that is restarted always (KEP-753): it runs before the application and ends after it.
The rules that lead the Pod's connections to it are its node's to write (reconcile/pods/sidecars.py), so nothing in the
Pod needs a capability.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from minik8s_modules.api import cause, objects
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, all_containers
from minik8s_modules.api.pods.mutual_tls import MARK, MODES, MTLS, asked_mode
from minik8s_modules.api.pods.pod_templates import TEMPLATES, template_of
from minik8s_modules.api.pods.sidecar_images import has_sidecar

INJECT = "minik8s.io/inject"
"""Label of a Pod, or of its Namespace: whether it gets a sidecar. The Pod's own goes before."""
ENABLED, DISABLED = "enabled", "disabled"
IMAGE = "minik8s/envoy:1"
USER = 1337
"""User and group whose connections the rules let through (module_utils/minik8s/network/interception.py)."""
SIDECAR: JsonObject = {
    "name": "envoy",
    "image": IMAGE,
    "restartPolicy": "Always",
    "securityContext": {
        "runAsUser": USER,
        "runAsGroup": USER,
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    },
    "startupProbe": {
        "exec": {"command": ["/bin/wget", "-q", "-O", "/dev/null", "http://127.0.0.1:15000/ready"]},
        "periodSeconds": 1,
        "failureThreshold": 600,
    },
}


class Injection(NamedTuple):
    """What becomes of a Pod that asks for a sidecar: ``spec`` with one, or the ``obstacle``; neither where none is due.

    ``own`` says that the Pod's own label asks for it, not its Namespace's.
    """

    spec: JsonObject | None = None
    obstacle: str = ""
    own: bool = False


def injection(pod: JsonObject, space: Mapping[str, str], obstacle: str = "") -> Injection:
    """Return what becomes of a new Pod, by its labels and those of its Namespace, ``space``.

    ``obstacle`` is one that its spec does not tell.
    """
    own, spec = objects.labels(pod).get(INJECT), objects.spec(pod)
    if (own or space.get(INJECT)) != ENABLED or has_sidecar(spec):
        return Injection()
    why = sidecar_obstacle(spec) or obstacle
    mutual = bool(asked_mode(objects.labels(pod), space))
    return Injection(None if why else with_sidecar(spec, mutual=mutual), why, own == ENABLED)


def causes(kind: tuple[str, str], obj: JsonObject) -> Iterator[Cause]:
    """Yield what is wrong with the labels on a Pod, a Namespace, or a template of Pods."""
    is_space = kind == ("", "Namespace")
    allowed = {INJECT: (ENABLED, DISABLED), MTLS: MODES if is_space else (*MODES, DISABLED)}
    places = {"metadata": obj} if kind in {("", "Pod"), ("", "Namespace")} else {}
    if kind in TEMPLATES:
        places[f"{TEMPLATES[kind]}.metadata"] = template_of(kind, obj)
    for field, each in places.items():
        for label, values in allowed.items():
            value = objects.labels(each).get(label)
            if value is not None and value not in values:
                yield cause.not_supported(f"{field}.labels[{label}]", value, values)


def sidecar_obstacle(spec: JsonObject) -> str:
    """Return why a Pod of this spec can have no sidecar, "" if it can."""
    if spec.get("hostNetwork"):
        return "it has its node's network (hostNetwork), whose connections are not the Pod's to lead"
    if spec.get("automountServiceAccountToken") is False:
        return "it has no token (automountServiceAccountToken: false), by which the pilot knows the sidecar"
    whole = spec.get("securityContext") or {}
    for field, number, each in all_containers({"spec": spec}):
        if each.get("name") == SIDECAR["name"]:
            return f"{field}[{number}] is called {each['name']}, as the sidecar is"
        own = {**whole, **(each.get("securityContext") or {})}
        for word, runs_as in (("user", own.get("runAsUser")), ("group", own.get("runAsGroup"))):
            if runs_as == USER:
                return f"{field}[{number}] runs as {word} {USER}, whose connections pass the sidecar by"
    return ""


def with_sidecar(spec: JsonObject, *, mutual: bool = False) -> JsonObject:
    """Return a Pod's spec with the sidecar before its other init containers; ``spec`` stays as it is.

    ``mutual`` is whether it can speak TLS with others.
    """
    sidecar = {**copy.deepcopy(SIDECAR), **({"env": [dict(MARK)]} if mutual else {})}
    return {**spec, "initContainers": [sidecar, *(spec.get("initContainers") or [])]}
