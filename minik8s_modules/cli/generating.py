"""``create TYPE NAME``: objects made of options instead of files; the manifest is built here, pure, then created."""

from __future__ import annotations

import argparse
import base64
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from minik8s_modules.api.kinds import SERVICE_ACCOUNT, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli import manifests, printing, writing
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.resources import find_kind, name_of
from minik8s_modules.client.api import ApiClient

Build = Callable[[argparse.Namespace], JsonObject]


def generate(client: ApiClient, options: argparse.Namespace) -> int:
    """Create the object that the options describe, and print what came of it."""
    form, obj = printing.form_of(options.output), options.build(options)
    kind = manifests.kind_of(obj, "what is to be created")
    if kind.namespaced:
        obj["metadata"].setdefault("namespace", options.namespace)
    verb, made = writing.create_object(client, kind, obj, options)
    if form.is_table:
        print(f"{name_of(kind, made['metadata']['name'])} {verb}{writing.DRY.get(options.dry_run, '')}")
    else:
        print(printing.documents(form, [(kind, printing.printable(made))], single=True))
    return 0


def token(client: ApiClient, options: argparse.Namespace) -> int:
    """Print a new token of a service account."""
    spec: JsonObject = {}
    if options.audience:
        spec["audiences"] = options.audience
    if options.duration:
        spec["expirationSeconds"] = seconds(options.duration)
    if options.bound_object_kind:
        spec["boundObjectRef"] = {
            "kind": options.bound_object_kind,
            "apiVersion": "v1",
            "name": options.bound_object_name,
            **({"uid": options.bound_object_uid} if options.bound_object_uid else {}),
        }
    body = {
        **_head("authentication.k8s.io/v1", "TokenRequest", options.name_word),
        "spec": spec,
    }
    body["metadata"]["namespace"] = options.namespace
    made = client.create(SERVICE_ACCOUNT, body, subresource="token")
    print(made["status"]["token"] if not options.output else _shown_token(made, options))
    return 0


def _shown_token(made: JsonObject, options: argparse.Namespace) -> str:
    kind = Kind("authentication.k8s.io", "v1", "TokenRequest", "tokenrequests", "")
    return printing.documents(printing.form_of(options.output), [(kind, made)], single=True)


def seconds(text: str) -> int:
    """Return the seconds of ``90s``, ``10m``, ``1h30m`` or ``600``.

    Raises:
        UsageError: it is no duration.
    """
    units, total, number = {"h": 3600, "m": 60, "s": 1}, 0, ""
    for sign in text + ("s" if text[-1:].isdigit() else ""):
        if sign.isdigit():
            number += sign
        elif sign in units and number:
            total, number = total + int(number) * units[sign], ""
        else:
            raise UsageError(f'"{text}" is no duration; write it as 90s, 10m or 1h30m')
    return total


def _head(api_version: str, kind: str, name: str) -> JsonObject:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}


def namespace(options: argparse.Namespace) -> JsonObject:
    """Return a Namespace."""
    return _head("v1", "Namespace", options.name_word)


def service_account(options: argparse.Namespace) -> JsonObject:
    """Return a ServiceAccount."""
    return _head("v1", "ServiceAccount", options.name_word)


# --- config maps and secrets ----------------------------------------------------------------------


def config_map(options: argparse.Namespace) -> JsonObject:
    """Return a ConfigMap with the data of the options; what is no UTF-8 goes into binaryData."""
    texts: JsonObject = {}
    binaries: JsonObject = {}
    for key, value in data_of(options):
        if key in texts or key in binaries:
            raise UsageError(f'"{key}" is given twice')
        try:
            texts[key] = value.decode("utf-8")
        except UnicodeDecodeError:
            binaries[key] = _base64(value)
    found = _head("v1", "ConfigMap", options.name_word)
    return {**found, **({"data": texts} if texts else {}), **({"binaryData": binaries} if binaries else {})}


def secret(options: argparse.Namespace) -> JsonObject:
    """Return a Secret (generic) with the data of the options."""
    data: JsonObject = {}
    for key, value in data_of(options):
        if key in data:
            raise UsageError(f'"{key}" is given twice')
        data[key] = _base64(value)
    return {**_head("v1", "Secret", options.name_word), "type": options.type, "data": data}


def tls_secret(options: argparse.Namespace) -> JsonObject:
    """Return a Secret with a certificate and its key."""
    data = {"tls.crt": _base64(_bytes(options.cert)), "tls.key": _base64(_bytes(options.key))}
    return {**_head("v1", "Secret", options.name_word), "type": "kubernetes.io/tls", "data": data}


def docker_secret(options: argparse.Namespace) -> JsonObject:
    """Return a Secret with the login of an image registry."""
    password = options.docker_password or _bytes(options.docker_password_file).decode("utf-8").rstrip("\n")
    login = {"username": options.docker_username, "password": password, "email": options.docker_email}
    login["auth"] = _base64(f"{options.docker_username}:{password}".encode())
    config = json.dumps({"auths": {options.docker_server: {k: v for k, v in login.items() if v}}})
    data = {".dockerconfigjson": _base64(config.encode())}
    return {**_head("v1", "Secret", options.name_word), "type": "kubernetes.io/dockerconfigjson", "data": data}


