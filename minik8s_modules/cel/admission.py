"""What expressions of admission may name: match conditions of webhooks, policies and their variables.

Objects are dyn, as upstream compiles them; ``request`` and ``namespaceObject`` have types of their own (apiserver,
pkg/admission/plugin/cel/compile.go).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from minik8s_modules.cel import types
from minik8s_modules.cel.environment import Environment
from minik8s_modules.cel.types import Declared, Field, Type, list_of, map_of

_TIME = Type("timestamp", declared=Declared(nullable=True))


def _object(name: str, fields: Mapping[str, Type], renamed: Mapping[str, str] | None = None) -> Type:
    names = renamed or {}
    return Type(
        "object",
        name,
        declared=Declared({field: Field(names.get(field, field), kind) for field, kind in fields.items()}),
    )


def _strings(*names: str) -> dict[str, Type]:
    return dict.fromkeys(names, types.STRING)


_KIND = _object("kubernetes.GroupVersionKind", _strings("group", "version", "kind"))
_RESOURCE = _object("kubernetes.GroupVersionResource", _strings("group", "version", "resource"))
_USER = _object(
    "kubernetes.UserInfo",
    _strings("username", "uid")
    | {"groups": list_of(types.STRING), "extra": map_of(types.STRING, list_of(types.STRING))},
)
REQUEST = _object(
    "kubernetes.AdmissionRequest",
    _strings("subResource", "requestSubResource", "name", "namespace", "operation")
    | {
        "kind": _KIND,
        "resource": _RESOURCE,
        "requestKind": _KIND,
        "requestResource": _RESOURCE,
        "userInfo": _USER,
        "dryRun": types.BOOL,
        "options": types.DYN,
    },
)
_CONDITION = _object(
    "kubernetes.NamespaceCondition",
    _strings("status", "type", "message", "reason") | {"lastTransitionTime": _TIME},
)
_METADATA = _object(
    "kubernetes.NamespaceMetadata",
    _strings("name", "generateName", "namespace", "UID", "resourceVersion")
    | {
        "labels": map_of(types.STRING, types.STRING),
        "annotations": map_of(types.STRING, types.STRING),
        "creationTimestamp": _TIME,
        "deletionTimestamp": _TIME,
        "deletionGracePeriodSeconds": types.INT,
        "generation": types.INT,
        "finalizers": list_of(types.STRING),
    },
    {"UID": "uid"},
)
NAMESPACE = _object(
    "kubernetes.Namespace",
    {
        "metadata": _METADATA,
        "spec": _object("kubernetes.NamespaceSpec", {"finalizers": list_of(types.STRING)}),
        "status": _object("kubernetes.NamespaceStatus", {"conditions": list_of(_CONDITION), "phase": types.STRING}),
    },
)
# `authorizer.requestResource` is a variable of its own upstream; here it is a field
_AUTHORIZER = Type(
    types.AUTHORIZER.kind,
    types.AUTHORIZER.name,
    declared=Declared({"requestResource": Field("requestResource", types.RESOURCE_CHECK)}),
)


def environment(
    *,
    params: Type | None = None,
    authorizer: bool = True,
    variables: Mapping[str, Type] | None = None,
    obj: Type = types.DYN,
) -> Environment:
    """Return the environment of a match condition, or of a policy with ``variables`` (an empty mapping for none).

    ``obj`` is the type of objects, ``params`` that of params, None where there are none.
    """
    names: dict[str, Type] = {
        "object": obj,
        "oldObject": obj,
        "request": REQUEST,
        "namespaceObject": NAMESPACE,
    }
    if params is not None:
        names["params"] = params
    if authorizer:
        names["authorizer"] = _AUTHORIZER
    if variables is not None:
        fields = {name: Field(name, kind) for name, kind in variables.items()}
        names["variables"] = Type("object", "kubernetes.variables", declared=Declared(fields, null_is_value=True))
    return Environment(names)


class LazyFields(dict[str, Any]):
    """The value of ``variables``: each field is computed when it is first asked for; its error is raised each time."""

    def __init__(self, thunks: Mapping[str, Callable[[], Any]]) -> None:
        super().__init__()
        self._thunks = thunks

    def __missing__(self, name: str) -> Any:
        """Compute a field that nobody asked for yet."""
        value = self[name] = self._thunks[name]()
        return value
