"""Which objects a list, watch or deletecollection is about: namespace, labelSelector, fieldSelector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.selectors import (
    FieldSelector,
    LabelSelector,
    parse_field_selector,
    parse_label_selector,
)
from minik8s_modules.apiserver.presenting import json_of
from minik8s_modules.apiserver.target import Target
from minik8s_modules.store.cached import CachedObject


class Selection(NamedTuple):
    """The parsed selectors of one request.

    ``text`` tells equal selections from others; ``name`` is the one object the fields ask for, if they do.
    """

    kind: Kind
    prefix: str
    labels: LabelSelector
    fields: FieldSelector
    text: tuple[str, str]
    name: str | None = None

    @property
    def everything(self) -> bool:
        """Return whether all objects below the prefix are meant."""
        return self.labels.empty and self.fields.empty

    def matches(self, item: CachedObject) -> bool:
        """Return whether the selectors let ``item`` through."""
        if not self.labels.matches(item.labels):
            return False
        if self.name is not None and not item.key.endswith(f"/{self.name}"):
            return False  # told by the key, without parsing the object
        return self.fields.empty or self.fields.matches(json_of(self.kind, item))


def select(target: Target, arguments: Mapping[str, str]) -> Selection:
    """Return the selection of a request; a name in the path counts as ``metadata.name=NAME``.

    Raises:
        BadRequest: a selector cannot be read or names a field that cannot be selected by.
    """
    label_text = arguments.get("labelSelector", "")
    field_text = arguments.get("fieldSelector", "")
    if target.name:
        field_text = f"{field_text},metadata.name={target.name}".lstrip(",")
    fields = parse_field_selector(target.kind, field_text)
    return Selection(
        target.kind,
        prefix_of(target),
        parse_label_selector(label_text),
        fields,
        (label_text, field_text),
        fields.exact("metadata.name"),
    )


def prefix_of(target: Target) -> str:
    """Return the key prefix of the target's collection."""
    return f"{target.kind.prefix}{target.namespace}/" if target.namespace else target.kind.prefix
