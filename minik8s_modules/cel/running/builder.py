"""Every node becomes a ``Code``; variables get slots of the frame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from minik8s_modules.cel.environment import TYPE_NAMES
from minik8s_modules.cel.errors import EvaluationError, no_such_overload
from minik8s_modules.cel.libraries import regex
from minik8s_modules.cel.running import attributes, calls, costs, folds, logic
from minik8s_modules.cel.running.code import FIRST_SLOT, Code, Frame, Run
from minik8s_modules.cel.syntax.nodes import Call, Fold, Ident, ListNode, Literal, MapNode, Node, OptMap, Select
from minik8s_modules.cel.values import NONE, Optional, key_of


@dataclass
class Builder:
    """``slots``: where the variables of the environment are; ``size``: how long a frame must be."""

    slots: dict[str, int] = field(default_factory=dict)
    size: int = FIRST_SLOT
    _scopes: list[dict[str, int]] = field(default_factory=list)

    def build(self, node: Node) -> Code:
        """Return the code of a checked node."""
        return _BUILDERS[type(node)](self, node)

    def slot(self) -> int:
        """Return a slot that nothing else uses."""
        self.size += 1
        return self.size - 1

    def within(self, names: dict[str, int], *nodes: Node | None) -> list[Code | None]:
        """Return the code of nodes that see these names."""
        self._scopes.append(names)
        built = [None if node is None else self.build(node) for node in nodes]
        self._scopes.pop()
        return built

    def ident(self, node: Ident) -> Code:
        """Return the code of a variable, or a type that is named."""
        for scope in reversed(self._scopes):
            if node.name in scope:
                return attributes.variable(scope[node.name], node.name)
        if node.type.kind == "type" and node.name in TYPE_NAMES and node.name not in self.slots:
            return _constant(TYPE_NAMES[node.name])
        if node.name not in self.slots:
            self.slots[node.name] = self.slot()
        return attributes.variable(self.slots[node.name], node.name)

    def select(self, node: Select) -> Code:
        """Return the code of a field, or whether there is one."""
        if node.type.kind == "type" and node.operand.type.kind == "dyn" and (name := _type_name(node)):
            return _constant(TYPE_NAMES[name])
        operand = self.build(node.operand)
        if node.test:
            return attributes.has(operand, node.operand.type, node.name)
        return attributes.select(operand, node.operand.type, node.name, optional=node.optional)

    def call(self, node: Call) -> Code:
        """Return the code of a function or operator."""
        parts = ([] if node.target is None else [node.target]) + node.args
        args = [self.build(part) for part in parts]
        special = _SPECIAL_CALLS.get(node.function)
        if special is not None and (node.function not in {"or", "orValue"} or node.target is not None):
            return special(node, args)
        if node.overloads == ["in_list"] and args[1].constant:
            return calls.membership(args[0], args[1].run([]), node.args[1].type)
        if node.function in {"find", "findAll"} and args[1].constant:
            regex.compiled(args[1].run([]))  # what is no pattern is told now
        code = calls.call(node.function, node.overloads, args, [part.type for part in parts])
        return _folded(code) if node.function in _CONVERSIONS and args[0].constant else code

    def list(self, node: ListNode) -> Code:
        """Return the code of a list."""
        items = [self.build(item) for item in node.items]
        if all(item.constant for item in items) and not node.optional:
            return _constant([item.run([]) for item in items])
        cost = sum(item.cost for item in items) + costs.LIST
        runs = [item.run for item in items]
        if not node.optional:
            return Code(lambda frame: [run(frame) for run in runs], cost)
        return Code(_optional_items(runs, node.optional), cost)

    def map(self, node: MapNode) -> Code:
        """Return the code of a map."""
        entries = [(self.build(key), self.build(value), optional) for key, value, optional in node.entries]
        cost = sum(key.cost + value.cost for key, value, _ in entries) + costs.MAP
        run = _entries([(key.run, value.run, optional) for key, value, optional in entries])
        if all(key.constant and value.constant and not optional for key, value, optional in entries):
            return Code(run, 0)._replace(constant=not entries)
        return Code(run, cost)

    def fold(self, node: Fold) -> Code:
        """Return the code of a macro that loops."""
        source = self.build(node.range)
        slots = tuple(self.slot() for _ in node.variables)
        test, result = self.within(dict(zip(node.variables, slots, strict=True)), node.test, node.result)
        if node.kind in {"all", "exists"} and test:
            return folds.quantifier(source, slots, test, decisive=node.kind == "exists")
        if node.kind == "exists_one" and test:
            return folds.exactly_one(source, slots, test)
        assert result is not None  # noqa: S101 - every other kind collects
        return folds.collecting(node.kind, source, slots, test, result)

    def opt_map(self, node: OptMap) -> Code:
        """Return the code of ``optMap`` or ``optFlatMap``."""
        option = self.build(node.target)
        slot = self.slot()
        (body,) = self.within({node.name: slot}, node.body)
        assert body is not None  # noqa: S101 - an OptMap has a body
        return logic.mapped(option, slot, body, flat=node.flat)


def _constant(value: Any) -> Code:
    return Code(lambda _: value, constant=True)


def _folded(code: Code) -> Code:
    """Return the value of a conversion of a constant, which upstream computes beforehand and does not count."""
    try:
        return _constant(code.run([0, PER_EXPRESSION]))
    except EvaluationError:
        return code


def _type_name(node: Node) -> str | None:
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and (prefix := _type_name(node.operand)):
        name = f"{prefix}.{node.name}"
        return name if name in TYPE_NAMES or node.type.kind != "type" else None
    return None


def _literal(_: Builder, node: Literal) -> Code:
    return _constant(node.value)


def _optional_items(runs: list[Run], optional: frozenset[int]) -> Run:
    def items(frame: Frame) -> list[Any]:
        found = []
        for at, run in enumerate(runs):
            value = run(frame)
            if at in optional:
                if value.__class__ is not Optional:
                    raise no_such_overload()
                if not value.present:
                    continue
                value = value.value
            found.append(value)
        return found

    return items


def _entries(entries: list[tuple[Run, Run, bool]]) -> Run:
    def mapping(frame: Frame) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key_run, value_run, optional in entries:
            key, value = key_run(frame), value_run(frame)
            if optional and value.__class__ is Optional:
                if not value.present:
                    continue
                value = value.value
            found[key_of(key)] = value
        return found

    return mapping


def _index(node: Call, args: list[Code]) -> Code:
    return attributes.index(args[0], node.args[0].type, args[1], optional=node.function == "_[?_]")


def _none(_: Call, __: list[Code]) -> Code:
    return Code(lambda _: NONE, 1)


PER_EXPRESSION = 1_000_000  # cost units (apiserver, pkg/apis/cel/config.go): about 0.1 s upstream
_CONVERSIONS = frozenset({"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"})
_SPECIAL_CALLS: dict[str, Callable[[Call, list[Code]], Code]] = {
    "_&&_": lambda _, args: logic.junction(args, decisive=False),
    "_||_": lambda _, args: logic.junction(args, decisive=True),
    "_?_:_": lambda _, args: logic.choice(*args),
    "_[_]": _index,
    "_[?_]": _index,
    "or": lambda _, args: logic.alternative(args[0], args[1], unwrap=False),
    "orValue": lambda _, args: logic.alternative(args[0], args[1], unwrap=True),
    "optional.none": _none,
}
_BUILDERS: dict[type[Node], Callable[..., Code]] = {
    Literal: _literal,
    Ident: Builder.ident,
    Select: Builder.select,
    Call: Builder.call,
    ListNode: Builder.list,
    MapNode: Builder.map,
    Fold: Builder.fold,
    OptMap: Builder.opt_map,
}
