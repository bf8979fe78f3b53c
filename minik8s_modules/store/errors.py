"""What a store call can end in besides a result.

base.Minik8sError
├── StoreError             the store answered; the same call will end the same way again
│   ├── KeyExists          create: the key is taken
│   ├── KeyMissing         update, delete: there is no such key
│   ├── StaleWrite         update, delete: the key has a newer revision than the caller expected; read again
│   ├── Compacted          range, watch: the revision asked for is no longer kept; list again from the latest
│   ├── FutureRevision     range: the revision asked for does not exist yet
│   ├── Undecryptable      get: the value's key is not in the ring, or the value was changed
│   ├── ValueTooLarge      create, update: etcd refuses a request this large
│   └── Expired            cache: the ring of events no longer reaches back to the revision; list again
└── base.TemporaryError
    └── StoreUnavailable   no etcd answered in time. A write may or may not have happened
"""

from __future__ import annotations

from minik8s_modules.base.errors import Minik8sError, TemporaryError


class StoreError(Minik8sError):
    """The store answered with a refusal."""


class KeyExists(StoreError):
    """The key to create is taken."""


class KeyMissing(StoreError):
    """The key to change or delete does not exist."""


class StaleWrite(StoreError):
    """The key has another revision than the writer had read."""


class Compacted(StoreError):
    """The history asked for has been forgotten."""


class FutureRevision(StoreError):
    """The store has not reached the revision asked for."""


class ValueTooLarge(StoreError):
    """The value does not fit into one request."""


class Undecryptable(StoreError):
    """The value cannot be decrypted."""


class Expired(StoreError):
    """The cache no longer holds the events after the revision asked for."""


class StoreUnavailable(TemporaryError):
    """No etcd answered within the deadline; a write may or may not have been done."""


def check_expected(verb: str, key: str, expected: int, found: int) -> None:
    """Raise what is wrong with a key's revision ``found`` (0: there is no such key), if it is not ``expected``."""
    if found == expected:
        return
    if not expected:
        raise KeyExists(f"cannot create {key}: it exists")
    if not found:
        raise KeyMissing(f"cannot {verb} {key}: it does not exist")
    raise StaleWrite(f"cannot {verb} {key}: revision {expected} is not the latest {found}")
