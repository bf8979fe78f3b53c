"""Requests for streams are the API server's own: it has signed each of them (apiserver/nodes/signing.py).

The process that hands a request over parses what strangers send, so it is not believed who asked. It has the public
certificate of the API server and no key: it can pass a request on, neither make nor change nor repeat one. Whose
certificates count, and whether one has signed, is in signers.py.
"""

from __future__ import annotations

import functools
import ssl
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from minik8s_modules.api.errors import StatusError
from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.streams.requests import signed_text

if TYPE_CHECKING:
    from minik8s_modules.gateway.streams.signers import Signers

CALLER = "system:minik8s:apiserver"
# clocks of two machines may differ by so much (Kerberos' classic value); a nonce is remembered for twice the time
WINDOW_S = 300.0


class Signatures:
    """Checks signatures by the authority in ``client_ca``, of ``CALLER``'s certificates only; from any thread."""

    def __init__(self, client_ca: Path, clock: Clock | None = None) -> None:
        try:
            self._authorities = client_ca.read_bytes()
            # the first stream makes the checker: a file that it could not use has to be told now
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=client_ca)
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"streams.client_ca: {client_ca} cannot be used: {error}") from error
        self._clock = clock or SystemClock()
        self._seen: dict[str, float] = {}
        self._lock = threading.Lock()

    @functools.cached_property
    def _signers(self) -> Signers:
        from minik8s_modules.gateway.streams.signers import Signers  # noqa: PLC0415 - cryptography, for streams alone

        return Signers(self._authorities, CALLER)

    def check(self, line: str, signed: str, certificate: str) -> None:
        """Return when an API server has signed the request ``line`` just now, and once.

        Raises:
            StatusError: it has not; the message says what is wrong.
        """
        try:
            at, nonce, signature = signed.split(".")
            at_s = int(at)
            text = signed_text(line, at_s, nonce)
            self._signers.check(certificate, signature, text, self._clock.now())
        except ValueError as error:
            raise _refusal(f"the request is not signed by an API server: {error}") from error
        self._check_new(at_s, nonce)

    def _check_new(self, at_s: int, nonce: str) -> None:
        now_s = self._clock.now().timestamp()
        if abs(now_s - at_s) > WINDOW_S:
            message = f"the clocks of API server and gateway differ by {now_s - at_s:.0f} s; {WINDOW_S:.0f} are allowed"
            raise _refusal(f"the request was signed at another time: {message}")
        with self._lock:
            while self._seen and next(iter(self._seen.values())) < now_s:
                del self._seen[next(iter(self._seen))]
            if nonce in self._seen:
                raise _refusal("the request has already been served; a signature is valid once")
            self._seen[nonce] = now_s + 2 * WINDOW_S


def _refusal(message: str) -> StatusError:
    return StatusError(403, "Forbidden", message)
