"""Types of all nodes, and which overloads their functions may be: cel-go's checker/checker.go.

Mistakes are collected, not raised one by one; a node with one has the type ``error``, which fits everything, so that
one mistake is told once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from minik8s_modules.cel import declarations, types
from minik8s_modules.cel.checking.constants import issues_in
from minik8s_modules.cel.checking.unify import Substitutions, fit, most_general, substitute
from minik8s_modules.cel.checking.walk import children
from minik8s_modules.cel.declarations import Overload
from minik8s_modules.cel.environment import TYPE_NAMES, Environment
from minik8s_modules.cel.errors import CelTypeError, Issue, issue_at
from minik8s_modules.cel.syntax.nodes import (
    Call,
    Fold,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    OptMap,
    Select,
    StructNode,
)
from minik8s_modules.cel.types import Type


@dataclass(frozen=True)
class Checked:
    """An expression whose nodes have types, and the variables it names."""

    tree: Node
    names: frozenset[str]


def check(source: str, tree: Node, environment: Environment) -> Checked:
    """Return the tree with types; raises CelTypeError with all mistakes."""
    checker = _Checker(source, environment)
    checker.node(tree)
    checker.settle(tree)
    issues = checker.issues or [issue_at(source, at, text) for at, text in issues_in(tree)]
    if issues:
        raise CelTypeError(source, issues)
    return Checked(tree, frozenset(checker.names))


@dataclass
class _Checker:
    source: str
    environment: Environment
    issues: list[Issue] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    known: Substitutions = field(default_factory=dict)
    fresh: int = 0
    scopes: list[dict[str, Type]] = field(default_factory=list)

    # helpers

    def issue(self, node: Node, message: str) -> Type:
        """Note a mistake; the type of what is mistaken."""
        self.issues.append(issue_at(self.source, node.position, message))
        return types.ERROR

    def variable(self) -> Type:
        """A type parameter that nothing else uses."""
        self.fresh += 1
        return types.param(f"_var{self.fresh}")

    def found(self, name: str) -> Type | None:
        """Return the type of a name, or None."""
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        if (declared := self.environment.variables.get(name)) is not None:
            self.names.add(name)
            return declared
        return types.type_of(TYPE_NAMES[name]) if name in TYPE_NAMES else None

    @contextmanager
    def scope(self, names: dict[str, Type]) -> Iterator[None]:
        """Names that are known within."""
        self.scopes.append(names)
        yield
        self.scopes.pop()

    def expect(self, node: Node, wanted: Type) -> None:
        """Note a mistake unless the node fits the type."""
        if not fit(self.known, [wanted], [node.type]):
            self.issue(node, f"expected type '{wanted}' but found '{self.settled(node.type)}'")

    def no_overload(self, node: Node, function: str, given: list[Type]) -> Type:
        """Note that a function has no form for these types."""
        signature = ", ".join(str(self.settled(each)) for each in given)
        return self.issue(node, f"found no matching overload for '{function}' applied to '({signature})'")

    def settled(self, kind: Type) -> Type:
        """The type with parameters replaced, as messages name it."""
        return substitute(self.known, kind, unbound_is_dyn=True)

    def settle(self, tree: Node) -> None:
        """Replace all type parameters in the tree."""
        tree.type = self.settled(tree.type)
        for child in children(tree):
            self.settle(child)

    # nodes

    def node(self, node: Node) -> Type:
        """Give the node and all below their types."""
        node.type = _CHECKS[type(node)](self, node)
        return node.type

    def literal(self, node: Literal) -> Type:
        return node.kind

    def ident(self, node: Ident) -> Type:
        found = self.found(node.name)
        return found or self.issue(node, f"undeclared reference to '{node.name}' (in container '')")

    def struct(self, node: StructNode) -> Type:
        return self.issue(node, f"undeclared reference to '{node.name}' (in container '')")

    def select(self, node: Select) -> Type:
        if (name := _qualified(node)) is not None and name in TYPE_NAMES and not node.test:
            node.operand.type = types.DYN
            return types.type_of(TYPE_NAMES[name])
        result = self.field(node)
        return types.BOOL if node.test else substitute(self.known, result)

    def field(self, node: Select) -> Type:
        operand = substitute(self.known, self.node(node.operand))
        optional = types.is_optional(operand)
        target = operand.params[0] if optional else operand
        result = self.field_type(node, target)
        return types.optional_of(result) if optional or node.optional else result

    def field_type(self, node: Select, target: Type) -> Type:
        if target.kind == "map":
            return target.params[1]
        if target.kind == "object":
            fields = target.declared.fields if target.declared else {}
            name = node.name if node.name in fields else f"__{node.name}__"  # a keyword may stand as it is
            if name not in fields:
                return self.issue(node, f"undefined field '{node.name}'")
            node.name = name
            return fields[name].type
        if target.kind == "param":
            fit(self.known, [types.DYN], [target])
        elif target.kind not in {"dyn", "error"}:
            self.issue(node, f"type '{target}' does not support field selection")
        return types.DYN

    def call(self, node: Call) -> Type:
        if node.target is not None and (prefix := _qualified(node.target)) is not None:
            full = f"{prefix}.{node.function}"
            if full in declarations.functions():
                node.function, node.target = full, None
        args = ([] if node.target is None else [node.target]) + node.args
        for arg in args:
            self.node(arg)
        if node.function in {"_&&_", "_||_"}:
            return self.logical(node)
        overloads = declarations.functions().get(node.function)
        if overloads is None:
            return self.issue(node, f"undeclared reference to '{node.function}' (in container '')")
        return self.resolve(node, overloads, [arg.type for arg in args])

    def logical(self, node: Call) -> Type:
        node.overloads = ["logical_and" if node.function == "_&&_" else "logical_or"]
        before = len(self.issues)
        for arg in node.args:
            self.expect(arg, types.BOOL)
        return types.BOOL if len(self.issues) == before else types.ERROR

    def resolve(self, node: Call, overloads: Sequence[Overload], given: list[Type]) -> Type:
        result: Type | None = None
        for overload in overloads:
            if overload.member != (node.target is not None):
                continue
            fresh: Substitutions = {}
            wanted = [self.instance(each, fresh) for each in overload.params]
            if not fit(self.known, given, wanted):
                continue
            node.overloads.append(overload.id)
            this = substitute(self.known, self.instance(overload.result, fresh))
            if result is None:
                result = this
            elif result.kind != "dyn" and this != result:
                result = types.DYN
        if result is None:
            return self.issue(node, _no_overload(node, [self.settled(each) for each in given]))
        return given[0] if node.overloads == ["add_list"] and given[0].declared else result

    def instance(self, kind: Type, fresh: Substitutions) -> Type:
        """Return an overload's type with parameters of this call."""
        if kind.kind == "param":
            if kind not in fresh:
                fresh[kind] = self.variable()
            return fresh[kind]
        if not kind.params:
            return kind
        return Type(kind.kind, kind.name, tuple(self.instance(each, fresh) for each in kind.params))

    def join(self, previous: Type | None, current: Type) -> Type:
        """The type of items of both types: cel-go makes it dyn where they do not fit."""
        if previous is None:
            return current
        return most_general(previous, current) if fit(self.known, [previous], [current]) else types.DYN

    def member_type(self, node: Node, *, optional: bool) -> Type:
        kind = self.node(node)
        if not optional:
            return kind
        if types.is_optional(kind):
            return kind.params[0]
        return (
            kind
            if kind.kind == "dyn"
            else self.issue(node, f"expected type '{types.optional_of(kind)}' but found '{kind}'")
        )

    def list(self, node: ListNode) -> Type:
        item: Type | None = None
        for at, each in enumerate(node.items):
            item = self.join(item, self.member_type(each, optional=at in node.optional))
        return types.list_of(item or self.variable())

    def map(self, node: MapNode) -> Type:
        key: Type | None = None
        value: Type | None = None
        for name, each, optional in node.entries:
            key = self.join(key, self.node(name))
            value = self.join(value, self.member_type(each, optional=optional))
        return types.map_of(key or self.variable(), value or self.variable())

    # macros

    def fold(self, node: Fold) -> Type:
        ranged = substitute(self.known, self.node(node.range))
        names = dict(zip(node.variables, self.loop_types(node, ranged), strict=False))
        with self.scope(names):
            for part in (node.test, node.result):
                if part is not None:
                    self.node(part)
            result = self.folded(node, names)
            if node.test is not None and node.kind in {"all", "exists"}:
                self.expect(node.test, types.BOOL)
            elif node.test is not None and not fit(self.known, [node.test.type], [types.BOOL]):
                kinds = [node.test.type, *([types.INT if node.result is None else result] * 2)]
                self.no_overload(node.test, "_?_:_", kinds)
            return result

    def folded(self, node: Fold, names: dict[str, Type]) -> Type:
        if node.result is None:
            return types.BOOL
        result = substitute(self.known, node.result.type)
        if node.kind == "list":
            return types.list_of(result)
        if node.kind == "map":
            return types.map_of(names[node.variables[0]], result)
        wanted = types.map_of(self.variable(), self.variable())
        if not fit(self.known, [node.result.type], [wanted]):
            self.no_overload(node.result, "cel.@mapInsert", [wanted, node.result.type])
        return substitute(self.known, wanted)

    def loop_types(self, node: Fold, ranged: Type) -> tuple[Type, Type]:
        if ranged.kind == "list":
            item = ranged.params[0]
            return (types.INT, item) if len(node.variables) > 1 else (item, item)
        if ranged.kind == "map":
            return ranged.params[0], ranged.params[1]
        if ranged.kind in {"dyn", "error", "param"}:
            fit(self.known, [types.DYN], [ranged])
            return types.DYN, types.DYN
        text = f"expression of type '{ranged}' cannot be range of a comprehension (must be list, map, or dynamic)"
        self.issue(node.range, text)
        return types.ERROR, types.ERROR

    def opt_map(self, node: OptMap) -> Type:
        value = self.variable()
        self.node(node.target)
        if not fit(self.known, [node.target.type], [types.optional_of(value)]):
            return self.issue(node, f"found no matching overload for 'hasValue' applied to '{node.target.type}.()'")
        with self.scope({node.name: substitute(self.known, value)}):
            body = self.node(node.body)
        if node.flat:
            self.expect(node.body, types.optional_of(self.variable()))
            return substitute(self.known, body)
        return types.optional_of(substitute(self.known, body))


_CHECKS: dict[type[Node], Callable[..., Type]] = {
    Literal: _Checker.literal,
    Ident: _Checker.ident,
    Select: _Checker.select,
    Call: _Checker.call,
    ListNode: _Checker.list,
    MapNode: _Checker.map,
    StructNode: _Checker.struct,
    Fold: _Checker.fold,
    OptMap: _Checker.opt_map,
}


def _no_overload(node: Call, given: list[Type]) -> str:
    if node.target is None:
        signature = f"({', '.join(map(str, given))})"
    else:
        signature = f"{given[0]}.({', '.join(map(str, given[1:]))})"
    return f"found no matching overload for '{node.function}' applied to '{signature}'"


def _qualified(node: Node) -> str | None:
    """Return ``a.b.c`` for selections from a name, else None."""
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.test and not node.optional:
        prefix = _qualified(node.operand)
        return f"{prefix}.{node.name}" if prefix is not None else None
    return None
