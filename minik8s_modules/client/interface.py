"""What the rooms see of the Kubernetes API: ``ApiClient`` (api.py) has it, and ``FakeApi`` (fake.py) for tests.

``Source`` is what an informer follows, ``Reader`` what answers from what is there; ``Api`` is all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from urllib3.response import BaseHTTPResponse

from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.watches import EventStream

Keep = Callable[[JsonObject], JsonObject]
PatchType = Literal["merge", "json", "strategic", "apply"]
# kube-apiserver's own, of watches that name none (--min-request-timeout): 30 to 60 minutes, as informers spread them.
# client-go has 5 to 10 (reflector.go); each of a daemon's hundred watches that begins again costs a handshake, 7 ms
WATCH_TIMEOUT_S = 1800


class ObjectList(NamedTuple):
    """The items of a list, each with apiVersion and kind, and the revision they were read at."""

    items: list[JsonObject]
    resource_version: str


class Lister(Protocol):
    """Lists objects."""

    def list(
        self,
        kind: Kind,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        keep: Keep | None = None,
    ) -> ObjectList:
        """Return all objects, of every namespace unless one is given.

        ``limit`` is the size of a page, ``keep`` makes what is kept of each object; it is called page by page.
        """


class Source(Lister, Protocol):
    """Lists objects and follows their changes."""

    def watch(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        resource_version: str,
        field_selector: str = "",
        label_selector: str = "",
        bookmarks: bool = True,
        timeout_s: int = WATCH_TIMEOUT_S,
    ) -> EventStream:
        """Return the changes after ``resource_version`` as an iterator that another thread may close.

        Without ``bookmarks`` it may be silent until its end; with them silence means that the server is gone.
        """


class Getter(Protocol):
    """Reads objects one by one."""

    def get(self, kind: Kind, name: str, namespace: str = "") -> JsonObject:
        """Return the object; ``NotFound`` when there is none."""


class Reader(Getter, Lister, Protocol):
    """Reads objects, and follows nothing."""


class Raw(Protocol):
    """Sends any request."""

    def raw(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0.0,
    ) -> BaseHTTPResponse:
        """Return the answer, whatever its status; ``wait_s`` 0 is the usual patience."""


class Api(Reader, Source, Protocol):
    """Reads, follows and writes objects."""

    def create(
        self,
        kind: Kind,
        obj: Mapping[str, Any],
        *,
        dry_run: bool = False,
        field_manager: str = "",
        subresource: str = "",
    ) -> JsonObject:
        """Create ``obj`` (or post it to its ``subresource``, such as ``binding``) and return the answer."""

    def update(
        self,
        kind: Kind,
        obj: Mapping[str, Any],
        *,
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str = "",
    ) -> JsonObject:
        """Replace the object or its ``subresource``; ``Conflict`` when its resourceVersion is old."""

    def patch(
        self,
        kind: Kind,
        name: str,
        namespace: str,
        body: Any,
        *,
        patch_type: PatchType = "merge",
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        force: bool = False,
    ) -> JsonObject:
        """Patch the object or its ``subresource``; ``force`` takes fields over in an ``apply``."""

    def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        *,
        grace_s: int | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str | None = None,
    ) -> JsonObject:
        """Delete the object if it (still) has ``uid`` and ``resource_version``; return the answer."""

    def delete_collection(self, kind: Kind, namespace: str) -> None:
        """Delete all objects of ``kind`` in ``namespace``, each with its own grace."""
