"""A cluster in memory of which somebody may read one namespace."""

from __future__ import annotations

from typing import Any

from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.interface import ObjectList
from tests.unit.cli.causes.logged_api import LoggedApi


class Confined(LoggedApi):
    """Shows somebody the namespace ``default`` alone, and of it not what is ``hidden``, but some kinds everywhere."""

    hidden: frozenset[Kind] = frozenset()
    everywhere: frozenset[Kind] = frozenset()

    def list(self, kind: Kind, namespace: str = "", *arguments: Any, **options: Any) -> ObjectList:
        """Return objects that may be seen."""
        self._admit(kind, namespace)
        return super().list(kind, namespace, *arguments, **options)

    def get(self, kind: Kind, name: str, namespace: str = "") -> JsonObject:
        """Return an object that may be seen."""
        self._admit(kind, namespace)
        return super().get(kind, name, namespace)

    def _admit(self, kind: Kind, namespace: str) -> None:
        if (namespace != "default" and kind not in self.everywhere) or kind in self.hidden:
            raise Forbidden(kind, "", "you may not")
