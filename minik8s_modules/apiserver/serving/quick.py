"""Which requests the intake answers itself: GETs of one object, from this process's memory alone, and short creates.

Whatever might wait is left to a thread: what names a revision, goes on to somebody else (an extension, a node, a
webhook that converts), or must be as new as another worker's latest write. So is whatever might take long to compute,
as the loop serves nobody meanwhile: tokens, impersonation, rights that roles do not give (those of nodes and carriers
follow from all Pods), a policy that has changed and is to be compiled again, tables and metadata, objects that are long
or look otherwise than they are stored. This says how a request is answered, never whether it may be: every answer goes
through the same steps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import (
    CONFIG_MAP,
    CONTROLLER_REVISION,
    ENDPOINT_SLICE,
    EVENT,
    EVENTS_EVENT,
    JOB,
    LEASE,
    LIMIT_RANGE,
    NAMESPACE,
    POD,
    POD_ADDRESS,
    REPLICA_SET,
    RESOURCE_QUOTA,
)
from minik8s_modules.apiserver.access.impersonation import impersonates
from minik8s_modules.apiserver.access.node_access import node_of
from minik8s_modules.apiserver.admission import webhook_admission
from minik8s_modules.apiserver.aggregation.directory import Directory
from minik8s_modules.apiserver.authorization.authorization import Access
from minik8s_modules.apiserver.authorization.identity import certificate_user
from minik8s_modules.apiserver.http import presenting
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.negotiation import OBJECT, form
from minik8s_modules.apiserver.http.target import Target, parse

LONGEST_BYTES = 16 * 1024
_RESOURCES = ("/api/", "/apis/")
# what kubectl and client-go say with a create; nothing of it makes the create another or a longer one
_SAID = re.compile(r"(?:(?:fieldManager|fieldValidation)=[A-Za-z0-9._-]*(?:&|$))*")
SHORT = frozenset({POD, CONFIG_MAP, LEASE, EVENT, EVENTS_EVENT, ENDPOINT_SLICE, POD_ADDRESS, REPLICA_SET,
                   CONTROLLER_REVISION, JOB})  # fmt: skip
"""Kinds of which a new object is looked at for a millisecond or so, beside other objects that are in the cache."""


class Quick:
    """See the module's docstring; ``kubelet_port`` is one at which the header Host chooses a node."""

    def __init__(self, backend: Backend, directory: Directory, access: Access, kubelet_port: int) -> None:
        self._backend, self._directory, self._access = backend, directory, access
        self._kubelet_port = str(kubelet_port or "")

    def read(self, environ: Mapping[str, Any]) -> bool:
        """Return whether a request is a GET that waits for nobody."""
        is_get = environ["REQUEST_METHOD"] == "GET" and not environ["QUERY_STRING"]
        return is_get and self._is_plain(environ) and self._is_short_read(environ)

    def write(self, environ: Mapping[str, Any]) -> bool:
        """Return whether a request is a create that waits for etcd alone."""
        is_post = environ["REQUEST_METHOD"] == "POST" and bool(_SAID.fullmatch(environ["QUERY_STRING"]))
        return is_post and self._is_plain(environ) and self._is_short_write(environ)

    def _is_plain(self, environ: Mapping[str, Any]) -> bool:
        path: str = environ["PATH_INFO"]
        return (
            "HTTP_UPGRADE" not in environ
            and path.startswith(_RESOURCES)
            and path.isascii()
            and not self._is_for_kubelet(environ)
            and not impersonates(environ)
            and _wants_object(environ)
            and self._is_up_to_date()
            and self._directory.of(path) is None
        )

    def _is_for_kubelet(self, environ: Mapping[str, Any]) -> bool:
        port = str(environ.get("HTTP_HOST", "")).rpartition(":")[2]
        return bool(self._kubelet_port) and port == self._kubelet_port

    def _is_up_to_date(self) -> bool:
        cache, place = self._backend.cache, self._backend.place
        return cache.ready() and (place is None or place.told() <= cache.revision)

    def _is_short_read(self, environ: Mapping[str, Any]) -> bool:
        target = parse(environ["PATH_INFO"], self._backend.kinds.registry)
        if target is None or not target.name or target.subresource or not target.kind.stored or target.kind.converted:
            return False
        return self._is_at_hand(target) and self._is_allowed(environ, target, "get")

    def _is_short_write(self, environ: Mapping[str, Any]) -> bool:
        target = parse(environ["PATH_INFO"], self._backend.kinds.registry)
        if target is None or target.name or target.kind not in SHORT or not _is_json(environ):
            return False
        if target.kind.namespaced and not self._is_short_in(target.namespace):
            return False
        limits = LIMIT_RANGE.key(target.namespace, "")
        ranges = self._backend.cache.list(limits).items if target.kind is POD else []
        if sum(len(each.data) for each in ranges) > LONGEST_BYTES:  # each container is compared with all of them
            return False
        hooked = webhook_admission.may_look(self._backend, target, "create")
        return not hooked and self._is_allowed(environ, target, "create")

    def _is_short_in(self, namespace: str) -> bool:
        """Return whether a namespace is there for new objects, and no quota counts them."""
        cache = self._backend.cache
        there = cache.get(NAMESPACE.key("", namespace)) is not None
        return there and not cache.list(RESOURCE_QUOTA.key(namespace, "")).items

    def _is_at_hand(self, target: Target) -> bool:
        """Return whether the answer's bytes need not be made, and are few."""
        found = self._backend.cache.get(target.kind.key(target.namespace, target.name))
        data = presenting.at_hand(target.kind, found) if found is not None else b""
        return data is not None and len(data) <= LONGEST_BYTES

    def _is_allowed(self, environ: Mapping[str, Any], target: Target, verb: str) -> bool:
        """Return whether it is known without much work that the user may; a refusal is a thread's."""
        user = certificate_user(environ)
        if user is None or node_of(user):
            return False
        return self._access.allows_at_once(user, target.attributes(verb))


def _is_json(environ: Mapping[str, Any]) -> bool:
    media = environ.get("CONTENT_TYPE") or "application/json"
    return str(media).partition(";")[0].strip().lower() == "application/json"


def _wants_object(environ: Mapping[str, Any]) -> bool:
    try:
        return form(environ.get("HTTP_ACCEPT", "")) == OBJECT
    except StatusError:
        return False
