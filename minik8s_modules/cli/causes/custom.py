"""Why a kind is not served, and what an object of a custom kind says itself: nothing here knows what it is for."""

from __future__ import annotations

from collections.abc import Iterator

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.causes.faults import Fault, kubectl, resource
from minik8s_modules.cli.causes.surroundings import Around
from minik8s_modules.cli.causes.webhooks import webhook_faults

_TELLING = ("Ready", "Available", "Synced", "Reconciled")
"""Conditions by which operators tell whether an object is as it should be."""


def definition_faults(definition: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield why the kinds of a CustomResourceDefinition are not served, or not in all versions."""
    name = objects.name(definition)
    see = kubectl("", "describe", "crd", name)
    accepted, established = (objects.condition(definition, kind) or {} for kind in ("NamesAccepted", "Established"))
    if accepted.get("status") == "False":
        told = f"its names are not accepted: {accepted.get('message', '')}"
        yield Fault(told, kubectl("", "get", "crd"))
    elif established.get("status") != "True":
        yield Fault("not every API server serves it yet", see)
    yield from webhook_faults(definition, around)


def api_service_faults(api_service: JsonObject, _around: Around) -> Iterator[Fault]:
    """Yield why an extension's group is not answered."""
    found = objects.condition(api_service, "Available") or {}
    service = objects.spec(api_service).get("service")
    if not service or found.get("status") == "True":
        return
    space, name, reason = service.get("namespace", ""), service.get("name", ""), found.get("reason", "")
    told = f"{reason}: {found.get('message', '')}" if reason else "nobody has looked at it yet"
    look = {
        "ServiceNotFound": kubectl(space, "get", "services"),
        "ServicePortError": kubectl(space, "get", f"service/{name}"),
        "EndpointsNotFound": f"minik8s why service/{name} -n {space}",
        "MissingEndpoints": f"minik8s why service/{name} -n {space}",
    }
    yield Fault(
        f"requests for its group get 503: {told}", look.get(reason, kubectl("", "describe", resource(api_service)))
    )


def custom_faults(obj: JsonObject, _around: Around) -> Iterator[Fault]:
    """Yield the conditions in which an object of a custom kind says that something is wrong."""
    for kind in _TELLING:
        condition = objects.condition(obj, kind) or {}
        if condition.get("status") == "False":
            words = ": ".join(filter(None, (condition.get("reason", ""), condition.get("message", ""))))
            told = f"its condition {kind} is False{f': {words}' if words else ''}"
            yield Fault(told, kubectl(objects.namespace(obj), "describe", resource(obj)))
