"""Sets of fields of an object, as metadata.managedFields writes them (FieldsV1), and what ownership needs of them.

A set is the JSON of FieldsV1 itself, so nothing is decoded or encoded: ``{"f:spec": {"f:replicas": {}}}``. Below a set,
``{}`` is a member without inner members, ``"."`` marks a member that has some. Elements: ``f:name`` a field or key,
``k:{"name":"x"}`` an item of a list by its keys, ``v:"x"`` an item of a list that is a set. ``{}`` at the top is the
empty set. No function changes its arguments; results share parts with them.

Source of the semantics: sigs.k8s.io/structured-merge-diff v4 (``fieldpath``, ``typed``). Equal parts of two objects are
passed over by one comparison in C, so the cost follows what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from minik8s_modules.api.schema.shapes import Shape

Fields = dict[str, Any]
Path = tuple[str, ...]
_LEAF: Fields = {}
_MISSING = object()
_UNDIVIDED = frozenset({"", "atomic"})  # relations of what has one owner
_EMPTY: dict[str, Callable[[], Any]] = {"list": list, "map": dict, "object": dict}
# the keys that Kubernetes' definitions give a default (the bundled ones leave it out)
_KEY_DEFAULTS = {("ContainerPort", "protocol"): "TCP", ("ServicePort", "protocol"): "TCP"}


# --- algebra --------------------------------------------------------------------------------------


def _is_member(node: Fields) -> bool:
    return not node or "." in node


def _node(children: Fields, *, member: bool) -> Fields | None:
    if not children:
        return _LEAF if member else None
    return {".": _LEAF, **children} if member else children


def union_of(sets: Sequence[Fields]) -> Fields:
    """Return what is in any of the sets: in pairs, because a union costs what both of its sets have."""
    if len(sets) <= 1:
        return sets[0] if sets else {}
    half = len(sets) // 2
    return union(union_of(sets[:half]), union_of(sets[half:]))


def union(left: Fields, right: Fields) -> Fields:
    """Return what is in either set."""
    if not left or not right:
        return left or right
    merged = dict(left)
    for element, node in right.items():
        mine = merged.get(element)
        merged[element] = node if mine is None else _union_nodes(mine, node)
    return merged


def _union_nodes(left: Fields, right: Fields) -> Fields:
    children = union({k: v for k, v in left.items() if k != "."}, {k: v for k, v in right.items() if k != "."})
    return _node(children, member=_is_member(left) or _is_member(right)) or _LEAF


def difference(left: Fields, right: Fields) -> Fields:
    """Return what is in ``left`` and not in ``right``; an inner member stays when only an outer one goes."""
    if not right:
        return left
    return _combine(left, right, keep_alone=True)


def intersection(left: Fields, right: Fields) -> Fields:
    """Return what is in both sets."""
    return _combine(left, right, keep_alone=False)


def _combine(left: Fields, right: Fields, *, keep_alone: bool) -> Fields:
    found: Fields = {}
    for element, node in left.items():
        if element == ".":
            continue
        other = right.get(element)
        if other is None:
            if keep_alone:
                found[element] = node
            continue
        if not node:  # nothing below it: most are so
            if _is_member(other) != keep_alone:
                found[element] = _LEAF
            continue
        member = _is_member(node) and _is_member(other) != keep_alone
        kept = _node(_combine(node, other, keep_alone=keep_alone), member=member)
        if kept is not None:
            found[element] = kept
    return found


def contains(fields: Fields, path: Path) -> bool:
    """Return whether the path is a member."""
    node: Fields | None = fields
    for element in path:
        node = node.get(element) if node is not None else None
    return node is not None and _is_member(node)


def paths(fields: Fields, above: Path = ()) -> Iterator[Path]:
    """Yield every member, outer ones first, sorted."""
    inner = sorted((item for item in fields.items() if item[0] != "."), key=lambda item: item[0])
    for element, node in inner:
        if _is_member(node):
            yield (*above, element)
    for element, node in inner:
        yield from paths(node, (*above, element))


def sort(fields: Fields) -> Fields:
    """Return the set with its elements in the order Kubernetes writes them."""
    return {element: sort(node) if (node := fields[element]) else node for element in sorted(fields)}


def shown(path: Path) -> str:
    """Return a path as messages name it: ``.spec.containers[name="app"].image``."""
    return "".join(map(_shown_element, path))


def brief(path: Path) -> str:
    """Return a path as plans name it: ``spec.containers[app].image``, ``spec.ports[80/TCP]``."""
    return "".join(map(_brief_element, path)).removeprefix(".")


def _brief_element(element: str) -> str:
    if not element.startswith("k:"):
        return _shown_element(element)
    return "[" + "/".join(map(str, orjson.loads(element[2:]).values())) + "]"


def _shown_element(element: str) -> str:
    mark, text = element[:1], element[2:]
    if mark == "k":
        return (
            "[" + ",".join(f"{key}={orjson.dumps(value).decode()}" for key, value in orjson.loads(text).items()) + "]"
        )
    return f"[={text}]" if mark == "v" else f".{text}"


# --- sets of objects ------------------------------------------------------------------------------


def element_of(shape: Shape, item: Any) -> str:
    """Return the element that names an item of a ``set`` or ``map`` list.

    Raises:
        ValueError: the item lacks a key, or is no scalar.
    """
    if shape.relation == "set":
        if item is None or isinstance(item, dict | list):
            raise ValueError("associative list without keys has an element that is no scalar")
        return f"v:{orjson.dumps(item).decode()}"
    if not isinstance(item, dict):
        raise ValueError("associative list with keys may not have non-map elements")  # noqa: TRY004 - one class for what an item may have wrong
    return f"k:{orjson.dumps({key: _key_value(shape, item, key) for key in shape.keys}).decode()}"


def _key_value(shape: Shape, item: Fields, key: str) -> Any:
    value = item.get(key, _MISSING)
    if value is _MISSING:
        value = _KEY_DEFAULTS.get((shape.items.name if shape.items else "", key), _MISSING)
    if value is _MISSING:
        raise ValueError(
            f'associative list with keys has an element that omits key field "{key}" (and doesn\'t have default value)'
        )
    return value


def _indexed(shape: Shape, items: list[Any]) -> dict[str, list[Any]]:
    """Return the items by element; items without a name (of objects older than a rule) share one element."""
    found: dict[str, list[Any]] = {}
    for item in items:
        try:
            element = element_of(shape, item)
        except ValueError:
            element = f"v:{orjson.dumps(item).decode()}"
        found.setdefault(element, []).append(item)
    return found


def _is_leaf(shape: Shape) -> bool:
    return shape.relation in _UNDIVIDED or (shape.kind == "map" and shape.items is None)


def of_object(shape: Shape, obj: Fields, *, named: bool = False) -> Fields:
    """Return every leaf and item that ``obj`` mentions (what its applier owns); ``named``: as ``with_named``."""
    return _mentioned(shape, obj, named=named) or {}


def _mentioned(shape: Shape, value: Any, *, named: bool) -> Fields | None:
    shape = shape.of(value)
    if _is_leaf(shape):
        return _LEAF
    if isinstance(value, dict):
        return _mentioned_fields(shape, value, named=named)
    return _mentioned_items(shape, value, named=named) if isinstance(value, list) else None


def _mentioned_fields(shape: Shape, value: Fields, *, named: bool) -> Fields | None:
    found: Fields = {}
    for name, inner in value.items():
        sub = shape.below(name)
        if sub is None:
            continue
        node = _LEAF if sub.relation in _UNDIVIDED else _mentioned(sub, inner, named=named)
        key = shape.kind != "object" or name not in shape.fields
        if node is not None or key or (not inner and not isinstance(inner, list)):
            found[f"f:{name}"] = _node(node or {}, member=named or key) or _LEAF
    return found or None


def _mentioned_items(shape: Shape, items: list[Any], *, named: bool) -> Fields | None:
    found: Fields = {}
    for element, same in _indexed(shape, items).items():
        node = _mentioned(shape.item, same[0], named=named) if len(same) == 1 else None
        found[element] = _node(node or {}, member=True)
    return found or None


def _whole(shape: Shape, value: Any) -> Fields:
    """Return ``value`` itself and all in it."""
    shape = shape.of(value)
    if _is_leaf(shape) or not value:
        return _LEAF
    children: Fields = {}
    if isinstance(value, dict):
        for name, inner in value.items():
            sub = shape.below(name)
            if sub is not None and not sub.relation:
                children[f"f:{name}"] = _LEAF
            elif sub is not None:
                _put(children, f"f:{name}", _whole(sub, inner), embedded=shape.always(name, sub))
    elif shape.items is not None:
        for element, same in _indexed(shape, value).items():
            children[element] = _whole(shape.item, same[0]) if len(same) == 1 else _LEAF
    return {".": _LEAF, **children}


def _put(children: Fields, element: str, node: Fields, *, embedded: bool) -> None:
    """Put a node; what Go always writes is no member by itself."""
    node = {k: v for k, v in node.items() if k != "."} if embedded else node
    if node or not embedded:
        children[element] = node


# --- comparison -----------------------------------------------------------------------------------


class Comparison(NamedTuple):
    """The fields in which a new object differs from an old one."""

    removed: Fields
    modified: Fields
    added: Fields

    def __bool__(self) -> bool:
        """Return whether anything differs."""
        return bool(self.removed or self.modified or self.added)

    @property
    def written(self) -> Fields:
        """Return what the new object says otherwise or first."""
        return union(self.modified, self.added)


def compare(shape: Shape, old: Fields, new: Fields) -> Comparison:
    """Return how ``new`` differs from ``old``, two objects of one type."""
    found = Comparison({}, {}, {})
    _compare(shape, old, new, found)
    return found


def _compare(shape: Shape, old: Any, new: Any, found: Comparison) -> None:
    """Put the differences below two present, unequal values of a composite type into ``found``."""
    if isinstance(old, list) or isinstance(new, list):
        _compare_items(shape, old or [], new or [], found)
        return
    old, new = old or {}, new or {}
    for name in {**old, **new}:
        before, after = old.get(name, _MISSING), new.get(name, _MISSING)
        if before is after or before == after:
            continue
        sub = shape.below(name)
        if sub is None:
            continue
        if shape.always(name, sub):
            # Go writes such a field even when it is empty, so that its absence is no difference
            before, after = (_EMPTY[sub.kind]() if each is _MISSING else each for each in (before, after))
        _compare_at(sub, f"f:{name}", before, after, found)


def _compare_at(shape: Shape, element: str, before: Any, after: Any, found: Comparison) -> None:
    is_replaced = type(before) is not type(after) and before is not None and after is not None  # of another JSON type
    if before is _MISSING:
        found.added[element] = _whole(shape, after)
    elif after is _MISSING:
        found.removed[element] = _whole(shape, before)
    elif _is_leaf(shape.of(before, after)) or not (before or after) or is_replaced:
        if before != after:
            found.modified[element] = _LEAF
    else:
        inner = Comparison({}, {}, {})
        _compare(shape, before, after, inner)
        for mine, theirs in zip(found, inner, strict=True):
            if theirs:
                mine[element] = {**mine.get(element, {}), **theirs}


def _compare_items(shape: Shape, old: list[Any], new: list[Any], found: Comparison) -> None:
    before, after = _indexed(shape, old), _indexed(shape, new)
    for element in {**before, **after}:
        lefts, rights = before.get(element, []), after.get(element, [])
        if lefts == rights:
            continue
        # items of one name cannot be told apart: they count as one, changed as a whole
        if len(lefts) > 1 and len(rights) > 1:
            found.modified[element] = _LEAF
        elif len(lefts) > 1 or len(rights) > 1:
            _compare_duplicates(shape.item, element, lefts, rights, found)
        else:
            left, right = (each[0] if each else _MISSING for each in (lefts, rights))
            _compare_at(shape.item, element, left, right, found)


def _compare_duplicates(shape: Shape, element: str, lefts: list[Any], rights: list[Any], found: Comparison) -> None:
    """An item became ambiguous, or stopped to be."""
    if len(lefts) > 1:
        found.removed[element] = _LEAF
        if rights:
            found.added[element] = _whole(shape, rights[0])
    else:
        found.added[element] = _LEAF
        if lefts:
            found.removed[element] = _whole(shape, lefts[0])


# --- removal --------------------------------------------------------------------------------------


def with_named(shape: Shape, fields: Fields) -> Fields:
    """Return the set with every field of a struct that has members below as a member, too."""
    found: Fields = {}
    for element, node in fields.items():
        if element == ".":
            continue
        if not node:  # nothing below it: most are so
            found[element] = _LEAF
            continue
        sub = shape.below(element[2:]) if element.startswith("f:") else shape.items
        children = with_named(sub, node) if sub is not None else {k: v for k, v in node.items() if k != "."}
        named = shape.kind == "object" and element.startswith("f:") and bool(children) and sub is not None
        found[element] = _node(children, member=named or _is_member(node))
    return found


def removed(shape: Shape, value: Any, fields: Fields) -> Any:
    """Return ``value`` without the members of the set; None where nothing is left of a map or list."""
    shape = shape.of(value)
    if shape.relation == "":
        return value
    if shape.relation == "atomic" or not value:
        return None
    if isinstance(value, dict):
        return _without_fields(shape, value, fields) or None
    return _without_items(shape, value, fields) or None


def _without_fields(shape: Shape, value: Fields, fields: Fields) -> Fields:
    left: Fields = {}
    for name, inner in value.items():
        node = fields.get(f"f:{name}")
        sub = shape.below(name)
        if node is None or sub is None:
            left[name] = inner
        elif not _is_member(node):
            left[name] = removed(sub, inner, node)
    return left


def _without_items(shape: Shape, items: list[Any], fields: Fields) -> list[Any]:
    left = []
    for item in items:
        try:
            node = fields.get(element_of(shape, item))
        except ValueError:
            node = None
        if node is None:
            left.append(item)
        elif not _is_member(node):
            left.append(removed(shape.item, item, node))
    return left
