"""All rules of a schema compiled once, and what is wrong with them (apiextensions, validation.go, cel_validation.go).

A ``CompiledSchema`` parallels the schema and has nodes only where rules are, and on the way there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from minik8s_modules.cel.running.reading import Read, reader
from minik8s_modules.cel.schema.costs import MOST_A_RULE, TotalCost, cardinality_below, cost_error, rule_cost
from minik8s_modules.cel.schema.declared import MAX_REQUEST, declare, is_root, least_size
from minik8s_modules.cel.schema.names import escape
from minik8s_modules.cel.schema.rules import Rule, SchemaError, compile_rule, declaration_errors
from minik8s_modules.cel.types import Type

RULES = "x-kubernetes-validations"
_NO_TYPE = "unable to convert structural schema to CEL declarations"
Schema = Mapping[str, Any]


@dataclass(frozen=True)
class CompiledSchema:
    """Rules of one schema and of those below it."""

    schema: Schema
    rules: tuple[Rule, ...] = ()
    read: Read | None = None
    items: CompiledSchema | None = None
    entries: CompiledSchema | None = None
    properties: Mapping[str, CompiledSchema] = field(default_factory=dict)
    all_of: tuple[CompiledSchema, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is no rule here or below."""
        return not (self.rules or self.items or self.entries or self.properties or self.all_of)


@dataclass(frozen=True)
class Place:
    """Where in a schema we are: path, type, how often it can occur (None: no bound), where oldSelf ended."""

    path: str
    kind: Type | None
    cardinality: int | None = 1
    uncorrelatable: str = ""


@dataclass
class Findings:
    """What was found wrong: with declarations (then nothing above them is compiled), and with expressions."""

    declared: list[SchemaError] = field(default_factory=list)
    compiled: list[SchemaError] = field(default_factory=list)
    total: TotalCost = field(default_factory=TotalCost)


def compile_schema(schema: Schema, path: str = "openAPIV3Schema") -> tuple[CompiledSchema, list[SchemaError]]:
    """Return the compiled rules of a resource's schema, and what is wrong with them (an empty list: all is well).

    ``path`` is the field of the schema, for the errors. Nothing is raised; what does not compile is an error here,
    and fails every object that it would apply to.
    """
    findings = Findings()
    kind = declare(schema, "selfType", root=True) if _has_rules(schema) else None
    compiled = compile_node(schema, schema, Place(path, kind), findings, root=True)
    return compiled, findings.declared + findings.compiled + list(findings.total.errors(path))


