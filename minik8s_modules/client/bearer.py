"""Tokens towards an API server: from a kubeconfig, from a file that is replaced in time, or a pod's own.

A token file is read for every request (some 15 µs): what renews it replaces the file, and a token is then never used
longer than it holds. While the file cannot be read, the last token goes on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.client.kubeconfig import Access

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Bearer:
    """The token of ``access``, if it has one; a file's goes before one that is written out, as with client-go."""

    def __init__(self, access: Access) -> None:
        """Take the token.

        Raises:
            ConfigurationError: the file cannot be read, or what it holds is no token.
        """
        self._file = Path(access.token_file) if access.token_file else None
        self._token = self._read(self._file) if self._file else _checked(access.token, "the kubeconfig's token")

    def headers(self) -> dict[str, str]:
        """Return the header that shows the token; none without a token."""
        if self._file is not None:
            with suppress(
                ConfigurationError
            ):  # when it is gone for good, the server says that the last one has expired
                self._token = self._read(self._file)
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    @staticmethod
    def _read(path: Path) -> str:
        try:
            return _checked(path.read_text(encoding="ascii"), f"token file {path}") or _no_token(path)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"cannot read token file {path}: {error}") from error


def in_cluster(environ: Mapping[str, str] = os.environ, folder: Path = ACCOUNT) -> Access | None:
    """Return the access that a pod has by its service account, None outside of pods.

    Raises:
        ConfigurationError: the pod's ca.crt cannot be read.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    token = folder / "token"
    if not host or not port or not token.is_file():
        return None
    try:
        authority = (folder / "ca.crt").read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read {error.filename}: {error.strerror}") from error
    shown = f"[{host}]" if ":" in host else host
    return Access(f"https://{shown}:{port}", authority, b"", b"", token_file=str(token))


def own_namespace(folder: Path = ACCOUNT) -> str:
    """Return the namespace of the pod that this runs in, ``default`` where it is not told."""
    try:
        return (folder / "namespace").read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"


def _checked(text: str, source: str) -> str:
    token = text.strip()
    if any(not "!" <= character <= "~" for character in token):
        raise ConfigurationError(f"{source} contains characters that no token has; nothing was sent")
    return token


def _no_token(path: Path) -> str:
    raise ConfigurationError(f"token file {path} is empty")