def data_of(options: argparse.Namespace) -> Iterator[tuple[str, bytes]]:
    """Yield the keys and values of --from-literal, --from-file and --from-env-file.

    Raises:
        UsageError: one is not written as it must be, or cannot be read.
    """
    for text in options.from_literal:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f'"{text}" is no literal; write KEY=VALUE')
        yield key, value.encode()
    for text in options.from_file:
        yield from _of_file(text)
    for path in options.from_env_file:
        yield from _of_env_file(path)


def _of_file(text: str) -> Iterator[tuple[str, bytes]]:
    key, equals, path = text.partition("=")
    place = Path(path if equals else text)
    if place.is_dir():
        if equals:
            raise UsageError(f"{place} is a folder: its files are the keys; leave out {key}=")
        for file in sorted(place.iterdir()):
            if file.is_file():
                yield file.name, _bytes(str(file))
        return
    yield key if equals else place.name, _bytes(str(place))


def _of_env_file(path: str) -> Iterator[tuple[str, bytes]]:
    for number, line in enumerate(_bytes(path).decode("utf-8-sig").splitlines(), 1):
        text = line.lstrip()
        if not text or text.startswith("#"):
            continue
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{path}, line {number}: write KEY=VALUE")
        yield key, value.encode()


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


# --- workloads ------------------------------------------------------------------------------------


def deployment(options: argparse.Namespace) -> JsonObject:
    """Return a Deployment of one container an image."""
    if len(options.image) > 1 and options.tail:
        raise UsageError("a command can be given for one image only")
    labels = {"app": options.name_word}
    ports = {"ports": [{"containerPort": options.port}]} if options.port else {}
    containers = [_container(_short(image), image, options.tail) for image in options.image]
    containers[0].update(ports)
    template = {"metadata": {"labels": dict(labels)}, "spec": {"containers": containers}}
    found = _head("apps/v1", "Deployment", options.name_word)
    found["metadata"]["labels"] = labels
    return {
        **found,
        "spec": {"replicas": options.replicas, "selector": {"matchLabels": dict(labels)}, "template": template},
    }


def job(options: argparse.Namespace) -> JsonObject:
    """Return a Job of one container."""
    container = _container(options.name_word, options.image, options.tail)
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    return {**_head("batch/v1", "Job", options.name_word), "spec": {"template": template}}


def cron_job(options: argparse.Namespace) -> JsonObject:
    """Return a CronJob of one container."""
    spec = job(options)["spec"]
    spec["template"]["spec"]["restartPolicy"] = options.restart
    return {
        **_head("batch/v1", "CronJob", options.name_word),
        "spec": {"schedule": options.schedule, "jobTemplate": {"metadata": {"name": options.name_word}, "spec": spec}},
    }


def _container(name: str, image: str, command: Sequence[str]) -> JsonObject:
    return {"name": name, "image": image, **({"command": list(command)} if command else {})}


def _short(image: str) -> str:
    """Return a container's name for an image: the last part of it, without tag and digest."""
    return re.sub(r"[._]", "-", re.split(r"[@:]", image.rsplit("/", 1)[-1])[0]).lower()


# --- roles ----------------------------------------------------------------------------------------


def role(options: argparse.Namespace) -> JsonObject:
    """Return a Role or ClusterRole with one rule an API group."""
    verbs, urls = _split(options.verb), getattr(options, "non_resource_url", None) or []
    by_group: dict[str, list[str]] = {}
    for text in _split(options.resource):
        resource, slash, subresource = text.partition("/")
        kind = find_kind(resource)
        by_group.setdefault(kind.group, []).append(kind.plural + slash + subresource)
    if not by_group and not urls:
        raise UsageError("say what the rule is about with --resource")
    named = {"resourceNames": options.resource_name} if options.resource_name else {}
    rules: list[JsonObject] = [
        {"verbs": verbs, "apiGroups": [group], "resources": resources, **named} for group, resources in by_group.items()
    ]
    if urls:
        rules.append({"verbs": verbs, "nonResourceURLs": urls})
    return {**_head("rbac.authorization.k8s.io/v1", options.role_kind, options.name_word), "rules": rules}


def role_binding(options: argparse.Namespace) -> JsonObject:
    """Return a RoleBinding or ClusterRoleBinding."""
    group = "rbac.authorization.k8s.io"
    own: str | None = vars(options).get("role")
    if bool(own) == bool(options.clusterrole):
        raise UsageError("say which role is bound: one of --role and --clusterrole")
    kind, role_name = ("Role", own) if own else ("ClusterRole", options.clusterrole)
    subjects: list[Any] = [{"kind": "User", "apiGroup": group, "name": name} for name in options.user]
    subjects += [{"kind": "Group", "apiGroup": group, "name": name} for name in options.group]
    for text in options.serviceaccount:
        where, colon, name = text.partition(":")
        if not colon:
            raise UsageError(f'"{text}" is no service account; write NAMESPACE:NAME')
        subjects.append({"kind": "ServiceAccount", "namespace": where, "name": name})
    found = _head(f"{group}/v1", options.binding_kind, options.name_word)
    return {**found, "roleRef": {"apiGroup": group, "kind": kind, "name": role_name}, "subjects": subjects}


def _split(texts: Sequence[str]) -> list[str]:
    return [part for text in texts for part in text.split(",") if part]
