"""What the client raises besides the API's own ``StatusError``.

Minik8sError
└── TemporaryError
    └── ApiUnreachable      no answer: refused, cut off, timed out, or TLS failed; whether a write happened
    is unknown
"""

from __future__ import annotations

from minik8s_modules.base.errors import TemporaryError


class ApiUnreachable(TemporaryError):
    """The API server gave no complete answer; read again before assuming that a write was lost."""
