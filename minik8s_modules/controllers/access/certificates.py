"""``minik8s-certificates --config FILE``: signs CertificateSigningRequests; the only process with authorities' keys.

A process and a user of its own: neither the API server nor the other controllers can read the key. What reads and signs
requests is ``signer.py``. It is imported with the first request: without cryptography the process takes 7 MB less, and
there are requests only when somebody joins.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import CERTIFICATE_SIGNING_REQUEST
from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.process import run_daemon
from minik8s_modules.client.configured import client_of, election_client
from minik8s_modules.client.interface import Api
from minik8s_modules.runtime.leader import LeaderElector, Token
from minik8s_modules.runtime.shell import Shell

if TYPE_CHECKING:
    from minik8s_modules.controllers.access.signer import Signer

log = logging.getLogger(__name__)
LEASE_NAME = "minik8s-certificates"
_Files = tuple[Path, Path]


class CertificateController(Shell[str]):
    """Passes requests on to the signer that ``make`` returns, one after the other."""

    def __init__(self, client: Api, make: Callable[[], Signer]) -> None:
        self._make = make
        self._signer: Signer | None = None
        super().__init__(client, "certificates")
        self._requests = self.follow(
            CERTIFICATE_SIGNING_REQUEST, lambda old, new: self._queue.add(objects.name(new or old or {}))
        )

    def sync(self, name: str) -> None:
        """Do what is to be done with one request. Raises as the API does."""
        request = self._requests.get("", name)
        if request is None:
            return
        self._signer = self._signer or self._make()
        again_s = self._signer.settle(request)
        if again_s is not None:
            self._queue.add_after(name, again_s)


def _files(configuration: Configuration, name: str) -> _Files:
    return Path(configuration.text(f"{name}.cert")), Path(configuration.text(f"{name}.key"))


def _check(authorities: Sequence[_Files]) -> None:
    """Read the authorities in a process of its own, which takes the libraries with it when it ends.

    Raises:
        ConfigurationError: one of them cannot be used.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # no exception may leave this branch: the child would go on as a second daemon
        try:
            from minik8s_modules.controllers.access.signer import trouble  # noqa: PLC0415 - see the module's docstring

            os.write(writing, trouble(authorities).encode())
            os._exit(0)
        except BaseException:
            log.exception("the authorities could not be read")
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    if text or status:
        raise ConfigurationError(text or f"the authorities could not be read: wait status {status}")


def serve(configuration: Configuration, stop: threading.Event) -> None:
    """Run until ``stop`` is set.

    Raises:
        ConfigurationError: the configuration, the kubeconfig or the authority cannot be used.
    """
    client = client_of(configuration, "minik8s-certificates")
    authority = _files(configuration, "authority")
    mesh = _files(configuration, "mesh_authority") if configuration.has("mesh_authority") else None
    _check([each for each in (authority, mesh) if each is not None])

    def make() -> Signer:
        from minik8s_modules.controllers.access import signer  # noqa: PLC0415 - see the module's docstring

        return signer.Signer(client, signer.reader(*authority), mesh=signer.reader(*mesh) if mesh else None)

    def lead(_token: Token, lost: threading.Event) -> None:
        controller = CertificateController(client, make)
        controller.start()
        lost.wait()
        controller.stop()

    try:
        LeaderElector(election_client(configuration, "minik8s-certificates"), LEASE_NAME).run(stop, lead)
    finally:
        client.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; return its exit code."""
    return run_daemon("minik8s-certificates", "Signs certificate signing requests.", serve, argv)


if __name__ == "__main__":
    sys.exit(main())
