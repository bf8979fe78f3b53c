"""The keys that encrypt values at rest: a JSON file ``{"keys": [{"id": "...", "key": "<base64 of 32 bytes>"}]}``.

The first key writes, all read. To rotate while API servers run: ``add-key --last`` and copy the file to every server,
then ``promote`` and copy again, ``minik8s-store secrets rewrite``, then ``drop-keys``. (With one server ``add-key``
alone does for the first two.) A server reads the file again when it changes; a file that cannot be read leaves the
former keys in use.

Each value has a key of its own, derived from the ring's key and a random salt (HKDF-SHA256), as Kubernetes' KMS v2
derives them: so the limit on random nonces under one AES-GCM key (NIST SP 800-38D, 2^32) is never near. The value's
place in the store is authenticated with it: a value that was moved to another key of etcd does not decrypt.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.files import Stamp, stamp

log = logging.getLogger(__name__)

MARK = b"minik8s:enc:v1:"
_KEY_BYTES, _SALT_BYTES, _NONCE_BYTES = 32, 16, 12
_ID = re.compile("[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")
_OTHERS = 0o077


class Key(NamedTuple):
    """One key of the ring."""

    id: str
    secret: bytes

    def __repr__(self) -> str:
        """Return the id; the secret is shown nowhere."""
        return f"Key({self.id})"

    def seal(self, place: str, value: bytes) -> bytes:
        """Return ``value`` encrypted for the store's key ``place``."""
        salt, nonce = secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(_NONCE_BYTES)
        sealed = self._cipher(salt).encrypt(nonce, value, place.encode())
        return b"".join((MARK, self.id.encode(), b":", salt, nonce, sealed))

    def open(self, place: str, sealed: bytes) -> bytes:
        """Return what ``seal`` was given. Raises ValueError when it is not this key's, or was changed or moved."""
        salt, rest = sealed[:_SALT_BYTES], sealed[_SALT_BYTES:]
        try:
            return self._cipher(salt).decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], place.encode())
        except InvalidTag as error:
            raise ValueError(f"the value was changed, or is not of key {self.id}") from error

    def _cipher(self, salt: bytes) -> AESGCM:
        derived = HKDF(hashes.SHA256(), _KEY_BYTES, salt, b"minik8s value at rest").derive(self.secret)
        return AESGCM(derived)


def key_of(stored: bytes) -> str:
    """Return the id of the key a stored value is encrypted with, "" for a plain one."""
    return stored[len(MARK) :].partition(b":")[0].decode(errors="replace") if stored.startswith(MARK) else ""


def parse(data: bytes) -> tuple[Key, ...]:
    """Return the keys of a ring's file. Raises ValueError when it is none."""
    found = orjson.loads(data)
    entries = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(entries, list) or not entries:
        raise ValueError("it must hold an object with a list of keys, at least one")
    keys = tuple(_key(entry) for entry in entries)
    if len({key.id for key in keys}) < len(keys):
        raise ValueError("two keys have the same id")
    return keys


def _key(entry: object) -> Key:
    if not isinstance(entry, Mapping):
        raise ValueError("a key must be an object with id and key")  # noqa: TRY004 - bad content, not a bad call
    called, text = entry.get("id"), entry.get("key")
    if not isinstance(called, str) or not _ID.fullmatch(called):
        raise ValueError(f"a key's id must be 1 to 32 of a-z, 0-9 and -, not {called!r}")
    try:
        secret = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except binascii.Error:
        secret = b""
    if len(secret) != _KEY_BYTES:
        raise ValueError(f"key {called} must be {_KEY_BYTES} bytes in base64")
    return Key(called, secret)


def dump(keys: Sequence[Key]) -> bytes:
    """Return the file that holds ``keys``."""
    entries = [{"id": key.id, "key": base64.b64encode(key.secret).decode()} for key in keys]
    return orjson.dumps({"keys": entries}, option=orjson.OPT_INDENT_2) + b"\n"


def new_key() -> Key:
    """Return a random key with a random id."""
    return Key(f"k{secrets.token_hex(6)}", secrets.token_bytes(_KEY_BYTES))


class KeyRing:
    """The keys in a file, read again when it changes.

    Raises:
        ConfigurationError: the file cannot be used, or others than its owner may read it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        try:
            self._stamp, self._keys = self._read()
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"the key ring {path} cannot be used: {error}") from error

    def seal(self, place: str, value: bytes) -> bytes:
        """Return ``value`` encrypted with the first key."""
        return self.keys()[0].seal(place, value)

    def open(self, place: str, stored: bytes) -> bytes:
        """Return the plain value of what is stored at ``place``; a plain one as it is.

        Raises:
            ValueError: its key is not in the ring, or it was changed.
        """
        if not stored.startswith(MARK):
            return stored
        called, _, sealed = stored[len(MARK) :].partition(b":")
        for key in self.keys():
            if key.id.encode() == called:
                return key.open(place, sealed)
        raise ValueError(f"it is encrypted with key {key_of(stored)!r}, which is not in {self._path}")

    def keys(self) -> tuple[Key, ...]:
        """Return the keys as the file has them."""
        with self._lock:
            try:
                if stamp(self._path) != self._stamp:
                    self._stamp, self._keys = self._read()
                    log.info("key ring read again: %s writes", self._keys[0].id)
            except (OSError, ValueError) as error:
                log.warning("the key ring %s stays as it was: %s", self._path, error)
            return self._keys

    def _read(self) -> tuple[Stamp, tuple[Key, ...]]:
        found = stamp(self._path)
        if self._path.stat().st_mode & _OTHERS:
            raise ValueError("users other than its owner can read it; chmod 600")
        return found, parse(self._path.read_bytes())


def replace(path: Path, keys: Sequence[Key]) -> None:
    """Write ``keys`` to ``path`` at once and for good, with the owner and mode the file has."""
    status = path.stat()
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchown(descriptor, status.st_uid, status.st_gid)
            file.write(dump(keys))
            file.flush()
            os.fsync(descriptor)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
