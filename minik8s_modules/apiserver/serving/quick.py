"""Which requests are answered from this process's memory alone: GETs of one object, which the intake answers itself.

Whatever might wait is left to a thread: what names a revision, goes on to somebody else (an extension, a node, a
webhook that converts), or must be as new as another worker's latest write. This says how a request is answered, never
whether it may be: every answer goes through the same steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minik8s_modules.apiserver.aggregation.directory import Directory
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.target import parse

_RESOURCES = ("/api/", "/apis/")


class Quick:
    """See the module's docstring; ``kubelet_port`` is one at which the header Host chooses a node."""

    def __init__(self, backend: Backend, directory: Directory, kubelet_port: int) -> None:
        self._backend, self._directory = backend, directory
        self._kubelet_port = str(kubelet_port or "")

    def __call__(self, environ: Mapping[str, Any]) -> bool:
        """Return whether a request is one of them."""
        path: str = environ["PATH_INFO"]
        return (
            environ["REQUEST_METHOD"] == "GET"
            and not environ["QUERY_STRING"]
            and "HTTP_UPGRADE" not in environ
            and path.startswith(_RESOURCES)
            and path.isascii()
            and not self._is_for_kubelet(environ)
            and self._is_up_to_date()
            and self._is_known_here(path)
        )

    def _is_for_kubelet(self, environ: Mapping[str, Any]) -> bool:
        port = str(environ.get("HTTP_HOST", "")).rpartition(":")[2]
        return bool(self._kubelet_port) and port == self._kubelet_port

    def _is_up_to_date(self) -> bool:
        cache, place = self._backend.cache, self._backend.place
        return cache.ready() and (place is None or place.told() <= cache.revision)

    def _is_known_here(self, path: str) -> bool:
        if self._directory.of(path) is not None:
            return False
        target = parse(path, self._backend.kinds.registry)
        return (
            target is not None
            and bool(target.name)
            and not target.subresource
            and target.kind.stored
            and not target.kind.converted
        )
