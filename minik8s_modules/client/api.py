"""Typed calls on the Kubernetes API, for every kind alike: objects in and out are plain JSON.

Paths come from the ``Kind``; errors are the classes of ``api.errors`` that the server raised, rebuilt from
its ``Status``. Watches live in ``watches.py``, the cache over them in ``informer.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import orjson
from urllib3.response import BaseHTTPResponse

from minik8s_modules.api.errors import Expired, StatusError, from_status
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.interface import WATCH_TIMEOUT_S, Keep, ObjectList, PatchType
from minik8s_modules.client.kubeconfig import Access, load_kubeconfig
from minik8s_modules.client.transport import CONNECTIONS, READ_TIMEOUT_S, Transport
from minik8s_modules.client.watches import Watch

_PATCH_TYPES: dict[PatchType, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
_JSON = {"Content-Type": "application/json"}
# the least that watches which may last longer are given at a server other than the first, which may be back by then
_ELSEWHERE_S = 300
# The server ends a watch at its timeout; silence beyond it means that the server is gone
_WATCH_GRACE_S = 30.0
# and so does silence in a watch with bookmarks, which come each minute (apiserver/reads/watchers.py): TCP's keep-alive
# does not notice a process that hangs. Extension API servers need not send any
_BOOKMARKS_S = 150.0
# a plan may take the API server 45 s, which no other call does
_PERSONS_PATIENCE_S = 60.0
_COLLECTION = 100  # objects that one request deletes: on a busy machine each takes 60 ms
Warn = Callable[[str], None]


class ApiClient:
    """One identity's access to one API server; thread-safe, keeps connections alive."""

    def __init__(
        self,
        server: str,
        ca: str | Path | None = None,
        cert: str | Path | None = None,
        key: str | Path | None = None,
        *,
        user_agent: str = "minik8s",
        warn: Warn | None = None,
    ) -> None:
        self._warn = warn
        self._use(Access(server.rstrip("/"), _file(ca), _file(cert), _file(key)), user_agent)

    @classmethod
    def from_kubeconfig(
        cls, path: str | Path, *, user_agent: str = "minik8s", warn: Warn | None = None, context: str = ""
    ) -> ApiClient:
        """Return a client for ``context`` (else the current one) of the kubeconfig ``path``.

        With ``warn`` it writes for a person: it is called with each warning of the server, and fields that the server
        does not know are refused, as kubectl has it.

        Raises:
            ConfigurationError: the file or its certificates cannot be used.
        """
        return cls.of(load_kubeconfig(Path(path), context), user_agent=user_agent, warn=warn)

    @classmethod
    def of(
        cls,
        access: Access,
        *,
        user_agent: str = "minik8s",
        warn: Warn | None = None,
        timeout_s: float = 0.0,
        connections: int = CONNECTIONS,
    ) -> ApiClient:
        """Return a client for ``access``; ``warn`` as in ``from_kubeconfig``; ``timeout_s`` 0 is the usual patience.

        As many ``connections`` are kept for the next request; more threads at once open and close others.
        """
        client = cls(access.server, user_agent=user_agent, warn=warn)
        client._use(access, user_agent, timeout_s, connections)
        return client

    def _use(self, access: Access, user_agent: str, timeout_s: float = 0.0, connections: int = CONNECTIONS) -> None:
        self._patience_s = timeout_s or (READ_TIMEOUT_S if self._warn is None else _PERSONS_PATIENCE_S)
        self._transport = Transport(
            access, user_agent=user_agent, read_timeout_s=self._patience_s, pool_size=connections
        )
        self._manager = user_agent

    def get(self, kind: Kind, name: str, namespace: str = "") -> JsonObject:
        """Return the object; ``NotFound`` when there is none."""
        return self._call("GET", resource_path(kind, namespace, name))

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
        items: list[JsonObject] = []
        query = {"labelSelector": label_selector, "fieldSelector": field_selector, "limit": limit or ""}
        while True:
            page = self._call("GET", with_query(resource_path(kind, namespace), query))
            found, metadata = page.get("items") or [], page.get("metadata") or {}
            del page  # what is not kept goes before the next page comes
            for item in found:
                item.setdefault("apiVersion", kind.api_version)
                item.setdefault("kind", kind.kind)
            items += map(keep, found) if keep is not None else found
            query["continue"] = metadata.get("continue", "")
            if not query["continue"]:
                return ObjectList(items, metadata.get("resourceVersion", ""))

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
        metadata = obj.get("metadata") or {}
        name = metadata.get("name", "") if subresource else ""
        path = resource_path(kind, metadata.get("namespace", ""), name, subresource)
        return self._call("POST", self._write(path, field_manager, dry_run=dry_run), orjson.dumps(obj), _JSON)

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
        metadata = obj["metadata"]
        path = resource_path(kind, metadata.get("namespace", ""), metadata["name"], subresource)
        return self._call("PUT", self._write(path, field_manager, dry_run=dry_run), orjson.dumps(obj), _JSON)

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
        path = resource_path(kind, namespace, name, subresource)
        path = self._write(path, field_manager, dry_run=dry_run, force=force)
        return self._call("PATCH", path, orjson.dumps(body), {"Content-Type": _PATCH_TYPES[patch_type]})

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
        options: JsonObject = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if propagation is not None:
            options["propagationPolicy"] = propagation
        wanted = {"uid": uid, "resourceVersion": resource_version}
        if preconditions := {key: value for key, value in wanted.items() if value is not None}:
            options["preconditions"] = preconditions
        return self._call("DELETE", resource_path(kind, namespace, name), orjson.dumps(options), _JSON)

    def delete_collection(self, kind: Kind, namespace: str) -> None:
        """Delete all objects of ``kind`` in ``namespace``, each with its own grace, some with each request."""
        options = orjson.dumps({"kind": "DeleteOptions", "apiVersion": "v1"})
        query: JsonObject = {"limit": _COLLECTION}
        while True:
            try:
                page = self._call("DELETE", with_query(resource_path(kind, namespace), query), options, _JSON)
            except Expired:  # it took so long that nobody knows any more what was there when it began
                if not query.pop("continue", ""):
                    raise
                continue
            query["continue"] = (page.get("metadata") or {}).get("continue")
            if not query["continue"]:
                return

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
    ) -> Watch:
        """Return the changes after ``resource_version`` as an iterator that another thread may close.

        It ends when the server ends it (``timeout_s``; a sixth of 1800 and more at another server than the first). Of a
        built-in kind, it is cut when not even a bookmark has come for a while. An ERROR event is raised as its
        ``StatusError`` (410 as the class for code 410).
        """
        query = {
            "watch": "true",
            "resourceVersion": resource_version,
            "fieldSelector": field_selector,
            "labelSelector": label_selector,
            "allowWatchBookmarks": "true" if bookmarks else "",
        }
        # at another server a part, and no fixed time: informers spread theirs
        path, elsewhere = (
            with_query(resource_path(kind, namespace), {**query, "timeoutSeconds": each_s})
            for each_s in (timeout_s, max(timeout_s // 6, min(timeout_s, _ELSEWHERE_S)))
        )
        patience_s = timeout_s + _WATCH_GRACE_S
        if bookmarks and kind.definition:
            patience_s = min(patience_s, _BOOKMARKS_S)
        response = self._transport.stream(path, patience_s, elsewhere)
        if response.status != HTTPStatus.OK:
            raise error_of(response)
        return Watch(response)

    def raw(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0.0,
    ) -> BaseHTTPResponse:
        """Return the answer (``.status``, ``.headers``, ``.data``) to any request, whatever its status.

        ``wait_s`` 0 is the usual patience.
        """
        return self._transport.request(method, path, body, headers, wait_s)

    def close(self) -> None:
        """Close the idle connections."""
        self._transport.close()

    def _write(self, path: str, field_manager: str, *, dry_run: bool, force: bool = False) -> str:
        query = {"fieldManager": field_manager or self._manager}
        if dry_run:
            query["dryRun"] = "All"
        if force:
            query["force"] = "true"
        if self._warn is not None:
            query["fieldValidation"] = "Strict"
        return with_query(path, query)

    def _call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        read_timeout_s: float = 0.0,
    ) -> JsonObject:
        response = self._transport.request(method, path, body, headers, read_timeout_s)
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise error_of(response)
        if self._warn is not None:
            for warning in warnings_of(response):
                self._warn(warning)
        return _decode(response.data, method, path)


def resource_path(kind: Kind, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Return the URL path; without ``namespace`` the collection over all namespaces."""
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    parts = ["namespaces", namespace, kind.plural] if namespace and kind.namespaced else [kind.plural]
    parts += [name] if name else []
    parts += [subresource] if subresource else []
    return "/".join([root, *(quote(part, safe="") for part in parts)])


def with_query(path: str, query: Mapping[str, Any]) -> str:
    """Return ``path`` with the parameters of ``query`` that are not empty."""
    given = {key: value for key, value in query.items() if value not in ("", None)}
    return f"{path}?{urlencode(given)}" if given else path


def error_of(response: BaseHTTPResponse) -> StatusError:
    """Return the error an answer of 400 and above stands for, also when its body is no Status."""
    try:
        status = orjson.loads(response.data)
    except orjson.JSONDecodeError:
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        text = response.data[:500].decode("utf-8", "replace").strip()
        status = {"kind": "Status", "status": "Failure", "message": text, "reason": ""}
    status.setdefault("code", response.status)
    return from_status(status)


def warnings_of(response: BaseHTTPResponse) -> Iterator[str]:
    """Yield the texts of the Warning headers, each ``299 - "text"`` (RFC 7234, 5.5)."""
    for header in response.headers.getlist("Warning"):
        _, _, quoted = header.partition('"')
        yield re.sub(r"\\(.)", r"\1", quoted.removesuffix('"'))


def _decode(data: bytes, method: str, path: str) -> JsonObject:
    try:
        decoded = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ApiUnreachable(f"{method} {path.partition('?')[0]}: the answer is not JSON: {error}") from error
    if not isinstance(decoded, dict):
        raise ApiUnreachable(f"{method} {path.partition('?')[0]}: the answer is not a JSON object")
    return decoded


def _file(path: str | Path | None) -> bytes:
    return Path(path).read_bytes() if path else b""
