"""Reading a kubeconfig: server address and client certificate or token of its current context.

Understood are ``server``, ``certificate-authority[-data]``, ``client-certificate[-data]``, ``client-key[-data]``,
``token`` and ``tokenFile``. Anything else that would change how we authenticate (exec plugins, passwords, proxies) is
refused. Tokens are at work in ``bearer.py``.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from minik8s_modules.base.config import read_mapping
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.files import Stamp, stamp_if_there

ADMIN_KUBECONFIG = Path("/etc/minik8s/admin.kubeconfig")
_AUTHORITY = "certificate-authority"
_UNSUPPORTED_USER = ("username", "password", "exec", "auth-provider", "as")
_UNSUPPORTED_CLUSTER = ("insecure-skip-tls-verify", "proxy-url", "tls-server-name")


class Access(NamedTuple):
    """How to reach an API server: its URL, PEM texts, and a token or the file of one; empty means "not given".

    ``others`` are URLs of further servers of the same cluster, asked while the first does not answer; a kubeconfig
    cannot name them.
    """

    server: str
    ca_pem: bytes
    cert_pem: bytes
    key_pem: bytes
    token: str = ""
    token_file: str = ""
    others: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return where it leads; keys and tokens are not shown."""
        return f"<access to {self.server}>"


def is_chosen(named: str = "", environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether somebody chose a kubeconfig: by name, by $KUBECONFIG, or by having one at home."""
    return bool(named or environ.get("KUBECONFIG") or Path("~/.kube/config").expanduser().is_file())


def find_kubeconfig(named: str = "", environ: Mapping[str, str] = os.environ) -> Path:
    """Return the first kubeconfig that is given or exists: ``named``, $KUBECONFIG, ~/.kube/config, the admin's.

    Raises:
        ConfigurationError: the named file does not exist, or there is none at all.
    """
    named = named or environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    candidates = [Path(named)] if named else [Path("~/.kube/config"), ADMIN_KUBECONFIG]
    found = next((path.expanduser() for path in candidates if path.expanduser().is_file()), None)
    if found is None and named:
        raise ConfigurationError(
            f"no kubeconfig at {named}: {named} does not exist; name another, or check $KUBECONFIG"
        )
    if found is None:
        text = ", ".join(map(str, candidates))
        raise ConfigurationError(
            f"no kubeconfig at {text}; name one, or install a cluster (it writes {ADMIN_KUBECONFIG})"
        )
    return found


def load_kubeconfig(path: Path, context_name: str = "") -> Access:
    """Return the access that ``context_name``, else the current context, of ``path`` describes.

    Raises:
        ConfigurationError: the file cannot be read or lacks a part, or asks for what is not supported.
    """
    config = read_mapping(path, "kubeconfig")
    context = _context(config, context_name, path)
    cluster = _cluster(config, context, path)
    user = _named(config, "users", context.get("user", ""), "user", path)
    _refuse(cluster, _UNSUPPORTED_CLUSTER, path)
    _refuse(user, _UNSUPPORTED_USER, path)
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        raise ConfigurationError(f"{path}: the cluster's server must be an https:// URL, not {server!r}")
    return Access(
        server.rstrip("/"),
        _pem(cluster, _AUTHORITY, path),
        _pem(user, "client-certificate", path),
        _pem(user, "client-key", path),
        _text(user, "token", path),
        str(path.parent / token_file) if (token_file := _text(user, "tokenFile", path)) else "",
    )


class Authorities:
    """Returns the PEM of a kubeconfig's authorities; its files are read when they have changed. Thread-safe.

    Calls raise ConfigurationError, as ``load_kubeconfig`` does.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: tuple[tuple[Path, ...], Stamp, bytes] = ((path,), (), b"")

    def __call__(self) -> bytes:
        """Return it, as it is now."""
        files, known, pem = self._known
        found = stamp_if_there(*files)  # before they are read: what changes meanwhile is read the next time
        if not found or found != known:
            pem, named = self._read()
            self._known = ((self._path, *named), found, pem)
        return pem

    def _read(self) -> tuple[bytes, tuple[Path, ...]]:
        config = read_mapping(self._path, "kubeconfig")
        cluster = _cluster(config, _context(config, "", self._path), self._path)
        is_inside = bool(cluster.get(f"{_AUTHORITY}-data")) or not cluster.get(_AUTHORITY)
        return _pem(cluster, _AUTHORITY, self._path), () if is_inside else (_beside(cluster, _AUTHORITY, self._path),)


def context_namespace(path: Path, context_name: str = "") -> str:
    """Return the namespace of ``context_name``, else of the current context; ``default`` where it names none.

    Raises:
        ConfigurationError: the file cannot be read or lacks the context.
    """
    return str(_context(read_mapping(path, "kubeconfig"), context_name, path).get("namespace") or "default")


def _context(config: Mapping[str, Any], name: str, path: Path) -> Mapping[str, Any]:
    return _named(config, "contexts", name or config.get("current-context") or "", "context", path)


def _cluster(config: Mapping[str, Any], context: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    return _named(config, "clusters", context.get("cluster", ""), "cluster", path)


def _text(section: Mapping[str, Any], key: str, path: Path) -> str:
    value = section.get(key) or ""
    if not isinstance(value, str):
        raise ConfigurationError(f"kubeconfig {path}: {key} must be a string")
    return value


def _named(config: Mapping[str, Any], group: str, name: str, field: str, path: Path) -> Mapping[str, Any]:
    for item in config.get(group) or []:
        if isinstance(item, Mapping) and item.get("name") == name:
            found = item.get(field) or {}
            if isinstance(found, Mapping):
                return found
    raise ConfigurationError(f"kubeconfig {path}: {group} has no entry named {name!r}; check current-context")


def _refuse(section: Mapping[str, Any], keys: tuple[str, ...], path: Path) -> None:
    given = [key for key in keys if section.get(key)]
    if given:
        raise ConfigurationError(
            f"kubeconfig {path}: {', '.join(given)} is not supported; use a client certificate or a token"
        )


def _beside(section: Mapping[str, Any], key: str, path: Path) -> Path:
    return path.parent / str(section[key])


def _pem(section: Mapping[str, Any], key: str, path: Path) -> bytes:
    if section.get(f"{key}-data"):
        try:
            return base64.b64decode(section[f"{key}-data"], validate=True)
        except (binascii.Error, TypeError) as error:
            raise ConfigurationError(f"kubeconfig {path}: {key}-data is not base64: {error}") from error
    if not section.get(key):
        return b""
    target = _beside(section, key, path)
    try:
        return target.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"kubeconfig {path}: cannot read {key} {target}: {error.strerror}") from error
