"""The node's own key, and data sealed with it: aes-256-ctr as by the openssl command, then HMAC over the result.

The key stands in ``<state_dir>/node.key`` (0600). Sealed: ``a mark + what "openssl enc -salt" writes + 32 bytes of
HMAC-SHA256``. The cipher is that of the library which Python's own hashes come from: the command took a process for
each change of a Secret, and it is asked only where that library cannot be called, its key through a pipe and never
through argv. The key is random, so openssl's derivation needs no rounds (10,000 of them, as copies without the mark
have, took 4 ms of CPU of each sealing pass). It keeps secrets from backups and stray copies of the state directory
without the key file, not from root on the node.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import os
import secrets
import subprocess
import threading
from typing import Any

from .faults import KeyFault
from .files import read_bytes, write_atomically

KEY_BYTES = 32
MAC_BYTES = 32
BLOCK_BYTES, SALT_BYTES = 16, 8
MARK, SALTED = b"mk8s2:", b"Salted__"  # ours, and what openssl's own output begins with
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


def _aes(key: bytes, data: bytes, salt: bytes, rounds: int = 1) -> bytes:
    """Return ``data`` encrypted, which is also how it is decrypted, as ``openssl enc -aes-256-ctr -pbkdf2`` does it."""
    word = _derive(key, "encrypt").hex().encode()
    if (library := _library()) is None:
        return _by_command(word, data, salt, rounds)
    derived = hashlib.pbkdf2_hmac("sha256", word, salt, rounds, KEY_BYTES + BLOCK_BYTES)
    return _by_library(library, derived[:KEY_BYTES], derived[KEY_BYTES:], data)


@functools.lru_cache(maxsize=1)
def _library() -> Any:
    """Return openssl's library as Python's hashes have it, None where it is not to be called."""
    try:
        import _hashlib  # noqa: PLC0415  Python can be built without
        import ctypes  # noqa: PLC0415  (6 ms, only where something is sealed)

        library = ctypes.CDLL(_hashlib.__file__)  # what it is linked to is found in it, too
        for name in ("EVP_CIPHER_CTX_new", "EVP_aes_256_ctr"):
            getattr(library, name).restype = ctypes.c_void_p
        library.EVP_EncryptInit_ex.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_char_p] * 2
        library.EVP_EncryptUpdate.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_char_p, ctypes.c_int]
        library.EVP_CIPHER_CTX_free.argtypes = [ctypes.c_void_p]
    except (ImportError, AttributeError, OSError):
        return None
    return library


def _by_library(library: Any, key: bytes, start: bytes, data: bytes) -> bytes:
    import ctypes  # noqa: PLC0415

    made, count = ctypes.create_string_buffer(len(data) + BLOCK_BYTES), ctypes.c_int()
    context = library.EVP_CIPHER_CTX_new()
    try:
        done = library.EVP_EncryptInit_ex(context, library.EVP_aes_256_ctr(), None, key, start)
        done = done == 1 and library.EVP_EncryptUpdate(context, made, ctypes.byref(count), data, len(data))
    finally:
        library.EVP_CIPHER_CTX_free(context)
    if done != 1 or count.value != len(data):
        raise KeyFault("SealingFailed", "openssl's library does not encrypt with aes-256-ctr")
    return made.raw[: len(data)]


def _by_command(word: bytes, data: bytes, salt: bytes, rounds: int) -> bytes:
    reader, writer = os.pipe()
    try:
        os.write(writer, word + b"\n")
        os.close(writer)
        argv = ["openssl", "enc", "-aes-256-ctr", "-pbkdf2", "-iter", str(rounds), "-pass", f"fd:{reader}", "-d"]
        done = subprocess.run(argv, input=SALTED + salt + data, capture_output=True, pass_fds=(reader,), check=False)
    except FileNotFoundError as error:
        raise KeyFault("SealingFailed", "the command openssl is not installed on this node") from error
    finally:
        os.close(reader)
    if done.returncode != 0:
        raise KeyFault("SealingFailed", f"openssl: {done.stderr.decode('utf-8', 'replace')[:200]}")
    return done.stdout


def _opened(key: bytes, salted: bytes, rounds: int = 1) -> bytes:
    """Return what is in openssl's output: its mark, the salt, and the data."""
    begin = len(SALTED) + SALT_BYTES
    return _aes(key, salted[begin:], salted[len(SALTED) : begin], rounds)


def seal(key: bytes, data: bytes) -> bytes:
    """Return ``data`` encrypted, then authenticated."""
    salt = secrets.token_bytes(SALT_BYTES)
    hidden = MARK + SALTED + salt + _aes(key, data, salt)
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
        return _opened(key, hidden[len(MARK) :])
    return _opened(key, hidden, rounds=10_000)
