"""``minik8s-certificates --config FILE``: signs CertificateSigningRequests; the only process with authorities' keys.

A process and a user of its own: neither the API server nor the other controllers can read the key. What reads and signs
requests is ``signer.py``. It is imported with the first request: without cryptography the process takes 6 MB less, and
where there is no mesh there are requests only for nodes, when one joins or renews its certificates.

An upgrade may have replaced the programs by then. A process of two releases must not sign, so it ends, and its service
manager starts the new release.
"""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import CERTIFICATE_SIGNING_REQUEST
from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError, TemporaryError
from minik8s_modules.base.process import run_daemon
from minik8s_modules.client.configured import client_of, election_client
from minik8s_modules.client.interface import Api
from minik8s_modules.runtime.leader import LeaderElector, Token
from minik8s_modules.runtime.shell import Shell

if TYPE_CHECKING:
    from minik8s_modules.controllers.access.signer import Signer

log = logging.getLogger(__name__)
LEASE_NAME = "minik8s-certificates"
_SIGNER = "minik8s_modules.controllers.access.signer"
_Files = tuple[Path, Path]


class ReleaseReplaced(TemporaryError):
    """This process began before an upgrade; the one that follows it does what was to be done."""


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
    argv = [sys.executable, "-P", "-m", _SIGNER, *(str(file) for files in authorities for file in files)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
    if done.stdout or done.returncode:
        raise ConfigurationError(done.stdout or f"the authorities could not be read: exit status {done.returncode}")


def _installed() -> tuple[int, int, int]:
    """Return what tells this file from that of another installation. Raises OSError where there is none."""
    found = Path(__file__).stat()
    return found.st_dev, found.st_ino, found.st_mtime_ns


@contextlib.contextmanager
def _of_one_release(began_with: tuple[int, int, int], stop: threading.Event) -> Iterator[None]:
    """Let a late import be of the release that this process began with.

    Raises:
        ReleaseReplaced: it is of another one, or half of it is there; ``stop`` is set.
    """
    try:
        yield
        if _installed() == began_with:
            return
        why = "another release was installed"
    except Exception as error:  # noqa: BLE001 - a new release on top of an old one may raise anything
        why = f"the signer can no longer be imported: {type(error).__name__}: {error}"
    log.warning("it ends, to be started again: %s", why)
    stop.set()
    raise ReleaseReplaced(why)


def serve(configuration: Configuration, stop: threading.Event) -> None:
    """Run until ``stop`` is set.

    Raises:
        ConfigurationError: the configuration, the kubeconfig or the authority cannot be used.
    """
    release = _installed()
    client = client_of(configuration, "minik8s-certificates")
    authority = _files(configuration, "authority")
    mesh = _files(configuration, "mesh_authority") if configuration.has("mesh_authority") else None
    _check([each for each in (authority, mesh) if each is not None])

    def make() -> Signer:
        with _of_one_release(release, stop):
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
