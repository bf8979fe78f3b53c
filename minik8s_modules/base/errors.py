"""The parents of every error we raise; each room adds its own below them.

Minik8sError
├── ConfigurationError     the user must change a file or an option; the message says which
├── TemporaryError         the same call may succeed later; retry with back-off
│   ├── store.errors.StoreUnavailable
│   └── client.errors.ApiUnreachable
├── store.errors.StoreError (KeyExists, KeyMissing, StaleWrite, Compacted)
└── api.errors.StatusError  (NotFound, AlreadyExists, Conflict, Invalid, … : a Kubernetes Status)
"""

from __future__ import annotations


class Minik8sError(Exception):
    """Base of all errors of this project."""


class ConfigurationError(Minik8sError):
    """What the user wrote in a file or an option cannot be used; the message names it and says what to do."""


class TemporaryError(Minik8sError):
    """The same call may succeed later."""