def _has_rules(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return False
    below = [schema.get("items"), schema.get("additionalProperties")]
    below += [*(schema.get("properties") or {}).values(), *(schema.get("allOf") or ())]
    return bool(schema.get(RULES)) or any(map(_has_rules, below))


def compile_node(node: Schema, schema: Schema, place: Place, findings: Findings, *, root: bool) -> CompiledSchema:
    """Compile the rules of ``node`` against ``schema``: the same, or what ``node`` is an allOf of."""
    before = len(findings.declared)
    compiled = CompiledSchema(
        schema,
        items=_below(node, schema, "items", "@idx", place, findings),
        entries=_below(node, schema, "additionalProperties", "@elem", place, findings),
        properties=dict(_properties(node, schema, place, findings)),
        all_of=tuple(_all_of(node, schema, place)),
    )
    rules = node.get(RULES) or ()
    for at, rule in enumerate(rules):
        findings.declared += declaration_errors(rule, schema, f"{place.path}.{RULES}[{at}]")
    if not rules or len(findings.declared) > before:
        return compiled
    kind = place.kind or declare(schema, "selfType", root=root)
    if kind is None:
        detail = f"internal error: failed to construct type information for {RULES} rules: {_NO_TYPE}"
        findings.compiled.append(SchemaError(f"{place.path}.{RULES}", "InternalError", None, detail))
        return compiled
    made = tuple(compile_rule(rule, schema, kind) for rule in rules)
    for at, each in enumerate(made):
        findings.compiled += _rule_errors(
            each, replace(place, path=f"{place.path}.{RULES}[{at}]", kind=kind), findings.total
        )
    return replace(compiled, rules=made, read=reader(kind))


def _below(
    node: Schema, schema: Schema, name: str, part: str, place: Place, findings: Findings
) -> CompiledSchema | None:
    child, against = node.get(name), schema.get(name)
    if not isinstance(child, Mapping) or not isinstance(against, Mapping) or not _has_rules(child):
        return None
    del part
    kind = place.kind.params[-1] if place.kind is not None and place.kind.params else None
    lost = name == "items" and schema.get("x-kubernetes-list-type") != "map"
    inner = Place(
        f"{place.path}.{name}",
        kind,
        cardinality_below(schema, place.cardinality),
        place.path if lost else place.uncorrelatable,
    )
    compiled = compile_node(child, against, inner, findings, root=is_root(against))
    return None if compiled.empty else compiled


def _properties(node: Schema, schema: Schema, place: Place, findings: Findings) -> Iterator[tuple[str, CompiledSchema]]:
    fields = place.kind.declared.fields if place.kind is not None and place.kind.declared else {}
    cardinality = cardinality_below(schema, place.cardinality)
    for name, child in (node.get("properties") or {}).items():
        against = (schema.get("properties") or {}).get(name)
        if not isinstance(against, Mapping) or not _has_rules(child):
            continue
        known = fields.get(escape(name) or "")
        path = f"{place.path}.properties[{name}]"
        inner = Place(path, known.type if known else None, cardinality, place.uncorrelatable)
        compiled = compile_node(child, against, inner, findings, root=is_root(against))
        if not compiled.empty:
            yield name, compiled


def _all_of(node: Schema, schema: Schema, place: Place) -> Iterator[CompiledSchema]:
    """Rules within allOf: upstream compiles them when objects are validated, and reports nothing before."""
    for at, child in enumerate(node.get("allOf") or ()):
        if _has_rules(child):
            yield compile_node(child, schema, replace(place, path=f"{place.path}.allOf[{at}]"), Findings(), root=False)


def _rule_errors(rule: Rule, place: Place, total: TotalCost) -> Iterator[SchemaError]:
    kind = place.kind
    least = least_size(kind) if kind else 0
    cost = rule_cost(rule.cost, place.cardinality, MAX_REQUEST // (least + 1))
    if cost > MOST_A_RULE:
        yield SchemaError(f"{place.path}.rule", "Forbidden", None, cost_error("estimated rule cost", cost, MOST_A_RULE))
    total.add(f"{place.path}.rule", cost)
    if rule.failure:
        yield SchemaError(f"{place.path}.rule", "Invalid", rule.declared, rule.failure)
    yield from _message_errors(rule, f"{place.path}.messageExpression", total)
    if rule.uses_old and place.uncorrelatable:
        detail = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {place.uncorrelatable}"
        yield SchemaError(f"{place.path}.rule", "Invalid", rule.declared["rule"], detail)
    elif not rule.uses_old and rule.declared.get("optionalOldSelf") is not None:
        detail = "may not be set if oldSelf is not used in rule"
        yield SchemaError(f"{place.path}.optionalOldSelf", "Invalid", rule.declared["optionalOldSelf"], detail)


def _message_errors(rule: Rule, path: str, total: TotalCost) -> Iterator[SchemaError]:
    if rule.message_failure:
        yield SchemaError(path, "Invalid", rule.declared, rule.message_failure)
    elif rule.message is not None:
        if rule.message_cost > MOST_A_RULE:
            detail = cost_error("estimated messageExpression cost", rule.message_cost, MOST_A_RULE)
            yield SchemaError(path, "Forbidden", None, detail)
        total.add(path, rule.message_cost)
