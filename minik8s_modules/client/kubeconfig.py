"""Reading a kubeconfig: server address and client certificate of its current context.

Only what our identities use is understood: ``server``, ``certificate-authority[-data]``,
``client-certificate[-data]``, ``client-key[-data]``. Anything that would change how we authenticate
(tokens, exec plugins, proxies) is refused.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from minik8s_modules.base.errors import ConfigurationError

_UNSUPPORTED_USER = ("token", "tokenFile", "username", "password", "exec", "auth-provider", "as")
_UNSUPPORTED_CLUSTER = ("insecure-skip-tls-verify", "proxy-url", "tls-server-name")


class Access(NamedTuple):
    """How to reach an API server: its URL and PEM texts; empty texts mean "not given"."""

    server: str
    ca_pem: bytes
    cert_pem: bytes
    key_pem: bytes


def load_kubeconfig(path: Path, context_name: str = "") -> Access:
    """Return the access that ``context_name``, else the current context, of ``path`` describes.

    Raises:
        ConfigurationError: the file cannot be read or lacks a part, or asks for what is not supported.
    """
    config = _read_yaml(path)
    name = context_name or config.get("current-context") or ""
    context = _named(config, "contexts", name, "context", path)
    cluster = _named(config, "clusters", context.get("cluster", ""), "cluster", path)
    user = _named(config, "users", context.get("user", ""), "user", path)
    _refuse(cluster, _UNSUPPORTED_CLUSTER, path)
    _refuse(user, _UNSUPPORTED_USER, path)
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        raise ConfigurationError(f"{path}: the cluster's server must be an https:// URL, not {server!r}")
    return Access(
        server.rstrip("/"),
        _pem(cluster, "certificate-authority", path),
        _pem(user, "client-certificate", path),
        _pem(user, "client-key", path),
    )


def _read_yaml(path: Path) -> Mapping[str, Any]:
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read kubeconfig {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"kubeconfig {path} is no valid YAML: {error}") from error
    if not isinstance(config, Mapping):
        raise ConfigurationError(f"kubeconfig {path} must hold a mapping at its top level")
    return config


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
        raise ConfigurationError(f"kubeconfig {path}: {', '.join(given)} is not supported; use a client certificate")


def _pem(section: Mapping[str, Any], key: str, path: Path) -> bytes:
    if section.get(f"{key}-data"):
        try:
            return base64.b64decode(section[f"{key}-data"], validate=True)
        except (binascii.Error, TypeError) as error:
            raise ConfigurationError(f"kubeconfig {path}: {key}-data is no base64: {error}") from error
    if not section.get(key):
        return b""
    target = path.parent / str(section[key])
    try:
        return target.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"kubeconfig {path}: cannot read {key} {target}: {error.strerror}") from error
