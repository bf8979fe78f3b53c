"""From a request's body to an object that may be looked at: dialect, kind, unknown fields, JSON types, the URL's name.

What is wrong here is a 400, because the object cannot be read at all; rules between readable fields are
validation's, with 422. The order is that of a write (api/lifecycle/strategy.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.defaulting.dialect import ANNOTATION, to_canonical
from minik8s_modules.api.errors import MOST_TOLD, BadRequest, Cause
from minik8s_modules.api.kinds import NAMESPACE, Kind
from minik8s_modules.api.objects import JsonObject, metadata
from minik8s_modules.api.schema import structural
from minik8s_modules.apiserver.authorization.authorization import Requester
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.target import Target

Validation = Literal["Strict", "Warn", "Ignore"]
_VALIDATIONS: Mapping[str, Validation] = {"": "Warn", "Strict": "Strict", "Warn": "Warn", "Ignore": "Ignore"}
_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
DELETE_OPTIONS = Kind("", "v1", "DeleteOptions", "deleteoptions", f"{_META}.DeleteOptions")
BINDING = Kind("", "v1", "Binding", "bindings", "io.k8s.api.core.v1.Binding")
_MAX_MANAGER = 128  # apimachinery validation of fieldManager


class Options(NamedTuple):
    """The query parameters of a write; ``warnings`` collects texts for Warning headers.

    ``requester`` is None for what the server writes for itself. ``manager`` is the field manager of managedFields;
    ``force`` lets a server-side apply take over what other managers own; ``applied`` says that the object comes from
    one, with its managedFields. ``deletion`` are the DeleteOptions of a DELETE. ``reviewed``: webhooks have seen the
    request as what the client asked for (an eviction, a binding), and are not shown what it comes to.
    """

    dry_run: bool
    validation: Validation
    warnings: list[str]
    requester: Requester | None = None
    manager: str = ""
    force: bool = False
    applied: bool = False
    deletion: JsonObject | None = None
    reviewed: bool = False

    def warn(self, text: str) -> None:
        """Tell the client ``text``, once, if it has not been told MOST_TOLD others."""
        if len(self.warnings) < MOST_TOLD and text not in self.warnings:
            self.warnings.append(text)


def options_of(arguments: Mapping[str, str], user_agent: str = "") -> Options:
    """Return the options of a write; without fieldManager the manager is what ``user_agent`` begins with.

    Raises:
        BadRequest: dryRun, fieldValidation, fieldManager or force have a value that is not served.
    """
    dry_run = arguments.get("dryRun", "")
    if dry_run not in {"", "All"}:
        raise BadRequest(f'dryRun: Unsupported value: "{dry_run}": supported values: "All"')
    asked = arguments.get("fieldValidation", "")
    validation = _VALIDATIONS.get(asked)
    if validation is None:
        raise BadRequest(f'fieldValidation: Unsupported value: "{asked}": supported values: "Ignore", "Strict", "Warn"')
    manager = arguments.get("fieldManager", "")
    if len(manager) > _MAX_MANAGER or not manager.isprintable():
        raise BadRequest(f"fieldManager: must be at most {_MAX_MANAGER} printable characters")
    if not manager:
        manager = user_agent.split("/", 1)[0]
        manager = (manager if manager.isprintable() else "".join(filter(str.isprintable, manager)))[:_MAX_MANAGER]
    return Options(bool(dry_run), validation, [], manager=manager, force=_flag(arguments, "force"))


def _flag(arguments: Mapping[str, str], name: str) -> bool:
    text = arguments.get(name, "false")
    if text not in {"true", "false", "1", "0"}:
        raise BadRequest(f'{name}: Invalid value: "{text}": must be true or false')
    return text in {"true", "1"}


def dialect_around(backend: Backend, target: Target) -> str:
    """Return in which dialect the target's namespace says that objects are written which do not show it, "" for none.

    What is there already is read as it was when it was made.
    """
    if not target.namespace or target.subresource:
        return ""
    namespace = backend.cache.get(NAMESPACE.key("", target.namespace))
    declared = namespace.labels.get(ANNOTATION, "") if namespace is not None else ""
    if not declared or not target.name:
        return declared
    live = backend.cache.get(target.kind.key(target.namespace, target.name))
    return declared if live is None or objects.annotations(live.object).get(ANNOTATION) == declared else ""


def readable(
    kind: Kind, obj: JsonObject, options: Options, around: str = "", fresh: JsonObject | None = None
) -> JsonObject:
    """Return ``obj`` in canonical form once it is known to be an object of ``kind``; one in that form as it is.

    Args:
        kind: what it has to be.
        obj: the object.
        options: how unknown fields are taken.
        around: see dialect_around.
        fresh: its fields that are not as they are stored, where that is known: others may hold unknown fields.

    Raises:
        BadRequest: it is of another kind, has values of wrong JSON types, or (Strict) unknown fields.
    """
    check_kind(kind, obj)
    given, plain = obj, structural.is_readable(kind, obj)
    obj = to_canonical(kind, obj, around, known=plain)
    if plain and obj is given:
        return obj
    if options.validation != "Ignore":
        written = fresh if fresh is not None and obj is given else obj
        refuse_or_warn(kind, structural.unknown_fields(kind, written), options)
    check_types(kind, obj)
    return obj


def refuse_or_warn(kind: Kind, found: list[str], options: Options) -> None:
    """Treat unknown or duplicate fields as fieldValidation says: Strict raises BadRequest, Warn warns."""
    if found and options.validation == "Strict":
        message = f"strict decoding error: {', '.join(found)}"
        raise structural.undecodable(kind, [Cause("FieldValueInvalid", message, "")])
    for warning in found:
        options.warn(warning)


def check_types(kind: Kind, obj: JsonObject) -> None:
    """Raise BadRequest when a value has a JSON type its field does not."""
    causes = structural.type_errors(kind, obj) if kind.custom is None else structural.metadata_type_errors(obj)
    if causes:
        raise structural.undecodable(kind, causes)


def check_kind(kind: Kind, obj: JsonObject) -> None:
    """Raise BadRequest when the object says it is of another kind; an absent apiVersion or kind is the path's."""
    version, name = obj.get("apiVersion") or kind.api_version, obj.get("kind") or kind.kind
    if version != kind.api_version:
        raise BadRequest(
            f"the API version in the data ({version}) does not match the expected API version ({kind.api_version})"
        )
    if name != kind.kind:
        raise BadRequest(f"the kind in the data ({name}) does not match the expected kind ({kind.kind})")


def check_place(target: Target, obj: JsonObject) -> None:
    """Raise BadRequest when the object names another name or namespace than the URL."""
    meta = metadata(obj)
    name, namespace = meta.get("name") or target.name, meta.get("namespace") or target.namespace
    if target.name and name != target.name:
        raise BadRequest(f"the name of the object ({name}) does not match the name on the URL ({target.name})")
    if target.kind.namespaced and namespace != target.namespace:
        raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
