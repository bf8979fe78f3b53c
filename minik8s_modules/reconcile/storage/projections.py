"""Files of volumes: what ConfigMaps, Secrets, the pod's own fields and tokens become inside a volume. Pure.

A source gives rows of (path, content, mode); a content is bytes that documents may show, or a key of a Secret, which
travels apart. Sources of a projected volume are laid over each other in their order (pkg/volume/projected). Tokens
travel in a secret of the volume's own, ``<namespace>/<uid>__<volume>``; ``__`` is in no real name.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.values.environment import ConfigurationMissing, field_value, lookup, resource_value
from minik8s_modules.reconcile.values.sealing import values_of
from minik8s_modules.reconcile.values.values import PodInputs, TokenNeed

DEFAULT_MODE = 0o644
PRIVATE_MODE = 0o600
DEFAULT_EXPIRATION_S = 3600
# what %q of Go writes for control characters, besides \\xNN
_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_ASCII_END, _BASIC_PLANE_END = 0x80, 0x10000


class Secret(NamedTuple):
    """One key of the secret ``reference``; ``value`` is given where it is made here (a token)."""

    reference: str
    key: str
    value: bytes | None = None


class Row(NamedTuple):
    """One file of a volume; ``uid`` owns it."""

    path: str
    content: bytes | Secret
    mode: int
    uid: int | None = None


def config_map_rows(pod: JsonObject, source: JsonObject, inputs: PodInputs, mode: int) -> list[Row]:
    """Return the files of a ConfigMap.

    Raises:
        ConfigurationMissing: it, or a key of ``items``, does not exist and is not optional.
    """
    found = lookup(pod, source, inputs.configmaps, "configmap") or {}
    contents = {key: str(text).encode() for key, text in (found.get("data") or {}).items()}
    contents |= {key: _decoded(text) for key, text in (found.get("binaryData") or {}).items()}
    chosen = _chosen(source, contents, "configmap references non-existent config key", mode)
    return [Row(path, contents[key], each) for path, key, each in chosen]


def _decoded(text: object) -> bytes:
    try:
        return base64.b64decode(str(text or ""), validate=True)
    except (binascii.Error, ValueError):
        return b""


def secret_rows(pod: JsonObject, source: JsonObject, name: str, inputs: PodInputs, mode: int) -> list[Row]:
    """Return the files of the Secret ``name``; raises as ``config_map_rows``."""
    found = lookup(pod, {"name": name, "optional": source.get("optional")}, inputs.secrets, "secret") or {}
    reference = f"{objects.namespace(pod)}/{name}"
    chosen = _chosen(source, values_of(found), "references non-existent secret key", mode)
    return [Row(path, Secret(reference, key), each) for path, key, each in chosen]


def _chosen(source: JsonObject, contents: Iterable[str], missing: str, mode: int) -> list[tuple[str, str, int]]:
    """Return (path, key, mode) of the files; all keys when the source lists none."""
    there = frozenset(contents)
    if not source.get("items"):
        return [(key, key, mode) for key in sorted(there)]
    chosen = []
    for item in source["items"]:
        if item["key"] in there:
            chosen.append((item["path"], item["key"], _mode(item, mode)))
        elif not source.get("optional"):
            raise ConfigurationMissing(f"{missing}: {item['key']}")
    return chosen


def _mode(item: JsonObject, default: int) -> int:
    given = item.get("mode")
    return default if given is None else int(given)


def downward_rows(pod: JsonObject, source: JsonObject, inputs: PodInputs, mode: int) -> list[Row]:
    """Return the files made of the pod's own fields.

    Raises:
        ConfigurationMissing: kubelet knows no such field.
    """
    return [Row(item["path"], _field(pod, item, inputs).encode(), _mode(item, mode)) for item in source["items"] or []]


def _field(pod: JsonObject, item: JsonObject, inputs: PodInputs) -> str:
    if (wanted := item.get("resourceFieldRef")) is not None:
        return resource_value(pod, wanted, inputs, wanted.get("containerName") or "")
    path = objects.dig(item, "fieldRef", "fieldPath") or ""
    if path == "metadata.labels":
        return lines(objects.labels(pod))
    if path == "metadata.annotations":
        return lines(objects.dig(pod, "metadata", "annotations") or {})
    return field_value(pod, path, inputs)


def lines(values: Mapping[str, str]) -> str:
    """Return ``key="value"`` lines, keys sorted, values quoted as Go's %q does (pkg/fieldpath FormatMap)."""
    return "\n".join(f"{key}={quoted(values[key])}" for key in sorted(values))


def quoted(text: str) -> str:
    """Return ``text`` in double quotes with Go's escapes."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(letter: str) -> str:
    if letter in {'"', "\\"}:
        return "\\" + letter
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    if letter.isprintable():
        return letter
    code = ord(letter)
    if code < _ASCII_END:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < _BASIC_PLANE_END else f"\\U{code:08x}"


# --- tokens -----------------------------------------------------------------------------------------


def own_secret(pod: JsonObject, volume: str) -> str:
    """Return the reference under which a volume's tokens travel."""
    return f"{objects.namespace(pod)}/{objects.uid(pod)}__{volume}"


def need_of(source: JsonObject) -> TokenNeed:
    """Return what a serviceAccountToken source asks for."""
    return TokenNeed(source.get("audience") or "", int(source.get("expirationSeconds") or DEFAULT_EXPIRATION_S))


def token_needs(pod: JsonObject) -> frozenset[TokenNeed]:
    """Return every token the pod's volumes ask for."""
    sources = (source for volume in objects.spec(pod).get("volumes") or [] for source in projected_sources(volume))
    return frozenset(need_of(source["serviceAccountToken"]) for source in sources if source.get("serviceAccountToken"))


def projected_sources(volume: JsonObject) -> list[JsonObject]:
    """Return the sources of a projected volume, none of any other."""
    return objects.dig(volume, "projected", "sources") or []


def token_rows(pod: JsonObject, volume: str, source: JsonObject, inputs: PodInputs, mode: int) -> list[Row]:
    """Return the file of a token; it is the pod's user's alone where all containers have the same one.

    Raises:
        ConfigurationMissing: the API server gave none.
    """
    need = need_of(source)
    value = inputs.tokens.values.get(need)
    if value is None:
        why = inputs.tokens.errors.get(need) or "it has not been requested yet"
        raise ConfigurationMissing(f"failed to fetch token: {why}")
    # a key is a file name on the node, which an audience need not be
    key = hashlib.sha256(f"{need.audience}\0{need.expiration_s}".encode()).hexdigest()[:16]
    user = _user(pod)
    private = user is not None or _fs_group(pod) is not None
    return [Row(source["path"], Secret(own_secret(pod, volume), key, value), PRIVATE_MODE if private else mode, user)]


def _fs_group(pod: JsonObject) -> Any:
    return objects.dig(pod, "spec", "securityContext", "fsGroup")


def _user(pod: JsonObject) -> int | None:
    """Return the user all containers run as, None where they differ or none is told (pkg/securitycontext)."""
    shared = objects.dig(pod, "spec", "securityContext", "runAsUser")
    users = set()
    for _, _, container in objects.all_containers(pod):
        own = objects.dig(container, "securityContext", "runAsUser")
        users.add(shared if own is None else own)
    found = users.pop() if len(users) == 1 else None
    return None if found is None else int(found)
