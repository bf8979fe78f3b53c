"""What the client wants to see: objects, tables, or metadata alone (Accept header, includeObject)."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

from minik8s_modules.api.errors import BadRequest, NotAcceptable
from minik8s_modules.apiserver.http.bodies import JSON

_ANY = frozenset({"", "*/*", "application/*", JSON})
_PARTIAL = frozenset({"PartialObjectMetadata", "PartialObjectMetadataList"})


class Form(NamedTuple):
    """A representation; ``include`` says what a table's rows carry (meta.k8s.io IncludeObjectPolicy)."""

    name: Literal["object", "table", "metadata"] = "object"
    include: Literal["", "Metadata", "None", "Object"] = ""


OBJECT = Form()
METADATA = Form("metadata")


@lru_cache(maxsize=512)
def form(accept: str, include: str = "", *, tables: bool = True) -> Form:
    """Return the first form of an Accept header that is served; what is only created has no ``tables``.

    Raises:
        NotAcceptable: none is.
        BadRequest: ``include`` is no policy.
    """
    for entry in accept.split(","):
        media, *pairs = (part.strip() for part in entry.split(";"))
        if media not in _ANY:
            continue
        options = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        wanted = options.get("as")
        if wanted is None:
            return OBJECT
        if options.get("g") == "meta.k8s.io" and options.get("v") == "v1":
            if wanted == "Table" and tables:
                return _table(include)
            if wanted in _PARTIAL:
                return METADATA
    raise NotAcceptable((JSON,))


def _table(include: str) -> Form:
    if include in {"", "Metadata"}:
        return Form("table", "Metadata")
    if include == "None":
        return Form("table", "None")
    if include == "Object":
        return Form("table", "Object")
    raise BadRequest(f'includeObject must be "None", "Metadata" or "Object", not "{include}"')


@lru_cache(maxsize=64)
def discovery_version(accept: str) -> str:
    """Return the version of aggregated discovery asked for (v2, v2beta1), or "" for the older form."""
    for entry in accept.split(","):
        media, *pairs = (part.strip() for part in entry.split(";"))
        options = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        aggregated = options.get("as") == "APIGroupDiscoveryList" and options.get("g") == "apidiscovery.k8s.io"
        if media == JSON and aggregated and options.get("v") in {"v2", "v2beta1"}:
            return options["v"]
        if media in _ANY and "as" not in options:
            return ""
    return ""
