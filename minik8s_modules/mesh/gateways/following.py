"""Keeps copies of the HTTPRoutes within the mesh, while the definitions of Gateway API are there. Shared by threads.

Until they are complete nothing is decided for sidecars: a pilot that has just started would take away what routes lead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from minik8s_modules.api.network.gateway_api import GATEWAY_KINDS
from minik8s_modules.mesh.gateways.meshing import Routes, routes_of
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.custom_copies import CustomCopies

_KINDS = (GATEWAY_KINDS.routes, GATEWAY_KINDS.grants)


class RouteCopies(CustomCopies[Routes, Callable[[], None]]):
    """See the top of this file.

    Args:
        context: of the process.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context, "mesh-routes", _KINDS, Routes())

    def get(self) -> Routes:
        """Return routes and grants as they are."""
        routes, grants = (self.objects(each) for each in _KINDS)
        return routes_of(routes, grants)

    def tell(self, followers: Iterable[Callable[[], None]], _before: Routes, _now: Routes) -> None:
        """Say that a route or grant has become another."""
        for each in followers:
            each()
