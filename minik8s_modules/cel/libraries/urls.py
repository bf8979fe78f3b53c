"""URLs as Go's net/url reads them in a request: an absolute address, or an absolute path."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote, unquote, unquote_plus

from minik8s_modules.cel import types
from minik8s_modules.cel.errors import EvaluationError
from minik8s_modules.cel.types import Type

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ESCAPED_PATH = re.compile(r"(?:[A-Za-z0-9\-_.~!$&'()*+,;=:@/\[\]]|%[0-9A-Fa-f]{2})*")
_USER = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_HOST = re.compile(r"(?:[A-Za-z0-9\-_.~!$&'()*+,;=:\[\]<>\"]|[^\x00-\x7f]|%[0-9A-Fa-f]{2})*")
_PORT = re.compile(r"(?::[0-9]*)?")
_PATH_SAFE = "$&+,/:;=@-_.~"


@dataclass(frozen=True, slots=True)
class URL:
    """The parts of an address."""

    scheme: str
    host: str
    path: str
    query: str
    rest: str = ""  # user and fragment: part of the address, not asked for
    cel_type: ClassVar[Type] = types.URL

    def cel_size(self) -> int:
        """Its length, as costs count it."""
        return len(self.scheme) + len(self.host) + len(self.path) + len(self.query)


def _refuse(text: str, why: str) -> EvaluationError:
    return EvaluationError(f'URL parse error during conversion from string: parse "{text}": {why}')


def parse_url(text: str) -> URL:
    """Return the parts; raises EvaluationError."""
    if _CONTROL.search(text):
        raise _refuse(text, "net/url: invalid control character in URL")
    if not text:
        raise _refuse(text, "empty url")
    if text == "*":
        return URL("", "", "*", "")
    scheme, rest = _scheme(text)
    rest, _, fragment = rest.partition("#")
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:  # opaque, as mailto:somebody
            return URL(scheme, "", "", query, rest + fragment)
        raise _refuse(text, "invalid URI for request")
    authority = ""
    if scheme and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
    user, _, host = authority.rpartition("@")
    _check(text, user, host, rest)
    return URL(scheme, unquote(host) if "[" not in host else host, rest, query, f"{user}#{fragment}")


def _scheme(text: str) -> tuple[str, str]:
    found = _SCHEME.match(text)
    if found is None:
        if text.startswith(":"):
            raise _refuse(text, "missing protocol scheme")
        return "", text
    return found[1].lower(), text[found.end() :]


def _check(text: str, user: str, host: str, path: str) -> None:
    if not _USER.fullmatch(user):
        raise _refuse(text, "net/url: invalid userinfo")
    if _BAD_ESCAPE.search(path) or _BAD_ESCAPE.search(user):
        raise _refuse(text, "invalid URL escape")
    if host.startswith("["):
        closing = host.rfind("]")
        port = host[closing + 1 :]
        if closing < 0:
            raise _refuse(text, "missing ']' in host")
    else:
        colon = host.rfind(":")
        port = host[colon:] if colon >= 0 else ""
    if not _PORT.fullmatch(port):
        raise _refuse(text, f'invalid port "{port}" after host')
    if not _HOST.fullmatch(host):
        raise _refuse(text, "invalid character in host name")


def is_url(text: str) -> bool:
    """Return whether the text can be read as an address."""
    try:
        parse_url(text)
    except EvaluationError:
        return False
    return True


def _hostname(url: URL) -> str:
    if url.host.startswith("["):
        return url.host[1 : url.host.rfind("]")]
    return url.host.partition(":")[0]


def _port(url: URL) -> str:
    after = url.host[url.host.rfind("]") + 1 :]
    return after.rpartition(":")[2] if ":" in after else ""


def _escaped_path(url: URL) -> str:
    if _ESCAPED_PATH.fullmatch(url.path):
        return url.path
    return quote(unquote(url.path, errors="surrogateescape"), safe=_PATH_SAFE, errors="surrogateescape")


def _query(url: URL) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for part in url.query.split("&"):
        key, _, value = part.partition("=")
        if part and ";" not in part and not _BAD_ESCAPE.search(part):
            found.setdefault(unquote_plus(key), []).append(unquote_plus(value))
    return found


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "string_to_url": parse_url,
    "is_url_string": is_url,
    "url_get_scheme": lambda url: url.scheme,
    "url_get_host": lambda url: url.host,
    "url_get_hostname": _hostname,
    "url_get_port": _port,
    "url_get_escaped_path": _escaped_path,
    "url_get_query": _query,
}
