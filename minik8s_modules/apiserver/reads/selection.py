"""Which objects a list, watch or deletecollection is about: namespace, labelSelector, fieldSelector.

Made once a request: what is authorized and what is applied to objects is the same value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from minik8s_modules.api.field_selectors import EVERYTHING, FieldSelector, parse_field_selector, with_exact
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.selectors import LabelSelector, parse_label_selector
from minik8s_modules.apiserver.authorization.attributes import Attributes
from minik8s_modules.apiserver.http.presenting import are_few, json_of, labels_of, prepare
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.store.cached import CachedObject, packed_label

MANY = frozenset({"list", "watch", "deletecollection"})
"""The verbs that are about a selection."""
_NAME = "metadata.name"
_PRESENT = frozenset({"in", "exists", "gt", "lt"})  # the operators that a missing label never meets
_NAMED = frozenset({"list", "watch"})


class Selection(NamedTuple):
    """The parsed selectors of one request; equal ones select equally."""

    kind: Kind
    prefix: str
    labels: LabelSelector
    fields: FieldSelector

    @property
    def everything(self) -> bool:
        """Return whether all objects below the prefix are meant."""
        return self.labels.empty and self.fields.empty

    def matches(self, item: CachedObject, *, keep: bool = True) -> bool:
        """Return whether the selectors let ``item`` through; ``keep`` as for ``json_of``."""
        if not self.labels.empty and not self.labels.matches(labels_of(self.kind, item)):
            return False
        name = self.fields.exact(_NAME)
        if name is not None and not item.key.endswith(f"/{name}"):
            return False  # told by the key, without parsing the object
        return self.fields.empty or self.fields.matches(json_of(self.kind, item, keep=keep))

    def chosen(self, items: list[CachedObject]) -> list[CachedObject]:
        """Return the ``items`` that the selectors let through."""
        if self.everything:
            return items
        name = self.fields.exact(_NAME)
        if name is not None:
            items = [item for item in items if item.key.endswith(f"/{name}")]
        for part in () if self.kind.converted else _needed(self.labels):  # so the labels of few are parsed
            items = [item for item in items if part in item.packed_labels]
        prepare(self.kind, items)
        keep = are_few(items)
        return [item for item in items if self.matches(item, keep=keep)]

    def asked(self, attributes: Attributes) -> Attributes:
        """Return the attributes of a list, watch or deletecollection of this selection.

        A list or watch that requires one name is a request for the object of that name; a deletecollection is not.
        Source: k8s.io/apiserver ``endpoints/request/requestinfo.go``.
        """
        name = attributes.name or (self.fields.exact(_NAME) if attributes.verb in _NAMED else None)
        return attributes._replace(name=name or "", fields=self.fields)


def _needed(labels: LabelSelector) -> Sequence[bytes]:
    """Return what stands in the labels of each object that a selector lets through; more may have it."""
    return [
        packed_label(each.key, *(each.values if each.operator == "in" and len(each.values) == 1 else ()))
        for each in labels.requirements
        if each.operator in _PRESENT
    ]


def select(target: Target, arguments: Mapping[str, str]) -> Selection:
    """Return the selection of a request; a name in the path is one more requirement.

    Raises:
        BadRequest: a selector cannot be read or names a field that cannot be selected by.
    """
    fields = parse_field_selector(target.kind, arguments.get("fieldSelector", ""))
    if target.name:
        fields = with_exact(target.kind, fields, _NAME, target.name)
    labels = parse_label_selector(arguments.get("labelSelector", ""))
    return Selection(target.kind, prefix_of(target), labels, fields)


def whole(target: Target) -> Selection:
    """Return the selection of the target's whole collection."""
    return Selection(target.kind, prefix_of(target), LabelSelector(), EVERYTHING)


def prefix_of(target: Target) -> str:
    """Return the key prefix of the target's collection."""
    return f"{target.kind.prefix}{target.namespace}/" if target.namespace else target.kind.prefix
