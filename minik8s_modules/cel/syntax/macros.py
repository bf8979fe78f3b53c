"""Macros: calls that are not functions, for they bind names or ask about a field.

cel-go expands them into one general loop; here a macro stays a ``Fold`` with its kind, so that it runs as a loop of
its kind, and the two cost models count what the general loop would.
"""

from __future__ import annotations

from minik8s_modules.cel.syntax.nodes import Fold, Ident, Node, OptMap, Select

ACCUMULATOR = "__result__"


class BadMacro(Exception):
    """A macro whose arguments do not fit."""

    def __init__(self, position: int, message: str) -> None:
        self.position = position
        super().__init__(message)


# name -> what it collects, and whether a predicate precedes the result, by number of arguments
_ONE_VARIABLE = {
    ("all", 2): ("all", True, False),
    ("exists", 2): ("exists", True, False),
    ("exists_one", 2): ("exists_one", True, False),
    ("map", 2): ("list", False, True),
    ("map", 3): ("list", True, True),
    ("filter", 2): ("list", True, False),
}
_TWO_VARIABLES = {
    ("all", 3): ("all", True, False),
    ("exists", 3): ("exists", True, False),
    ("exists_one", 3): ("exists_one", True, False),
    ("existsOne", 3): ("exists_one", True, False),
    ("transformList", 3): ("list", False, True),
    ("transformList", 4): ("list", True, True),
    ("transformMap", 3): ("map", False, True),
    ("transformMap", 4): ("map", True, True),
    ("transformMapEntry", 3): ("entries", False, True),
    ("transformMapEntry", 4): ("entries", True, True),
}


def expand(position: int, function: str, target: Node | None, args: list[Node]) -> Node | None:
    """Return what a call stands for if it is a macro, else None; raises BadMacro."""
    if target is None:
        return _has(position, args[0]) if function == "has" and len(args) == 1 else None
    if function in {"optMap", "optFlatMap"} and len(args) == 2:  # noqa: PLR2004 - name and body
        name = _variable(args[0], f"{function}() variable name must be a simple identifier")
        return OptMap(target, name, args[1], function == "optFlatMap", position=position)
    key = (function, len(args))
    if shape := _ONE_VARIABLE.get(key):
        listing = function in {"map", "filter"}
        name = _variable(args[0], "argument is not an identifier" if listing else "argument must be a simple name")
        return _fold(position, target, (name,), shape, args[1:])
    if shape := _TWO_VARIABLES.get(key):
        return _fold(position, target, _two(args), shape, args[2:])
    return None


def _has(position: int, field: Node) -> Node:
    if isinstance(field, Select) and not field.test and not field.optional:
        return Select(field.operand, field.name, test=True, position=position)
    raise BadMacro(field.position, "invalid argument to has() macro")


def _fold(position: int, target: Node, names: tuple[str, ...], shape: tuple[str, bool, bool], rest: list[Node]) -> Node:
    kind, tested, collected = shape
    test = rest[0] if tested else None
    result = rest[-1] if collected else None
    if kind == "list" and result is None:  # filter collects the items themselves
        result = Ident(names[0], position=rest[0].position)
    return Fold(kind, target, names, test, result, position=position)


def _two(args: list[Node]) -> tuple[str, str]:
    first, second = (_variable(arg, "argument must be a simple name") for arg in args[:2])
    if first == second:
        raise BadMacro(args[1].position, f"duplicate variable name: {first}")
    return first, second


def _variable(node: Node, message: str) -> str:
    if not isinstance(node, Ident):
        raise BadMacro(node.position, message)
    if node.name == ACCUMULATOR:
        raise BadMacro(node.position, "iteration variable overwrites accumulator variable")
    return node.name
