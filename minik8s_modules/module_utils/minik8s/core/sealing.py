"""The node's own key, and data sealed with it: aes-256-ctr by the openssl command, then HMAC over the result.

The key stands in ``<state_dir>/node.key`` (0600) and reaches openssl through a pipe, never through argv. Sealed:
``a mark + openssl's salted output + 32 bytes of HMAC-SHA256``. The key is random, so openssl's derivation needs no
rounds (10,000 of them, as copies without the mark have, took 4 ms of CPU of each sealing pass). It keeps secrets from
backups and stray copies of the state directory without the key file, not from root on the node.
"""

from __future__ import annotations

import hmac
import os
import secrets
import subprocess
import threading

from .faults import KeyFault
from .files import read_bytes, write_atomically

KEY_BYTES = 32
MAC_BYTES = 32
MARK = b"mk8s2:"  # openssl's own output begins with "Salted__"
_making = threading.Lock()


def known_key(state_dir: str) -> bytes:
    """Return the node's key, b"" when there is none yet (an observation makes nothing)."""
    return read_bytes(os.path.join(state_dir, "node.key")) or b""


def node_key(state_dir: str) -> bytes:
    """Return the node's key; it is made when it is missing (other processes wait at the node's lock)."""
    with _making:
        key = known_key(state_dir)
        if len(key) != KEY_BYTES:
            key = secrets.token_bytes(KEY_BYTES)
            write_atomically(os.path.join(state_dir, "node.key"), key, 0o600, sync=True)
    return key


def _derive(key: bytes, purpose: str) -> bytes:
    return hmac.new(key, purpose.encode(), "sha256").digest()


def _openssl(key: bytes, data: bytes, *mode: str, rounds: int = 1) -> bytes:
    reader, writer = os.pipe()
    try:
        os.write(writer, _derive(key, "encrypt").hex().encode() + b"\n")
        os.close(writer)
        argv = ["openssl", "enc", "-aes-256-ctr", "-pbkdf2", "-iter", str(rounds), "-pass", f"fd:{reader}", *mode]
        done = subprocess.run(argv, input=data, capture_output=True, pass_fds=(reader,), check=False)
    except FileNotFoundError as error:
        raise KeyFault("SealingFailed", "the command openssl is not installed on this node") from error
    finally:
        os.close(reader)
    if done.returncode != 0:
        raise KeyFault("SealingFailed", f"openssl: {done.stderr.decode('utf-8', 'replace')[:200]}")
    return done.stdout


def seal(key: bytes, data: bytes) -> bytes:
    """Return ``data`` encrypted, then authenticated."""
    hidden = MARK + _openssl(key, data, "-e", "-salt")
    return hidden + hmac.new(_derive(key, "authenticate"), hidden, "sha256").digest()


def unseal(key: bytes, sealed: bytes) -> bytes:
    """Return what was sealed.

    Raises:
        KeyFault: SealBroken when the data was changed, cut or sealed with another key.
    """
    hidden, mac = sealed[:-MAC_BYTES], sealed[-MAC_BYTES:]
    if not hmac.compare_digest(mac, hmac.new(_derive(key, "authenticate"), hidden, "sha256").digest()):
        raise KeyFault("SealBroken", "the sealed secrets do not match this node's key and must be sent again")
    if hidden.startswith(MARK):
        return _openssl(key, hidden[len(MARK) :], "-d")
    return _openssl(key, hidden, "-d", rounds=10_000)
