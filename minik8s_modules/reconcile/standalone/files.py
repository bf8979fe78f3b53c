"""What a node's own reconciler keeps on its machine: who it is, how it reaches the cluster, what its daemons read.

All of it lies in ``<state_dir>/agent``, for root alone. Certificate and key are one file each (the kubeconfig holds
both), so that no crash leaves a pair of two halves; every file is put in place by a rename.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import secrets
import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from cryptography import x509

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.client.kubeconfig import load_kubeconfig

RENEW_AT = 0.75
"""Of a certificate's life; kubelet renews between 70 and 90 % (``certificate_manager.go``)."""


class Identity(NamedTuple):
    """Which node this is, and of which cluster."""

    node: str
    server: str


class Home:
    """The folder; ``open`` takes it for this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock: int | None = None

    def path(self, name: str) -> Path:
        """Return the path of a file in it."""
        return self.folder / name

    def open(self) -> None:
        """Make the folder where it is missing, and keep other processes out.

        Raises:
            ConfigurationError: another reconciler runs with it, or it cannot be written.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self.path("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigurationError(
                f"another reconciler runs with {self.folder}; end it, or give this one its own --state-dir"
            ) from error
        except OSError as error:
            raise ConfigurationError(f"cannot use {self.folder}: {error.strerror}") from error

    def close(self) -> None:
        """Let others have it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def read(self, name: str) -> str:
        """Return a file's text, "" when there is none."""
        try:
            return self.path(name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def write(self, name: str, text: str) -> Path:
        """Put a file in place, for root alone; returns its path."""
        handle, part = tempfile.mkstemp(dir=self.folder, prefix=f".{name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(part).replace(self.path(name))
        return self.path(name)

    def remove(self, *names: str) -> None:
        """Remove files that may be there."""
        for name in names:
            self.path(name).unlink(missing_ok=True)

    def identity(self) -> Identity | None:
        """Return who this machine joined as, None when it did not."""
        text = self.read("identity.json")
        return Identity(**json.loads(text)) if text else None

    def hmac_key(self) -> Path:
        """Return the file of the key by which this node tells secrets apart; it is made once."""
        return self.path("hmac.key") if self.read("hmac.key") else self.write("hmac.key", secrets.token_hex(32) + "\n")

    def write_yaml(self, name: str, data: Mapping[str, Any]) -> Path:
        """Write a daemon's configuration; returns its path."""
        return self.write(name, yaml.safe_dump(dict(data), sort_keys=False))


def kubeconfig(identity: Identity, authorities: bytes, certificate: bytes, key: str) -> str:
    """Return the kubeconfig of the node."""

    def data(pem: bytes) -> str:
        return base64.b64encode(pem).decode()

    cluster = {"server": identity.server, "certificate-authority-data": data(authorities)}
    user = {"client-certificate-data": data(certificate), "client-key-data": data(key.encode())}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": identity.node,
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": identity.node, "user": user}],
        "contexts": [{"name": identity.node, "context": {"cluster": "cluster", "user": identity.node}}],
    }
    return yaml.safe_dump(document, sort_keys=False)


class Validity(NamedTuple):
    """From when to when a certificate is good."""

    begin: datetime
    end: datetime

    def over(self, now: datetime) -> bool:
        """Return whether it is good no more."""
        return now >= self.end

    def renewal_due(self, now: datetime) -> bool:
        """Return whether it is time for another one."""
        return now >= self.begin + (self.end - self.begin) * RENEW_AT


def validity(pem: bytes) -> Validity:
    """Return the validity of the first certificate in ``pem``. Raises ValueError when there is none."""
    found = x509.load_pem_x509_certificate(pem)
    return Validity(found.not_valid_before_utc, found.not_valid_after_utc)


def client_validity(path: Path) -> Validity | None:
    """Return the validity of the kubeconfig's certificate, None when there is no usable one."""
    try:
        return validity(load_kubeconfig(path).cert_pem)
    except (ConfigurationError, ValueError):
        return None
