"""A container's environment: env, envFrom, fieldRef, resourceFieldRef and ``$(VAR)``, as kubelet makes it.

Values from secrets never stand in a document. They are named with an HMAC; a variable whose text takes a
secret in by ``$(VAR)`` becomes a value of a secret of the pod's own (``<namespace>/<uid>_<container>``;
``_`` is in no real name). Source: pkg/kubelet/kubelet_pods.go, third_party/forked/golang/expansion.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods import huge_pages
from minik8s_modules.api.quantities import parse
from minik8s_modules.base.places import parse_place, place
from minik8s_modules.reconcile.values import resources
from minik8s_modules.reconcile.values.sealing import value_hmac, values_of
from minik8s_modules.reconcile.values.values import PodInputs

_TOKEN = re.compile(r"\$(?:\$|\(([^)]*)\))")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


class ConfigurationMissing(Exception):
    """A container cannot be configured; the text is the message of CreateContainerConfigError."""


class SecretValue(NamedTuple):
    """A variable's value that must not be shown; ``reference`` is empty when it was put together here."""

    value: bytes
    reference: str
    key: str


Value = str | SecretValue


class Environment(NamedTuple):
    """Variables in their order, as entries carry them, and what has to travel for them."""

    plain: list[list[str]]
    secret: list[list[str]]
    references: frozenset[str]
    made: Mapping[str, bytes]
    """Values put together from secrets, by variable."""
    variables: Mapping[str, Value]
    """All by name, the links too."""
    links: list[list[str]]
    """Those of Services, as far as nothing of the pod bears their names."""


def own_secret(pod: JsonObject, container: str) -> str:
    """Return the reference under which a container's put-together values travel."""
    return f"{objects.namespace(pod)}/{objects.uid(pod)}_{container}"


def environment(pod: JsonObject, container: JsonObject, inputs: PodInputs) -> Environment:
    """Return the container's environment.

    Raises:
        ConfigurationMissing: a ConfigMap, Secret or key that is not optional does not exist.
    """
    links: dict[str, Value] = {}
    if objects.spec(pod).get("enableServiceLinks") is not False:
        links.update(inputs.links)
    variables: dict[str, Value] = {**service_variables(inputs.settings.api_address)}
    known = ChainMap(variables, links)
    for source in container.get("envFrom") or []:
        variables.update(_from_source(pod, source, inputs))
    for variable in container.get("env") or []:
        value = _value(pod, container, variable, known, inputs)
        if value is not None:
            variables[variable["name"]] = value
    made = _as_environment(own_secret(pod, container["name"]), variables, inputs.settings.hmac_key)
    rows = [[name, str(value)] for name, value in links.items() if name not in variables]
    return made._replace(variables=known, links=rows)


def service_variables(address: str) -> dict[str, str]:
    """Return the variables by which programs find the API server at ``address`` (HOST:PORT), none where it is "".

    Names: pkg/kubelet/envvars/envvars.go, for the Service ``kubernetes``, which every pod has.
    """
    host, port = parse_place(address)
    if not host:
        return {}
    target = f"tcp://{place(host, port)}"
    return {
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
        "KUBERNETES_SERVICE_PORT_HTTPS": port,
        "KUBERNETES_PORT": target,
        f"KUBERNETES_PORT_{port}_TCP": target,
        f"KUBERNETES_PORT_{port}_TCP_PROTO": "tcp",
        f"KUBERNETES_PORT_{port}_TCP_PORT": port,
        f"KUBERNETES_PORT_{port}_TCP_ADDR": host,
    }


def _as_environment(own: str, variables: dict[str, Value], hmac_key: bytes) -> Environment:
    plain, secret, made, references = [], [], {}, set()
    for name, value in variables.items():
        if isinstance(value, str):
            plain.append([name, value])
            continue
        reference, key = (value.reference, value.key) if value.reference else (own, name)
        secret.append([name, reference, key, value_hmac(hmac_key, reference, key, value.value)])
        if value.reference:
            references.add(reference)
        else:
            made[name] = value.value
    return Environment(plain, secret, frozenset(references), made, variables, [])


def expand(text: str, variables: Mapping[str, Value]) -> Value:
    """Return ``text`` with ``$(NAME)`` replaced; unknown names stay, ``$$`` reads ``$``."""
    secret = False

    def replace(match: re.Match[str]) -> str:
        nonlocal secret
        name = match[1]
        if name is None:
            return "$"
        value = variables.get(name)
        if isinstance(value, SecretValue):
            secret = True
            return value.value.decode("utf-8", "surrogateescape")
        return match[0] if value is None else value

    expanded = _TOKEN.sub(replace, text)
    return SecretValue(expanded.encode("utf-8", "surrogateescape"), "", "") if secret else expanded


def expand_arguments(field: str, texts: list[str] | None, variables: Mapping[str, Value]) -> list[str] | None:
    """Return ``command`` or ``args`` expanded, None when not given.

    Raises:
        ConfigurationMissing: an argument takes a secret in; arguments stand in documents and process lists.
    """
    if not texts:
        return None
    expanded = []
    for text in texts:
        value = expand(text, variables)
        if isinstance(value, SecretValue):
            raise ConfigurationMissing(
                f"{field} uses the value of a Secret by $(...); read it from the environment there"
            )
        expanded.append(value)
    return expanded


