"""Who answers a path below /apis in this server's stead, and what a request there is authorized as; pure.

Authentication and authorization are this server's, by what the path says: an extension's kinds are not known here.
Paths: k8s.io/apiserver ``endpoints/request/requestinfo.go``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from minik8s_modules.api.access.api_services import REPLACEABLE, Remote, is_managed, remote
from minik8s_modules.api.errors import BadRequest
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import API_SERVICE, KINDS
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.store import readable
from minik8s_modules.store.cache import WatchCache

_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_ALL = {"get": "list", "delete": "deletecollection"}
_PARTS = 4
_LONG = frozenset({"proxy", "exec", "attach", "portforward", "log"})


class ForwardedRequest(NamedTuple):
    """A request to an extension: who answers it, what it is about, and whether its answer may take any time."""

    remote: Remote
    target: Target
    verb: str
    endless: bool


def is_watch(arguments: Mapping[str, str]) -> bool:
    """Return whether extensions read arguments as a watch's: apimachinery's Convert_Slice_string_To_bool."""
    return arguments.get("watch", "false").lower() not in {"false", "0"}


def is_reserved(group: str) -> bool:
    """Return whether the server answers all of a group itself, whatever an APIService says."""
    return group in KINDS.groups() and group not in REPLACEABLE


def remotes_of(api_services: Iterable[JsonObject]) -> dict[tuple[str, str], Remote]:
    """Return who answers in the server's stead, by group and version.

    A built-in group is never given away, nor one whose APIService says that the server keeps it: both are put back.
    """
    found = {}
    for each in api_services:
        other = remote(each)
        if other is None or is_reserved(other.group):
            continue
        if not is_managed(each) or other.group in REPLACEABLE:
            found[other.group, other.version] = other
    return found


class Directory:
    """Who answers what now, as the APIServices in the cache say; from any thread."""

    def __init__(self, cache: WatchCache) -> None:
        self._cache = cache
        self._made: tuple[int, Mapping[tuple[str, str], Remote]] = (0, {})

    @property
    def remotes(self) -> Mapping[tuple[str, str], Remote]:
        """Return who answers in the server's stead, by group and version; made again when an APIService changed."""
        changes, made = self._cache.changes(API_SERVICE.prefix), self._made
        if changes != made[0]:
            listed = self._cache.list(API_SERVICE.prefix).items
            made = self._made = (changes, remotes_of(readable.objects_of(API_SERVICE, listed)))
        return made[1]

    def of(self, path: str) -> Remote | None:
        """Return who answers a path in this server's stead."""
        if not path.startswith("/apis/"):
            return None
        remotes = self.remotes
        parts = path.split("/", _PARTS) if remotes else []
        return remotes.get((parts[2], parts[3])) if len(parts) >= _PARTS else None

    def names_resource(self, path: str) -> bool:
        """Return whether a path leads to a resource of somebody else."""
        found = self.of(path)
        return found is not None and path.rstrip("/") != found.path

    def asked(self, method: str, path: str, *, watch: bool) -> ForwardedRequest | None:
        """Return what a request asks of somebody else, None where this server answers it.

        Raises:
            BadRequest: the path may mean different things to different readers.
        """
        found = self.of(path)
        if found is None:
            return None
        parts = path.removeprefix(f"{found.path}/").removesuffix("/").split("/")
        if any(part in {"", ".", ".."} for part in parts):
            raise BadRequest("the path has a segment that is empty, . or ..")
        watched = parts[0] == "watch" and len(parts) > 1
        target = _target(found, parts[1:] if watched else parts)
        verb = _VERBS.get(method, method.lower())
        if watched or (watch and verb == "get" and not target.name):
            verb = "watch"
        elif not target.name:
            verb = _OF_ALL.get(verb, verb)
        return ForwardedRequest(found, target, verb, verb == "watch" or target.subresource in _LONG)


def _target(found: Remote, parts: list[str]) -> Target:
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace, parts = parts[1], parts[2:] or parts
    plural, name, subresource = (*parts, "", "")[:3]
    kind = Kind(found.group, found.version, "", plural, "", namespaced=bool(namespace), stored=False, has_spec=False)
    return Target(kind, namespace, name, subresource)
