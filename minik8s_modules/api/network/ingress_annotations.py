"""Annotations of ingress-nginx on Ingresses that minik8s' own nginx serves: all but one change nothing here. Pure."""

from __future__ import annotations

from minik8s_modules.api import objects
from minik8s_modules.api.network.ingress_routes import REDIRECT_ANNOTATION, Cluster, decide_routes
from minik8s_modules.api.objects import JsonObject

PREFIX, _, _HEEDED = REDIRECT_ANNOTATION.rpartition("/")


def unheeded(ingress: JsonObject, classes: list[JsonObject]) -> list[str]:
    """Return what of an Ingress changes nothing, in order; [] where another controller serves it."""
    found = sorted(key for key in objects.annotations(ingress) if key.startswith(f"{PREFIX}/"))
    found = [key for key in found if key != REDIRECT_ANNOTATION]
    served = bool(found) and decide_routes(Cluster((), (ingress,), classes, {}, ())).owners
    return found if served else []


REASON = f"of ingress-nginx' annotations, minik8s' nginx acts on {_HEEDED} alone"
