"""What authorization is asked about one request."""

from __future__ import annotations

from typing import NamedTuple


class Attributes(NamedTuple):
    """One request: ``resource`` is the plural, with ``/subresource`` if there is one; or ``path`` alone.

    ``fields`` is the fieldSelector of a list or watch; only nodes are authorized by it.
    """

    verb: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    fields: str = ""


class Named(NamedTuple):
    """A resource as errors name it, where no served kind is at hand."""

    group: str
    kind: str
    plural: str
