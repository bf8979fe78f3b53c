"""OpenAPI v3 of nothing but PATCH: what kubectl looks up when it writes many objects.

``kubectl apply -f`` parses the document of a group again for every object (cli-runtime, query_param_verifier_v3.go;
kubectl, patcher.go): 20 ms of kubectl's CPU for the whole of ``v1``. Commands that do so are known by the header
``Kubectl-Command``, and the index names them these documents; an address has the same document for everyone, so caches
need not know. Without the header everything is told.

A kind's operation says that it takes ``dryRun`` and ``fieldValidation``. What OpenAPI wants beside that, answers and
the parameters' types, is left out. How lists of our own kinds are merged, of which kubectl has no Go types, stands in
version 2 (``openapi_protobuf``), which kubectl parses once: no operation says here that it takes a strategic merge
patch, and then kubectl looks there.
"""

from __future__ import annotations

from functools import lru_cache

from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kind import Registry
from minik8s_modules.api.kinds import KINDS, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.discovery import openapi

COMMANDS = frozenset({"kubectl apply", "kubectl create", "kubectl diff", "kubectl replace"})
_LOOKED_FOR = ("dryRun", "fieldValidation")
_GVK = "x-kubernetes-group-version-kind"


def index(kinds: Registry = KINDS) -> JsonObject:
    """Return /openapi/v3 for the ``COMMANDS``: the addresses of these documents."""
    named = {}
    for path, entry in openapi.index(kinds)["paths"].items():
        group, version = path.split("/")[1:] if path.startswith("apis/") else ("", path.split("/")[1])
        address = f"/openapi/v3/{path}?hash={document(group, version, kinds)[1]}&only=patch"
        named[path] = {**entry, "serverRelativeURL": address}
    return {"paths": named}


def document(group: str, version: str, served: Registry = KINDS) -> tuple[bytes, str]:
    """Return how the kinds of a group and version are patched, and the digest of it. Raises NotFound."""
    kinds = served.in_group(group, version)
    if not kinds:
        raise NotFound.path()
    return _document(kinds)


@lru_cache(maxsize=512)
def _document(kinds: tuple[Kind, ...]) -> tuple[bytes, str]:
    return openapi.named(
        {"paths": {openapi.places(kind)[1]: {"patch": _patch(kind)} for kind in kinds if "patch" in kind.verbs}}
    )


def _patch(kind: Kind) -> JsonObject:
    return {
        "parameters": [{"name": name, "in": "query"} for name in _LOOKED_FOR],
        _GVK: {"group": kind.group, "version": kind.version, "kind": kind.kind},
    }
