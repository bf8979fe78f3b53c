"""One write under admission."""

from __future__ import annotations

from typing import Literal, NamedTuple

from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.authorization.authorization import Requester
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target

Operation = Literal["create", "update", "delete", "connect"]


class Write(NamedTuple):
    """What plugins see; ``obj`` (None of a deletion) is theirs to change while mutating, ``old`` nobody's.

    ``shown`` is the kind of ``obj`` where that is no stored object: of a subresource that is asked something.
    """

    backend: Backend
    operation: Operation
    target: Target
    obj: JsonObject | None
    old: JsonObject | None
    options: Options
    requester: Requester
    shown: Kind | None = None

    @property
    def new(self) -> JsonObject:
        """Return the new object; only of a create or update."""
        assert self.obj is not None  # noqa: S101 - the plugin's operations say so
        return self.obj
