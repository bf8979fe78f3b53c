"""A real minik8s-certificates for tests: a process that signs with the authority of an ``ApiServerProcess``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.apiserver import ApiServerProcess
from tests.support.pki import write_kubeconfig


class Signer:
    """The daemon; ``kill`` it and ``start`` it again."""

    def __init__(self, server: ApiServerProcess, folder: Path) -> None:
        authority = server.authority
        key = folder / "ca.key"
        key.write_bytes(pem_of(authority._key))
        identity = server.identity("system:minik8s:certificates")
        kubeconfig = write_kubeconfig(folder / "c.kubeconfig", server.url, authority.ca, identity)
        self._config = folder / "certificates.yml"
        files = {"cert": str(authority.ca), "key": str(key)}
        self._config.write_text(yaml.safe_dump({"kubeconfig": str(kubeconfig), "authority": files}))
        self.log = folder / "log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Signer:
        """Start the process."""
        argv = [sys.executable, "-m", "minik8s_modules.controllers.access.certificates", "--config", str(self._config)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(argv, stderr=log, stdout=log)
        return self

    def kill(self) -> None:
        """Kill it at once."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)


def pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the private key as PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
