"""What a request's head means, as a WSGI environment (PEP 3333); pure.

framing.py has seen that the head can be read in one way only, so lines are split where it split them. Names with an
underscore are left out: an environment has one for ``-`` as well, and a client could pass ``X_Y`` off as ``X-Y``.
"""

from __future__ import annotations

import io
import re
import sys
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from minik8s_modules.api.errors import BadRequest, StatusError
from minik8s_modules.apiserver.intake.framing import Whole

MAX_LINE_BYTES = 8190  # of the request line and of each header: label selectors are long
MAX_HEADERS = 100
# RFC 9110, 5.6.2, without lower case: methods are compared as they are
_METHOD = re.compile(r"[A-Z0-9!$%&'*+.^_`|~-]{3,20}")
_FIELD = re.compile(rb"([A-Za-z0-9!#$%&'*+.^_`|~-]+):[ \t]*([^\0\r\n]*)")
_BARE = frozenset({"CONTENT_TYPE", "CONTENT_LENGTH"})


def environ_of(whole: Whole, peer: tuple[str, int], server: tuple[str, int]) -> dict[str, Any]:
    """Return the WSGI environment of a request.

    Args:
        whole: the request.
        peer: the client's address and port.
        server: this server's, where the client reached it.

    Raises:
        BadRequest: the head cannot be read.
        StatusError: 414 or 431: a line is too long, or there are too many headers.
    """
    first, *lines = whole.head[:-4].split(b"\r\n")
    if len(first) > MAX_LINE_BYTES:
        raise StatusError(414, "RequestURITooLong", f"the request's first line has over {MAX_LINE_BYTES} bytes")
    if len(lines) > MAX_HEADERS:
        raise StatusError(431, "RequestHeaderFieldsTooLarge", f"the request has over {MAX_HEADERS} headers")
    method, uri, protocol = first.decode("latin-1").split(" ")
    if not _METHOD.fullmatch(method):
        raise BadRequest("the request's method must be 3 to 20 capital letters")
    path, query = _split(uri)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "RAW_URI": uri,
        "SCRIPT_NAME": "",
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "SERVER_PROTOCOL": protocol,
        "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1]),
        "REMOTE_ADDR": peer[0],
        "REMOTE_PORT": str(peer[1]),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "https",
        "wsgi.input": io.BytesIO(whole.body),
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    environ.update(whole.read or _read(lines, whole.read))
    return environ


def _read(lines: list[bytes], kept: dict[str, str] | None) -> dict[str, str]:
    """Return what the fields of a head are in an environment; into ``kept``, for the next head with the same ones."""
    found: dict[str, str] = {}
    for line in lines:
        _add(found, line)
    if kept is not None:
        kept.update(found)
    return found


def asks_to_close(environ: dict[str, Any]) -> bool:
    """Return whether the client wants, or its version of HTTP means, the connection to end after the answer."""
    asked = {part.strip() for part in environ.get("HTTP_CONNECTION", "").lower().split(",")}
    if "close" in asked:
        return True
    return environ["SERVER_PROTOCOL"] == "HTTP/1.0" and "keep-alive" not in asked


def _split(uri: str) -> tuple[str, str]:
    """Return the path, with its escapes resolved, and the query of a request's target."""
    if uri.startswith("/"):
        path, _, query = uri.partition("#")[0].partition("?")
    else:  # a proxy's form: http://HOST/PATH
        try:
            parts = urlsplit(uri)
        except ValueError as error:
            raise BadRequest(f"the request's target cannot be read: {error}") from error
        path, query = parts.path, parts.query
    plain = path if "%" not in path and path.isascii() else unquote_to_bytes(path).decode("latin-1")
    return plain, query


def _add(environ: dict[str, str], line: bytes) -> None:
    if len(line) > MAX_LINE_BYTES:
        raise StatusError(
            431, "RequestHeaderFieldsTooLarge", f"a header of the request has over {MAX_LINE_BYTES} bytes"
        )
    found = _FIELD.fullmatch(line)
    if found is None:
        raise BadRequest("a header of the request is not in the form Name: value")
    if b"_" in found[1]:
        return
    name, value = found[1].decode().upper().replace("-", "_"), found[2].decode("latin-1").rstrip(" \t")
    key = name if name in _BARE else f"HTTP_{name}"
    environ[key] = f"{environ[key]},{value}" if key in environ else value
