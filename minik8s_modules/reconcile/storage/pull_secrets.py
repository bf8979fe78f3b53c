"""Credentials for pulling a pod's images: those of its imagePullSecrets whose registry the image names, best first.

Both forms of such Secrets are read, ``kubernetes.io/dockerconfigjson`` and the older ``kubernetes.io/dockercfg``.
Credentials go to the gateway with the request and stand nowhere else: in no document, argv, log or artifact.
Source: pkg/credentialprovider (keyring.go: which entry is for which image; config.go: the two forms).
"""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.values.images import normalized
from minik8s_modules.reconcile.values.values import PodEvent, PullState

_FORMS = {"kubernetes.io/dockerconfigjson": ".dockerconfigjson", "kubernetes.io/dockercfg": ".dockercfg"}
_DOCKER_HUB = "index.docker.io"


class Credential(NamedTuple):
    """One registry's credential; whoever prints it sees no secret."""

    registry: str
    username: str
    password: str

    def __repr__(self) -> str:
        """Return whose it is."""
        return f"<credential for {self.registry}>"

    def auth(self) -> dict[str, str]:
        """Return it as Docker takes it."""
        return {"username": self.username, "password": self.password, "serveraddress": self.registry}


def secret_names(pod: JsonObject) -> list[str]:
    """Return ``<namespace>/<name>`` of the Secrets the pod's images are pulled with."""
    names = (one.get("name") for one in objects.spec(pod).get("imagePullSecrets") or [])
    return [f"{objects.namespace(pod)}/{name}" for name in names if name]


def credentials(pod: JsonObject, image: str, secrets: Mapping[str, JsonObject]) -> tuple[Credential, ...]:
    """Return the credentials to try for ``image``, best registry first; Secrets that are none are skipped."""
    if image not in {container["image"] for _, _, container in objects.every_container(pod)}:
        return ()  # the pause image is nobody's
    try:
        place = _place(image)
    except ValueError:
        return ()
    known = (secrets[name] for name in secret_names(pod) if name in secrets)
    fitting = [one for secret in known for one in _entries(secret) if _is_for(one.registry, place)]
    return tuple(sorted(dict.fromkeys(fitting), key=lambda one: -len(one.registry)))


def pull_key(image: str, given: tuple[Credential, ...]) -> str:
    """Return what a pull is remembered by: an image refused with one credential may be had with another."""
    if not given:
        return image
    return f"{image} {hashlib.sha256(json.dumps(given).encode()).hexdigest()[:16]}"


def pulls_of(
    pod: JsonObject, secrets: Mapping[str, JsonObject], known: Mapping[str, PullState]
) -> Mapping[str, PullState]:
    """Return the pulls as the pod sees them: by image, those with the pod's credentials."""
    if not secret_names(pod):
        return known
    found = dict(known)
    for _, _, container in objects.every_container(pod):
        image = container["image"]
        if key := (given := credentials(pod, image, secrets)) and pull_key(image, given):
            found.pop(image, None)
            if key in known:
                found[image] = known[key]
    return found


def missing_event(pod: JsonObject, secrets: Mapping[str, JsonObject]) -> tuple[PodEvent, ...]:
    """Return the Event about pull secrets that do not exist, in kubelet's words."""
    names = [name.partition("/")[2] for name in secret_names(pod) if name not in secrets]
    if not names:
        return ()
    message = ", ".join(names)
    text = f"Unable to retrieve some image pull secrets ({message}); attempting to pull the image may not succeed."
    return (PodEvent("Warning", "FailedToRetrieveImagePullSecret", text, f"pull-secrets/{message}"),)


def _place(image: str) -> str:
    """Return registry and path of an image, as entries name them."""
    name = normalized(image).partition("@")[0]
    head, slash, rest = name.partition("/")
    if slash and ("." in head or ":" in head or head == "localhost"):
        return f"{head}/{rest.rpartition(':')[0] or rest}"
    return f"{_DOCKER_HUB}/{name.rpartition(':')[0] or name}"


def _entries(secret: JsonObject) -> Iterator[Credential]:
    data = _decoded(secret)
    found = data.get("auths", data) if secret.get("type") == "kubernetes.io/dockerconfigjson" else data
    for registry, entry in found.items() if isinstance(found, dict) else ():
        if isinstance(entry, dict) and (login := _login(entry)) and _is_text(registry, *login):
            yield Credential(_registry(registry), *login)


def _decoded(secret: JsonObject) -> JsonObject:
    key = _FORMS.get(str(secret.get("type") or ""), "")
    try:
        found = json.loads(base64.b64decode((secret.get("data") or {}).get(key) or ""))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _login(entry: JsonObject) -> tuple[str, str] | None:
    if entry.get("auth"):
        try:
            user, _, password = base64.b64decode(str(entry["auth"])).decode().partition(":")
        except ValueError:
            return None
        return user, password
    return (str(entry["username"]), str(entry.get("password") or "")) if entry.get("username") else None


def _is_text(*words: str) -> bool:
    """Return whether words can be sent: JSON may have halves of characters, which are no text."""
    try:
        "".join(words).encode()
    except UnicodeEncodeError:
        return False
    return True


def _registry(written: str) -> str:
    """Return host and path of an entry's name: without scheme, and without the API's version."""
    place = written.partition("://")[2] or written
    host, _, path = place.partition("/")
    path = path.strip("/")
    return host if path in {"", "v1", "v2"} else f"{host}/{path}"


def _is_for(registry: str, place: str) -> bool:
    host, _, path = registry.partition("/")
    image_host, _, image_path = place.partition("/")
    if host == "docker.io":
        host = _DOCKER_HUB
    parts, image_parts = host.split("."), image_host.split(".")
    same = len(parts) == len(image_parts) and all(map(fnmatch.fnmatchcase, image_parts, parts))
    return same and image_path.startswith(path)
