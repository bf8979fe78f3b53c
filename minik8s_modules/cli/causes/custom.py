"""Why a kind is not served, or its webhooks hold up writes, and what an object of a custom kind says itself.

Nothing here knows what such an object is for.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import API_SERVICE, SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.causes.faults import Fault, kubectl, moment, resource, why
from minik8s_modules.cli.causes.pods import pod_cause
from minik8s_modules.cli.causes.service_endpoints import behind, leads_nowhere
from minik8s_modules.cli.causes.surroundings import Around

_HELD_UP = frozenset({"FailedCallingWebhook", "SlowWebhook"})
"""Reasons of Events about configurations of webhooks, by which API servers tell of them."""
_LATELY = timedelta(minutes=10)
_TELLING = ("Ready", "Available", "Synced", "Reconciled")
"""Conditions by which operators tell whether an object is as it should be."""
_WITHOUT_ENDPOINTS = ("EndpointsNotFound", "MissingEndpoints")
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"  # OpenSSL's reason, in what the API server tells of the connection


def webhook_faults(configuration: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield the webhooks that could not be asked, or were slow, the last first."""
    for event in reversed(around.events(configuration)):
        at = moment(event.get("lastTimestamp"))
        if event.get("reason") in _HELD_UP and at is not None and around.now - at < _LATELY:
            times = int(event.get("count") or 1)
            text = " ".join(str(event.get("message")).split())
            yield Fault(
                f"{text} ({times} times)" if times > 1 else text, kubectl("", "describe", resource(configuration))
            )


def definition_faults(definition: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield why the kinds of a CustomResourceDefinition are not served, or not in all versions."""
    name = objects.name(definition)
    see = kubectl("", "describe", "crd", name)
    accepted, established = (objects.condition(definition, kind) or {} for kind in ("NamesAccepted", "Established"))
    if accepted.get("status") == "False":
        text = f"its names are not accepted: {accepted.get('message', '')}"
        yield Fault(text, kubectl("", "get", "crd"))
    elif established.get("status") != "True":
        yield Fault("not every API server serves it yet", see)
    yield from webhook_faults(definition, around)


def api_service_faults(api_service: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield why an extension's group is not answered."""
    found = objects.condition(api_service, "Available") or {}
    service = objects.spec(api_service).get("service")
    if not service or found.get("status") == "True":
        return
    space, name, reason = service.get("namespace", ""), service.get("name", ""), found.get("reason", "")
    text = f"{reason}: {found.get('message', '')}" if reason else "it has not been processed yet"
    if reason in _WITHOUT_ENDPOINTS and (cause := _leads_nowhere(around, space, name)):
        text = f"{text}: {cause}"
    if reason == "FailedDiscoveryCheck" and _UNTRUSTED in text:
        text = f"{text}; spec.caBundle must hold the authority that signed a certificate for {name}.{space}.svc"
    yield Fault(f"requests for its group get 503: {text}", _look(api_service, reason, text))


def _leads_nowhere(around: Around, namespace: str, name: str) -> str:
    service = around.get(SERVICE, name, namespace)
    return leads_nowhere(service, behind(around, service), lambda pod: pod_cause(pod, around)) if service else ""


def _look(api_service: JsonObject, reason: str, message: str) -> str:
    """Return the command to run next."""
    service = objects.spec(api_service)["service"]
    space, name = service.get("namespace", ""), service.get("name", "")
    if reason == "FailedDiscoveryCheck" and _UNTRUSTED not in message:
        return f"minik8s trace {resource(api_service)}"
    look = {
        "ServiceNotFound": kubectl(space, "get", "services"),
        "ServicePortError": kubectl(space, "get", f"service/{name}"),
        "FailedDiscoveryCheck": kubectl("", "edit", resource(api_service)),
        **dict.fromkeys(_WITHOUT_ENDPOINTS, f"minik8s why service/{name} -n {space}"),
    }
    return look.get(reason, kubectl("", "describe", resource(api_service)))


def extension_of(obj: JsonObject, around: Around) -> JsonObject | None:
    """Return the APIService of the extension that keeps an object, None where no extension does, or nobody may say."""
    group, _, version = str(obj.get("apiVersion") or "").rpartition("/")
    found = around.aside().get(API_SERVICE, f"{version}.{group}")
    return found if found is not None and objects.spec(found).get("service") else None


def unavailable(around: Around) -> list[tuple[JsonObject, Fault]]:
    """Return the APIServices whose extensions are not available, each with why."""
    found = around.aside().all(API_SERVICE)
    return [(each, fault) for each in found for fault in api_service_faults(each, around.aside())]


def extended_faults(obj: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield what an object of a kind that is not built in says is wrong, and that its extension is away."""
    yield from custom_faults(obj, around)
    extension = extension_of(obj, around)
    if extension is None:
        return
    for fault in api_service_faults(extension, around.aside()):
        yield Fault(f"{_kept_by(obj, extension)}: {fault.cause}", why(API_SERVICE, objects.name(extension)))


def not_checked(obj: JsonObject, around: Around) -> str:
    """Return what to say of an object that is of a kind for which there is no check."""
    extension = extension_of(obj, around)
    if well := [kind for kind in _TELLING if (objects.condition(obj, kind) or {}).get("status") == "True"]:
        return f"as it should be, as far as its condition {well[0]} tells: nothing else checks a {obj.get('kind')}"
    unknown = f"not known: nothing checks a {obj.get('kind')}"
    if extension is None:
        return unknown
    found = objects.condition(extension, "Available") or {}
    return f"{unknown}: {_kept_by(obj, extension)}, which is available ({found.get('message', '')})"


def _kept_by(obj: JsonObject, extension: JsonObject) -> str:
    service = objects.spec(extension)["service"]
    through = f"Service {service.get('namespace')}/{service.get('name')}"
    return f"APIService {objects.name(extension)} answers {obj.get('apiVersion')} through {through}"


def custom_faults(obj: JsonObject, _around: Around) -> Iterator[Fault]:
    """Yield the conditions in which an object of a custom kind says that something is wrong."""
    for kind in _TELLING:
        condition = objects.condition(obj, kind) or {}
        if condition.get("status") == "False":
            words = ": ".join(filter(None, (condition.get("reason", ""), condition.get("message", ""))))
            text = f"its condition {kind} is False{f': {words}' if words else ''}"
            yield Fault(text, kubectl(objects.namespace(obj), "describe", resource(obj)))
