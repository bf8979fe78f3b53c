"""Which webhooks a write concerns; pure.

A configuration is compiled once (``compiled``); which of its webhooks may see a kind of write is remembered, so a write
that concerns none costs one look into a table. Source: apiserver ``pkg/admission/plugin/webhook`` (``predicates``,
``generic/webhook.go``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from minik8s_modules.api.defaulting.conversion import stored_kind
from minik8s_modules.api.kind import Registry
from minik8s_modules.api.kinds import KINDS, MUTATING_WEBHOOK_CONFIGURATION, NAMESPACE, Kind
from minik8s_modules.api.objects import JsonObject, name, uid
from minik8s_modules.api.selectors import LabelSelector, from_label_selector
from minik8s_modules.apiserver.webhooks.conditions import Condition, conditions_of
from minik8s_modules.apiserver.webhooks.places import Client, client_of

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
GROUP = MUTATING_WEBHOOK_CONFIGURATION.group


class Hook(NamedTuple):
    """One webhook of a configuration.

    Attributes:
        key: the configuration's uid and the webhook's name, alike in no two.
        about: the kind of its configuration.
        equivalent: whether a rule for one version of an object speaks of all of them.
        fail: whether a write is refused when the webhook cannot be asked.
        quiet: whether it may be asked about dry runs.
        reinvoked: whether it is asked again when a later one changes the object.
    """

    key: tuple[str, str]
    about: Kind
    configuration: str
    name: str
    rules: tuple[JsonObject, ...]
    equivalent: bool
    namespaces: LabelSelector
    objects: LabelSelector
    fail: bool
    timeout_s: int
    quiet: bool
    versions: tuple[str, ...]
    reinvoked: bool
    client: Client
    conditions: tuple[Condition, ...] = ()


class Match(NamedTuple):
    """A webhook that may see a write, and the kind in whose form it is shown the object."""

    hook: Hook
    kind: Kind


def compiled(about: Kind, configurations: Iterable[JsonObject]) -> tuple[Hook, ...]:
    """Return the webhooks in the order they are asked: by the name of their configuration, then as written there."""
    ordered = sorted(configurations, key=name)
    return tuple(_hook(about, each, hook) for each in ordered for hook in each.get("webhooks") or ())


def _hook(about: Kind, configuration: JsonObject, hook: JsonObject) -> Hook:
    return Hook(
        key=(uid(configuration), hook["name"]),
        about=about,
        configuration=name(configuration),
        name=hook["name"],
        rules=tuple(hook.get("rules") or ()),
        equivalent=hook.get("matchPolicy") != "Exact",
        namespaces=from_label_selector(hook.get("namespaceSelector") or {}),
        objects=from_label_selector(hook.get("objectSelector") or {}),
        fail=hook.get("failurePolicy") != "Ignore",
        timeout_s=hook.get("timeoutSeconds") or 10,
        quiet=hook.get("sideEffects") in {"None", "NoneOnDryRun"},
        versions=tuple(hook.get("admissionReviewVersions") or ()),
        reinvoked=hook.get("reinvocationPolicy") == "IfNeeded",
        client=client_of(hook["clientConfig"]),
        conditions=conditions_of(hook.get("matchConditions")),
    )


def concerned(
    hooks: Iterable[Hook], kind: Kind, subresource: str, operation: Operation, kinds: Registry = KINDS
) -> tuple[Match, ...]:
    """Return the webhooks whose rules speak of this operation on this resource, whatever object it is."""
    if exempt(kind):
        return ()
    others = tuple(equivalents(kind, kinds))
    return tuple(
        Match(hook, found) for hook in hooks if (found := _kind_meant(hook, kind, others, subresource, operation))
    )


def exempt(kind: Kind) -> bool:
    """Return whether no webhook sees objects of the kind.

    Of configurations a broken one could not be taken away. What is never stored are questions about rights, some with a
    credential in them, and a webhook that asks one would wait for itself (kubeadmission ``exclusion``).
    """
    return kind.group == GROUP or not kind.stored


def _kind_meant(
    hook: Hook, kind: Kind, others: tuple[Kind, ...], subresource: str, operation: Operation
) -> Kind | None:
    """Return the kind by which a rule speaks of the resource: its own, or an equivalent one; None for no rule."""
    if any(fits(rule, kind, subresource, operation) for rule in hook.rules):
        return kind
    if hook.equivalent:
        for rule in hook.rules:
            for other in others:
                if fits(rule, other, subresource, operation):
                    return other
    return None


def equivalents(kind: Kind, kinds: Registry = KINDS) -> Iterator[Kind]:
    """Yield the other kinds under which the same objects are served: views, and versions of a custom kind."""
    if kind.custom is not None:
        return (other for other in kinds.all() if other.custom and other.resource == kind.resource and other != kind)
    stored = stored_kind(kind)
    return (other for other in KINDS.all() if other != kind and stored_kind(other) == stored)


def fits(rule: JsonObject, kind: Kind, subresource: str, operation: Operation) -> bool:
    """Return whether a rule (admissionregistration/v1 RuleWithOperations) speaks of an operation on a resource."""
    return (
        _among(rule.get("operations"), operation)
        and _among(rule.get("apiGroups"), kind.group)
        and _among(rule.get("apiVersions"), kind.version)
        and _scope(rule, kind)
        and any(_resource(each, kind.plural, subresource) for each in rule.get("resources") or ())
    )


def _among(values: Iterable[str] | None, value: str) -> bool:
    return any(each in {"*", value} for each in values or ())


def _scope(rule: JsonObject, kind: Kind) -> bool:
    scope = rule.get("scope") or "*"
    return scope == "*" or (scope == "Namespaced") == kind.namespaced


def _resource(written: str, plural: str, subresource: str) -> bool:
    resource, _, sub = written.partition("/")
    return resource in {"*", plural} and sub in {"*", subresource}


def selected(
    hook: Hook, kind: Kind, space: Mapping[str, str] | None, obj: JsonObject | None, old: JsonObject | None
) -> bool:
    """Return whether the webhook's selectors choose the object.

    Args:
        hook: the webhook.
        kind: of the request.
        space: the labels of the object's namespace; of a Namespace, its own; None at the cluster scope.
        obj: the new object, if there is one.
        old: the present one, if there is one.
    """
    if (kind.namespaced or kind is NAMESPACE) and not hook.namespaces.matches(space or {}):
        return False
    return hook.objects.empty or any(
        hook.objects.matches((each.get("metadata") or {}).get("labels") or {})
        for each in (obj, old)
        if each is not None
    )
