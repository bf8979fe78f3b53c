"""What authorization is asked about one request."""

from __future__ import annotations

from typing import NamedTuple

from minik8s_modules.api.field_selectors import EVERYTHING, FieldSelector


class Attributes(NamedTuple):
    """One request: ``resource`` is the plural, with ``/subresource`` if there is one; or ``path`` alone.

    ``fields`` is what a list or watch is restricted to: the very selector that is applied to its objects, so that who
    is allowed to see what it selects sees nothing else. Only nodes are authorized by it; for everybody else ``name`` is
    the name it requires, if any.
    """

    verb: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    fields: FieldSelector = EVERYTHING


class Named(NamedTuple):
    """A resource as errors name it, where no served kind is at hand."""

    group: str
    kind: str
    plural: str