def _from_source(pod: JsonObject, source: JsonObject, inputs: PodInputs) -> dict[str, Value]:
    prefix = source.get("prefix") or ""
    if (wanted := source.get("configMapRef")) is not None:
        found = lookup(pod, wanted, inputs.configmaps, "configmap")
        values: Mapping[str, Value] = (found or {}).get("data") or {}
    elif (wanted := source.get("secretRef")) is not None:
        found = lookup(pod, wanted, inputs.secrets, "secret")
        reference = f"{objects.namespace(pod)}/{wanted['name']}"
        values = {key: SecretValue(value, reference, key) for key, value in values_of(found or {}).items()}
    else:
        values = {}
    return {prefix + key: values[key] for key in sorted(values) if _is_name(prefix + key)}


def _is_name(name: str) -> bool:
    return bool(name) and "=" not in name and name.isprintable() and name.isascii()


def lookup(pod: JsonObject, wanted: JsonObject, known: Mapping[str, JsonObject], kind: str) -> JsonObject | None:
    """Return the named object of the pod's namespace, None when it is optional and missing.

    Raises:
        ConfigurationMissing: it does not exist and is not optional.
    """
    name = wanted.get("name") or ""
    found = known.get(f"{objects.namespace(pod)}/{name}")
    if found is None and not wanted.get("optional"):
        raise ConfigurationMissing(f'{kind} "{name}" not found')
    return found


def _value(
    pod: JsonObject,
    container: JsonObject,
    variable: JsonObject,
    variables: Mapping[str, Value],
    inputs: PodInputs,
) -> Value | None:
    source = variable.get("valueFrom")
    if variable.get("value") or not source:
        return expand(variable.get("value") or "", variables)
    for kind, read in _SOURCES.items():
        if source.get(kind) is not None:
            return read(pod, container, source[kind], inputs)
    raise ConfigurationMissing(f"env {variable['name']}: valueFrom {', '.join(source)} is not supported")


def _config_map_key(pod: JsonObject, _container: JsonObject, wanted: JsonObject, inputs: PodInputs) -> Value | None:
    found = lookup(pod, wanted, inputs.configmaps, "configmap")
    value = ((found or {}).get("data") or {}).get(wanted["key"])
    if value is None and not wanted.get("optional"):
        raise ConfigurationMissing(f"couldn't find key {wanted['key']} in ConfigMap {_full(pod, wanted)}")
    return value if value is None else str(value)


def _secret_key(pod: JsonObject, _container: JsonObject, wanted: JsonObject, inputs: PodInputs) -> Value | None:
    found = lookup(pod, wanted, inputs.secrets, "secret")
    value = values_of(found or {}).get(wanted["key"])
    if value is None and not wanted.get("optional"):
        raise ConfigurationMissing(f"couldn't find key {wanted['key']} in Secret {_full(pod, wanted)}")
    return None if value is None else SecretValue(value, _full(pod, wanted), wanted["key"])


def _full(pod: JsonObject, wanted: JsonObject) -> str:
    return f"{objects.namespace(pod)}/{wanted['name']}"


def _field(pod: JsonObject, _container: JsonObject, wanted: JsonObject, inputs: PodInputs) -> Value | None:
    return field_value(pod, wanted.get("fieldPath") or "", inputs)


def field_value(pod: JsonObject, path: str, inputs: PodInputs) -> str:
    """Return the pod's field at ``path`` as fieldRef names it.

    Raises:
        ConfigurationMissing: kubelet knows no such path.
    """
    if match := _SUBSCRIPT.fullmatch(path):
        found = objects.labels(pod) if match[1] == "labels" else objects.dig(pod, "metadata", "annotations") or {}
        return found.get(match[2], "")
    host_ip = resources.host_ip(inputs.node)
    pod_ip = host_ip if objects.spec(pod).get("hostNetwork") else inputs.address or ""
    known = {
        "metadata.name": objects.name(pod),
        "metadata.namespace": objects.namespace(pod),
        "metadata.uid": objects.uid(pod),
        "spec.nodeName": objects.spec(pod).get("nodeName") or "",
        "spec.serviceAccountName": objects.spec(pod).get("serviceAccountName") or "",
        "status.hostIP": host_ip,
        "status.hostIPs": ",".join(resources.host_ips(inputs.node)),
        "status.podIP": pod_ip,
        "status.podIPs": ",".join(inputs.settings.dual_stack.addresses_of(pod_ip)),
    }
    if path not in known:
        raise ConfigurationMissing(f"unsupported fieldPath: {path}")
    return str(known[path])


def _resource(pod: JsonObject, container: JsonObject, wanted: JsonObject, inputs: PodInputs) -> Value | None:
    return resource_value(pod, wanted, inputs, wanted.get("containerName") or container["name"])


def resource_value(pod: JsonObject, wanted: JsonObject, inputs: PodInputs, container: str) -> str:
    """Return a container's limit or request as resourceFieldRef names it.

    A missing limit is the pod's, and without one what the node has; of huge pages it is none.

    Raises:
        ConfigurationMissing: the pod has no such container.
    """
    target = next((one for _, _, one in objects.all_containers(pod) if one["name"] == container), None)
    if target is None:
        raise ConfigurationMissing(f"resourceFieldRef: container {container} not found")
    kind, _, resource = str(wanted.get("resource") or "").partition(".")
    amount = objects.dig(resources.as_limited(pod, target), "resources", kind, resource)
    if amount is None and kind == "limits" and not huge_pages.is_resource(resource):
        amount = objects.dig(inputs.node, "status", "allocatable", resource)
    return str(resources.divided(parse(amount or 0), wanted.get("divisor")))


_Source = Callable[[JsonObject, JsonObject, JsonObject, PodInputs], "Value | None"]
_SOURCES: dict[str, _Source] = {
    "configMapKeyRef": _config_map_key,
    "secretKeyRef": _secret_key,
    "fieldRef": _field,
    "resourceFieldRef": _resource,
}
