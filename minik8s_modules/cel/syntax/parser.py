"""A parser by precedence: one method a level of the grammar that nests, a loop for everything that only repeats.

Text that nests deeper than ``MAX_DEPTH`` is refused (cel-go's default), and so is text beyond ``MAX_LENGTH``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

from minik8s_modules.cel import types
from minik8s_modules.cel.errors import CelSyntaxError, issue_at
from minik8s_modules.cel.syntax import literals, macros
from minik8s_modules.cel.syntax.lexer import Token, tokens
from minik8s_modules.cel.syntax.nodes import Call, Ident, ListNode, Literal, MapNode, Node, Select, StructNode

MAX_DEPTH = 250
MAX_LENGTH = 100_000  # code points (cel-go, parser/options.go)
RESERVED = frozenset(
    ["as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
     "package", "namespace", "null", "return", "true", "var", "void", "while"]
)  # fmt: skip
_BINARY = {"<": 1, "<=": 1, ">": 1, ">=": 1, "==": 1, "!=": 1, "in": 1, "+": 2, "-": 2, "*": 3, "/": 3, "%": 3}
_CONSTANTS = {"true": (True, types.BOOL), "false": (False, types.BOOL), "null": (None, types.NULL)}
_Value = TypeVar("_Value")


def parse(source: str) -> Node:
    """Return the tree of an expression with macros expanded; raises CelSyntaxError."""
    if len(source) > MAX_LENGTH:
        message = f"expression code point size exceeds limit: size: {len(source)}, limit {MAX_LENGTH}"
        raise CelSyntaxError("", [issue_at("", 0, message)])
    try:
        return _Parser(source).whole()
    except RecursionError:
        raise _too_deep(source) from None


def _too_deep(source: str) -> CelSyntaxError:
    return CelSyntaxError(source, [issue_at(source, 0, f"max recursion depth exceeded: {MAX_DEPTH}")])


class _Parser:
    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = list(tokens(source))
        self._next = 0
        self._depth = 0

    def whole(self) -> Node:
        tree = self._expression()
        if self._peek().kind != "end":
            self._refuse(self._peek(), "expecting <EOF>")
        return tree

    # tokens

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._tokens[self._next]
        self._next += 1
        return token

    def _accept(self, text: str) -> Token | None:
        token = self._tokens[self._next]
        if token.text == text and token.kind in {"op", "name"}:
            self._next += 1
            return token
        return None

    def _expect(self, text: str) -> Token:
        return self._accept(text) or self._refuse(self._peek(), f"expecting '{text}'")

    def _refuse(self, token: Token, expected: str = "") -> NoReturn:
        text = f"Syntax error: mismatched input '{token.text}'" + (f" {expected}" if expected else "")
        self._fail(token.position, text)

    def _fail(self, position: int, message: str) -> NoReturn:
        raise CelSyntaxError(self._source, [issue_at(self._source, position, message)])

    def _sized(self, node: _Value, *below: Node) -> _Value:
        node.height = height = 1 + max((each.height for each in below), default=0)  # type: ignore[attr-defined]
        if height > MAX_DEPTH + 1:
            raise _too_deep(self._source)
        return node

    # levels

    def _expression(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _too_deep(self._source)
        condition = self._logical("||", "_||_")
        if question := self._accept("?"):
            chosen = self._logical("||", "_||_")
            self._expect(":")
            args = [condition, chosen, self._expression()]
            condition = self._call(question.position, "_?_:_", None, args)
        self._depth -= 1
        return condition

    def _logical(self, sign: str, function: str) -> Node:
        terms, position = [self._term(sign)], 0
        while operator := self._accept(sign):
            position = position or operator.position
            terms.append(self._term(sign))
        return terms[0] if len(terms) == 1 else self._call(position, function, None, terms)

    def _term(self, sign: str) -> Node:
        return self._logical("&&", "_&&_") if sign == "||" else self._binary(1)

    def _binary(self, lowest: int) -> Node:
        left = self._unary()
        while (operator := self._peek()).kind in {"op", "name"} and _BINARY.get(operator.text, 0) >= lowest:
            self._next += 1
            right = self._binary(_BINARY[operator.text] + 1)
            name = "@in" if operator.text == "in" else f"_{operator.text}_"
            left = self._call(operator.position, name, None, [left, right])
        return left

    def _unary(self) -> Node:
        first = self._peek()
        if first.text not in {"!", "-"} or first.kind != "op":
            return self._member()
        signs = 0
        while self._accept(first.text):
            signs += 1
        if first.text == "-" and self._peek().kind in {"int", "float"}:
            node = self._member(negative=True)  # the last minus belongs to the number
            node.position = min(node.position, first.position) if isinstance(node, Literal) else node.position
            signs -= 1
        else:
            node = self._member()
        return self._call(first.position, f"{first.text}_", None, [node]) if signs % 2 else node

    def _member(self, *, negative: bool = False) -> Node:
        node = self._primary(negative=negative)
        while True:
            if dot := self._accept("."):
                node = self._after_dot(node, dot)
            elif bracket := self._accept("["):
                name = "_[?_]" if self._accept("?") else "_[_]"
                index = self._expression()
                self._expect("]")
                node = self._call(bracket.position, name, None, [node, index])
            else:
                return node

    def _after_dot(self, operand: Node, dot: Token) -> Node:
        optional = bool(self._accept("?"))
        name = self._take()
        if name.kind != "name" or name.text in {"in", "true", "false", "null"}:
            self._refuse(name, "expecting IDENTIFIER")
        bracket = self._accept("(") if not optional else None
        if bracket:
            return self._call(bracket.position, name.text, operand, self._list(")", self._expression))
        return self._sized(Select(operand, name.text, optional=optional, position=dot.position), operand)

    # what stands alone

    def _primary(self, *, negative: bool) -> Node:  # noqa: PLR0911 - one return a form
        token = self._take()
        if token.kind == "name":
            return self._name(token, token.text)
        if token.kind in {"int", "uint", "float", "string", "bytes"}:
            return self._literal(token, negative=negative)
        if token.text == "." and token.kind == "op" and self._peek().kind == "name":
            return self._name(token, self._take().text)
        if token.text == "(":
            node = self._expression()
            self._expect(")")
            return node
        if token.text == "[":
            pairs = self._list("]", lambda: (bool(self._accept("?")), self._expression()))
            items = [item for _, item in pairs]
            optional = frozenset(at for at, (marked, _) in enumerate(pairs) if marked)
            return self._sized(ListNode(items, optional, position=token.position), *items)
        if token.text == "{" and token.kind == "op":
            entries = self._list("}", self._entry)
            return self._sized(
                MapNode(entries, position=token.position), *(node for entry in entries for node in entry[:2])
            )
        return self._refuse(token)

    def _name(self, token: Token, name: str) -> Node:
        if name in _CONSTANTS:
            value, kind = _CONSTANTS[name]
            return Literal(value, kind, position=token.position)
        if name in RESERVED:
            self._fail(token.position, f"reserved identifier: {name}")
        if bracket := self._accept("("):
            return self._call(bracket.position, name, None, self._list(")", self._expression))
        if brace := self._accept("{"):
            self._list("}", self._initializer)
            return StructNode(name, position=brace.position)
        return Ident(name, position=token.position)

    def _initializer(self) -> None:
        self._accept("?")
        self._take()
        self._expect(":")
        self._expression()

    def _entry(self) -> tuple[Node, Node, bool]:
        optional = bool(self._accept("?"))
        key = self._expression()
        self._expect(":")
        return key, self._expression(), optional

    def _list(self, end: str, each: Callable[[], _Value]) -> list[_Value]:
        values: list[_Value] = []
        while not self._accept(end):
            if values:
                self._expect(",")
                if end != ")" and self._accept(end):
                    break
            values.append(each())
        return values

    def _literal(self, token: Token, *, negative: bool) -> Node:
        try:
            if token.kind == "int":
                return Literal(literals.integer(token.text, negative=negative), types.INT, position=token.position)
            if token.kind == "uint":
                return Literal(literals.unsigned(token.text), types.UINT, position=token.position)
            if token.kind == "float":
                value = literals.floating(token.text)
                return Literal(-value if negative else value, types.DOUBLE, position=token.position)
            if token.kind == "string":
                return Literal(literals.string(token.text), types.STRING, position=token.position)
            return Literal(literals.octets(token.text), types.BYTES, position=token.position)
        except ValueError as error:
            self._fail(token.position, str(error))

    def _call(self, position: int, function: str, target: Node | None, args: list[Node]) -> Node:
        try:
            node = macros.expand(position, function, target, args)
        except macros.BadMacro as error:
            self._fail(error.position, str(error))
        below = args if target is None else [target, *args]
        return self._sized(node or Call(function, target, args, position=position), *below)
