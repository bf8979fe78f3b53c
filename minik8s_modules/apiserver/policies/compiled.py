"""Policies and bindings as data with compiled expressions; pure. Source: apiserver ``plugin/policy/validating``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from minik8s_modules import cel
from minik8s_modules.api.kind import Registry
from minik8s_modules.api.kinds import KINDS, NAMESPACE, Kind
from minik8s_modules.api.objects import JsonObject, name, spec
from minik8s_modules.api.selectors import LabelSelector, from_label_selector
from minik8s_modules.api.validation.extensions.expressions import PolicyNames
from minik8s_modules.apiserver.webhooks.conditions import Condition, conditions_of
from minik8s_modules.apiserver.webhooks.reviews import ReviewedWrite
from minik8s_modules.apiserver.webhooks.rules import equivalents, exempt, fits
from minik8s_modules.cel import CompileError, Program


class Expression(NamedTuple):
    """One expression; ``program`` is None for one that does not compile, and ``broken`` says why."""

    source: str
    program: Program | None
    broken: str = ""


class Validation(NamedTuple):
    """What must be true, and what is told when it is not."""

    expression: Expression
    message: str
    computed: Expression | None
    reason: str


class Constraints(NamedTuple):
    """Which writes are meant (MatchResources); ``rules`` None for all."""

    rules: tuple[JsonObject, ...] | None
    excluded: tuple[JsonObject, ...]
    equivalent: bool
    namespaces: LabelSelector
    objects: LabelSelector

    def kind_meant(self, asked: ReviewedWrite, kinds: Registry = KINDS) -> Kind | None:
        """Return the kind by which the rules speak of a request, None where they do not."""
        if self._found(self.excluded, asked, kinds) is not None:
            return None
        return asked.kind if self.rules is None else self._found(self.rules, asked, kinds)

    def _found(self, rules: tuple[JsonObject, ...], asked: ReviewedWrite, kinds: Registry) -> Kind | None:
        others: Iterable[Kind] = equivalents(asked.kind, kinds) if self.equivalent and rules else ()
        for kind in chain([asked.kind], others):
            if any(_fits(rule, kind, asked) for rule in rules):
                return kind
        return None

    def choose(
        self, kind: Kind, space: Mapping[str, str] | None, obj: JsonObject | None, old: JsonObject | None
    ) -> bool:
        """Return whether the selectors choose an object (see ``rules.selected``)."""
        if (kind.namespaced or kind is NAMESPACE) and not self.namespaces.matches(space or {}):
            return False
        labels = ((each.get("metadata") or {}).get("labels") or {} for each in (obj, old) if each is not None)
        return self.objects.empty or any(map(self.objects.matches, labels))


def _fits(rule: JsonObject, kind: Kind, asked: ReviewedWrite) -> bool:
    names = rule.get("resourceNames")
    return fits(rule, kind, asked.subresource, asked.operation) and (not names or asked.name in names)


class Binding(NamedTuple):
    """A binding; ``obj`` is it as it is written."""

    name: str
    constraints: Constraints | None
    actions: tuple[str, ...]
    ref: JsonObject | None


class Policy(NamedTuple):
    """A policy with its bindings; ``variables`` in their order."""

    name: str
    fail: bool
    constraints: Constraints
    param_kind: JsonObject | None
    conditions: tuple[Condition, ...]
    variables: tuple[tuple[str, Expression], ...]
    validations: tuple[Validation, ...]
    annotations: tuple[tuple[str, Expression], ...]
    bindings: tuple[Binding, ...]


def compiled(policies: Iterable[JsonObject], bindings: Iterable[JsonObject]) -> tuple[Policy, ...]:
    """Return the policies that have a binding, ordered by name, as their bindings are."""
    bound: dict[str, list[Binding]] = {}
    for each in sorted(bindings, key=name):
        bound.setdefault(spec(each)["policyName"], []).append(_binding(each))
    return tuple(_policy(each, tuple(bound[name(each)])) for each in sorted(policies, key=name) if name(each) in bound)


def _binding(binding: JsonObject) -> Binding:
    declared = spec(binding)
    limits = declared.get("matchResources")
    found = None if limits is None else _constraints(limits)
    return Binding(name(binding), found, tuple(declared.get("validationActions") or ()), declared.get("paramRef"))


def _constraints(written: JsonObject) -> Constraints:
    rules = written.get("resourceRules")
    return Constraints(
        rules=tuple(rules) if rules else None,
        excluded=tuple(written.get("excludeResourceRules") or ()),
        equivalent=written.get("matchPolicy") != "Exact",
        namespaces=from_label_selector(written.get("namespaceSelector") or {}),
        objects=from_label_selector(written.get("objectSelector") or {}),
    )


def _policy(policy: JsonObject, bindings: tuple[Binding, ...]) -> Policy:
    declared = spec(policy)
    names = PolicyNames(params=declared.get("paramKind") is not None)
    variables = tuple(_variables(declared.get("variables") or (), names))
    return Policy(
        name=name(policy),
        fail=declared.get("failurePolicy") != "Ignore",
        constraints=_constraints(declared.get("matchConstraints") or {}),
        param_kind=declared.get("paramKind"),
        conditions=conditions_of(declared.get("matchConditions"), params=names.params),
        variables=variables,
        validations=tuple(_validation(each, names) for each in declared.get("validations") or ()),
        annotations=tuple(
            (each["key"], _expression(each["valueExpression"].strip(), names))
            for each in declared.get("auditAnnotations") or ()
        ),
        bindings=bindings,
    )


def _variables(written: Iterable[JsonObject], names: PolicyNames) -> Iterator[tuple[str, Expression]]:
    for each in written:
        found = _expression(each["expression"], names)
        if found.program is not None:
            names.add(each["name"], found.program)
        yield each["name"], found


def _validation(each: JsonObject, names: PolicyNames) -> Validation:
    computed = each.get("messageExpression")
    return Validation(
        _expression(each["expression"], names),
        (each.get("message") or "").strip(),
        _expression(computed, names, authorizer=False) if computed else None,
        each.get("reason") or "Invalid",
    )


def _expression(source: str, names: PolicyNames, *, authorizer: bool = True) -> Expression:
    try:
        return Expression(source, cel.compile(source, names.environment(authorizer=authorizer)))
    except CompileError as error:  # stored before it was checked
        return Expression(source, None, f"compilation error: compilation failed: {error}")


class Concerned(NamedTuple):
    """A policy that may see a write, and the kind in whose form it is shown the object."""

    policy: Policy
    kind: Kind


def concerned(policies: Iterable[Policy], asked: ReviewedWrite, kinds: Registry = KINDS) -> Iterator[Concerned]:
    """Yield the policies whose rules speak of a request."""
    if not exempt(asked.kind):
        for policy in policies:
            kind = policy.constraints.kind_meant(asked, kinds)
            if kind is not None:
                yield Concerned(policy, kind)
