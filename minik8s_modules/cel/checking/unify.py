"""Which types fit which, with type parameters: cel-go's checker/types.go.

A ``Substitutions`` maps type parameters to what they stand for; a failed attempt leaves it as it was.
"""

from __future__ import annotations

from collections.abc import Sequence

from minik8s_modules.cel import types
from minik8s_modules.cel.types import Type

Substitutions = dict[Type, Type]
_DYNAMIC = frozenset({"dyn", "error"})
_NULLABLE = frozenset({"opaque", "object", "duration", "timestamp", "null"})
_COMPOUND = frozenset({"opaque", "list", "map"})


class _Attempt:
    """Substitutions with what an attempt adds, which is dropped when it fails: a copy would cost all that is known."""

    def __init__(self, known: Substitutions) -> None:
        self._known = known
        self.added: Substitutions = {}

    def get(self, parameter: Type) -> Type | None:
        """Return what a parameter stands for, or None."""
        return self.added.get(parameter) or self._known.get(parameter)

    def set(self, parameter: Type, meaning: Type) -> None:
        """Let a parameter stand for a type."""
        self.added[parameter] = meaning


def fit(known: Substitutions, given: Sequence[Type], wanted: Sequence[Type]) -> bool:
    """Return whether each given type may stand where one is wanted; on success the parameters' meaning is kept."""
    attempt = _Attempt(known)
    if len(given) == len(wanted) and all(map(lambda a, b: _fits(attempt, a, b), given, wanted)):
        known.update(attempt.added)
        return True
    return False


def substitute(known: Substitutions, kind: Type, *, unbound_is_dyn: bool = False) -> Type:
    """Return the type with its parameters replaced; those that stand for nothing stay, or become dyn."""
    if kind in known and kind.kind == "param":
        return substitute(known, known[kind], unbound_is_dyn=unbound_is_dyn)
    if kind.kind == "param":
        return types.DYN if unbound_is_dyn else kind
    if not kind.params:
        return kind
    params = tuple(substitute(known, each, unbound_is_dyn=unbound_is_dyn) for each in kind.params)
    return kind if params == kind.params else Type(kind.kind, kind.name, params, kind.declared)


def most_general(one: Type, other: Type) -> Type:
    """Return the more general of two types that fit each other."""
    return one if _less_specific(one, other) else other


def _fits(known: _Attempt, given: Type, wanted: Type) -> bool:  # noqa: PLR0911 - one return a kind of type
    if wanted.kind == "param":
        valid, bound = _stands_for(known, given, wanted)
        if valid or bound:
            return valid
    if given.kind == "param":
        return _stands_for(known, wanted, given)[0]
    if given.kind in _DYNAMIC or wanted.kind in _DYNAMIC:
        return True
    if "null" in {given.kind, wanted.kind}:
        return (wanted if given.kind == "null" else given).kind in _NULLABLE
    if given.kind == "type":
        return wanted.kind == "type"
    if given.kind in _COMPOUND:
        same = (given.kind, given.name, len(given.params)) == (wanted.kind, wanted.name, len(wanted.params))
        return same and all(map(lambda a, b: _fits(known, a, b), given.params, wanted.params))
    return given == wanted


def _stands_for(known: _Attempt, kind: Type, parameter: Type) -> tuple[bool, bool]:
    """Return whether the parameter may mean the type, and whether it meant something already."""
    if kind == parameter:
        return True, True
    meaning = known.get(parameter)
    if meaning is None:
        if _free(known, parameter, kind):
            known.set(parameter, kind)
            return True, False
        return False, False
    if kind == meaning:
        return True, True
    if not _fits(known, kind, meaning):
        return False, True
    general = most_general(kind, meaning)
    if _free(known, parameter, general):
        known.set(parameter, general)
    return True, True


def _free(known: _Attempt, parameter: Type, within: Type) -> bool:
    """Whether the parameter does not occur within a type."""
    if parameter == within:
        return False
    if within.kind == "param":
        meaning = known.get(within)
        return meaning is None or _free(known, parameter, meaning)
    return all(_free(known, parameter, each) for each in within.params)


def _less_specific(one: Type, other: Type) -> bool:
    if one.kind in {"dyn", "param"}:
        return True
    if other.kind in {"dyn", "param"} or one.kind != other.kind:
        return False
    if one.kind == "type":
        return True
    if one.name != other.name or len(one.params) != len(other.params):
        return False
    return all(map(_less_specific, one.params, other.params))
