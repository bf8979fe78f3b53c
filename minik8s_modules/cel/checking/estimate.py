"""The most that evaluating an expression can cost, from what a schema says about sizes: cel-go's checker/cost.go.

A path names where a value comes from (``self``, fields, ``@items``, ``@keys``, ``@values``); the size of what lies
there is what the schema allows at most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from minik8s_modules.cel.checking import call_costs
from minik8s_modules.cel.checking.call_costs import Estimate, Operand
from minik8s_modules.cel.checking.ranges import ANY, ONE, ZERO, Range, exactly, total
from minik8s_modules.cel.syntax.nodes import Call, Fold, Ident, ListNode, Literal, MapNode, Node, OptMap, Select
from minik8s_modules.cel.types import SCALARS, Type

_LIST, _MAP = exactly(10), exactly(30)
_CONDITIONS = {"all": exactly(2), "exists": exactly(3)}


def estimate(tree: Node, root: Type | None) -> Range:
    """Return least and most cost of an expression; ``root`` is the declared type of ``self``, if there is a schema."""
    return _Estimator(root).cost(tree)


@dataclass
class _Estimator:
    root: Type | None
    paths: dict[int, tuple[str, ...]] = field(default_factory=dict)
    sizes: dict[int, Range] = field(default_factory=dict)
    loops: dict[str, list[Node]] = field(default_factory=dict)

    def cost(self, node: Node) -> Range:
        """Return the cost of a node with all below it."""
        return _COSTS[type(node)](self, node)

    # sizes

    def operand(self, node: Node) -> Operand:
        """Return a node as costs of calls look at it."""
        return Operand(node.type, self.paths.get(id(node), ()), self.known_size(node), node, self.declared_size)

    def known_size(self, node: Node) -> Range | None:
        """Return the size that the expression itself tells, or None."""
        if (found := self.sizes.get(id(node))) is not None:
            return found
        if isinstance(node, Literal):
            return exactly(len(node.value) if node.value.__class__ in {str, bytes} else 1)
        if isinstance(node, ListNode):
            return exactly(len(node.items))
        return exactly(len(node.entries)) if isinstance(node, MapNode) else None

    def declared_size(self, path: tuple[str, ...]) -> Range | None:
        """Return the size that the schema allows for what lies at a path."""
        kind = self.root
        if not path or kind is None:
            return None
        for name in path[1:]:
            kind = _below(kind, name)
            if kind is None:
                return None
        return Range(0, (kind.declared.max_elements or 0) if kind.declared else 0)

    def size(self, node: Node) -> Range:
        """Return the size of a value, as well as it is known."""
        found = self.known_size(node) or self.declared_size(self.paths.get(id(node), ()))
        if found is not None:
            return found
        return ONE if node.type.kind in SCALARS else ANY

    # nodes

    def literal(self, _: Literal) -> Range:
        return ZERO

    def ident(self, node: Ident) -> Range:
        path: tuple[str, ...] = (node.name,)
        if loops := self.loops.get(node.name):
            ranged = loops[-1]
            below = {"list": "@items", "map": "@keys"}.get(ranged.type.kind)
            path = (*self.paths.get(id(ranged), ()), below) if below else ()
        self.paths[id(node)] = path
        return ONE

    def select(self, node: Select) -> Range:
        if node.type.kind == "type" and node.operand.type.kind == "dyn":
            self.paths[id(node)] = (node.name,)
            return ONE  # the qualified name of a type
        operand = self.cost(node.operand)
        if node.test:
            return operand
        if node.optional:
            return operand.plus(ONE)
        self.paths[id(node)] = (*self.paths.get(id(node.operand), ()), node.name)
        return operand.plus(ONE) if node.operand.type.kind in {"map", "object", "param"} else operand

    def call(self, node: Call) -> Range:
        if node.function in {"_&&_", "_||_"}:
            costs = [self.cost(arg) for arg in node.args]
            return Range(costs[0].least, total(costs).most)
        target = ZERO if node.target is None else self.cost(node.target)
        args = [self.cost(arg) for arg in node.args]
        if node.function == "_?_:_":
            self.sizes[id(node)] = self.size(node.args[1]).either(self.size(node.args[2]))
            return args[0].plus(args[1].either(args[2]))
        own = self.of_overloads(node)
        if (below := {"index_list": "@items", "index_map": "@values"}.get(node.overloads[-1])) is not None:
            self.paths[id(node)] = (*self.paths.get(id(node.args[0]), ()), below)
        return target.plus(total(args)).plus(own)

    def of_overloads(self, node: Call) -> Range:
        target = None if node.target is None else self.operand(node.target)
        operands = [self.operand(arg) for arg in node.args]
        found: list[Estimate] = [
            call_costs.estimate(node.function, overload, target, operands) for overload in node.overloads
        ]
        sizes = [each.size for each in found if each.size is not None]
        if sizes:
            self.sizes[id(node)] = _union(sizes)
        return _union([each.cost for each in found])

    def list(self, node: ListNode) -> Range:
        return total([self.cost(item) for item in node.items]).plus(_LIST)

    def map(self, node: MapNode) -> Range:
        return total([self.cost(part) for key, value, _ in node.entries for part in (key, value)]).plus(_MAP)

    def fold(self, node: Fold) -> Range:
        ranged = self.cost(node.range)
        self.loops.setdefault(node.variables[0], []).append(node.range)
        test = ZERO if node.test is None else self.cost(node.test)
        result = ZERO if node.result is None else self.cost(node.result)
        self.loops[node.variables[0]].pop()
        count = self.size(node.range)
        self.sizes[id(node)] = count
        start, step, end = _fold_costs(node, test, result)
        return ranged.plus(start).plus(count.times(step)).plus(end)

    def opt_map(self, node: OptMap) -> Range:
        target = self.cost(node.target)
        body = self.cost(node.body)
        present = target.plus(body).plus(exactly(11 if node.flat else 12))
        return target.plus(ONE).plus(present.either(ONE))


_COSTS: dict[type[Node], Callable[..., Range]] = {
    Literal: _Estimator.literal,
    Ident: _Estimator.ident,
    Select: _Estimator.select,
    Call: _Estimator.call,
    ListNode: _Estimator.list,
    MapNode: _Estimator.map,
    Fold: _Estimator.fold,
    OptMap: _Estimator.opt_map,
}


def _fold_costs(node: Fold, test: Range, result: Range) -> tuple[Range, Range, Range]:
    """Return what a loop costs to begin, for each step, and to end."""
    if node.kind in _CONDITIONS:
        return ZERO, _CONDITIONS[node.kind].plus(Range(1, min(test.most + 1, ANY.most))), ONE
    if node.kind == "exists_one":
        return ZERO, test.plus(Range(1, 2)), exactly(2)
    start, beyond = {"list": (_LIST, 12), "map": (_MAP, 3), "entries": (_MAP, 2)}[node.kind]
    step = result.plus(exactly(beyond))
    return start, step if node.test is None else test.plus(step.either(ONE)), ONE


def _below(kind: Type, name: str) -> Type | None:
    if name in {"@items", "@values"}:
        return kind.params[-1] if kind.kind in {"list", "map"} else None
    if name == "@keys":
        return kind.params[0] if kind.kind == "map" else None
    found = kind.declared.fields.get(name) if kind.declared else None
    return found.type if found else None


def _union(ranges: list[Range]) -> Range:
    result = ranges[0]
    for each in ranges[1:]:
        result = result.either(each)
    return result
