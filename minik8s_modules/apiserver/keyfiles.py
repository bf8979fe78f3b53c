"""The keys of service-account tokens, read from files and read again when a file changes.

The first file signs, all verify: to rotate, put the new key first and leave the old one until the last of its tokens
has ended. A file that cannot be read while it is being replaced leaves the former keys in use.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from minik8s_modules.apiserver import jwt
from minik8s_modules.base.errors import ConfigurationError

log = logging.getLogger(__name__)


class KeyFiles:
    """Signing and verifying keys.

    Args:
        signing: file of the private key that signs.
        verifying: files of further keys, public or private, whose tokens are accepted.

    Raises:
        ConfigurationError: a file cannot be used.
    """

    def __init__(self, signing: Path, verifying: Sequence[Path] = ()) -> None:
        self._paths = (signing, *verifying)
        self._lock = threading.Lock()
        self._generation = 0
        self._stamp: tuple[tuple[int, int], ...] = ()
        try:
            self._stamp = self._stamps()
            self._signer, self._verifiers = self._read()
        except (OSError, ValueError, TypeError) as error:
            raise ConfigurationError(f"apiserver: service_accounts: a key cannot be used: {error}") from error

    def signer(self) -> jwt.Signer:
        """Return the key that signs."""
        self._refresh()
        return self._signer

    def verifier(self, key_id: str) -> jwt.Verifier | None:
        """Return the key of that id, None when it is not known."""
        return next((key for key in self.verifiers() if key.id == key_id), None)

    def verifiers(self) -> tuple[jwt.Verifier, ...]:
        """Return all keys that tokens may be signed by."""
        self._refresh()
        return self._verifiers

    def generation(self) -> int:
        """Return a number that rises when the keys change."""
        self._refresh()
        return self._generation

    def _refresh(self) -> None:
        with self._lock:
            try:
                stamp = self._stamps()
                if stamp != self._stamp:
                    self._signer, self._verifiers = self._read()
                    self._stamp, self._generation = stamp, self._generation + 1
            except (OSError, ValueError, TypeError) as error:
                log.warning("the keys of service-account tokens stay as they were: %s", error)

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        found = [path.stat() for path in self._paths]
        return tuple([(status.st_mtime_ns, status.st_ino) for status in found])

    def _read(self) -> tuple[jwt.Signer, tuple[jwt.Verifier, ...]]:
        signer = jwt.read_signer(self._paths[0].read_bytes())
        others = [jwt.read_verifier(path.read_bytes()) for path in self._paths[1:]]
        return signer, (signer.verifier, *others)
