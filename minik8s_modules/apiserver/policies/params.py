"""The params of a binding: objects of the policy's paramKind that its expressions may name.

Source: apiserver ``plugin/policy/generic/policy_dispatcher.go`` (``CollectParams``).
"""

from __future__ import annotations

import orjson

from minik8s_modules.api.defaulting.conversion import from_storage, in_version
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kind import Registry
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.selectors import from_label_selector
from minik8s_modules.store.cache import WatchCache


class Misconfigured(Exception):
    """A policy or binding cannot be used; the message says why."""


def params_of(
    cache: WatchCache, kinds: Registry, param_kind: JsonObject | None, ref: JsonObject | None, namespace: str
) -> list[JsonObject | None]:
    """Return the objects that each validation is evaluated with; [None] where the policy or binding names none.

    Raises:
        Misconfigured: the kind is not served, the reference does not fit it, or nothing is there and that is denied.
    """
    if param_kind is None or ref is None:
        return [None]
    api_version = param_kind["apiVersion"]
    kind = kinds.by_api_version(api_version, param_kind["kind"])
    if kind is None:
        raise Misconfigured(
            f"failed to find resource referenced by paramKind: '{api_version}, Kind={param_kind['kind']}'"
        )
    space = ref.get("namespace") or ""
    if space and not kind.namespaced:
        raise Misconfigured("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
    space = space or namespace
    if kind.namespaced and not space:
        raise Misconfigured("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
    if ref.get("name"):
        one = cache.get(kind.key(space, ref["name"]))
        found = [] if one is None else [one]
    else:
        selector = from_label_selector(ref.get("selector"))
        prefix = kind.key(space, "") if kind.namespaced else kind.prefix
        found = [each for each in cache.list(prefix).items if selector.matches(each.labels)]
    if not found and ref.get("parameterNotFoundAction") != "Allow":
        raise Misconfigured("no params found for policy binding with `Deny` parameterNotFoundAction")
    try:
        if kind.custom is not None:
            return [*in_version(kind, kind.custom, [orjson.loads(each.data) for each in found])]
        return [from_storage(kind, each.object) for each in found]
    except StatusError as error:
        raise Misconfigured(error.message) from error
