"""A real minik8s-certificates for tests: a process that signs with the authority of an ``ApiServerProcess``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.apiserver import ApiServerProcess
from tests.support.pki import Authority, write_kubeconfig


class Signer:
    """The daemon; ``kill`` it and ``start`` it again. It signs for the mesh if it is given an authority of it."""

    def __init__(self, server: ApiServerProcess, folder: Path, mesh: Authority | None = None) -> None:
        authority = server.authority
        key = folder / "ca.key"
        key.write_bytes(pem_of(authority._key))
        identity = server.identity("system:minik8s:certificates")
        kubeconfig = write_kubeconfig(folder / "c.kubeconfig", server.url, authority.ca, identity)
        self._config = folder / "certificates.yml"
        files = {"cert": str(authority.ca), "key": str(key)}
        configuration: dict[str, object] = {"kubeconfig": str(kubeconfig), "authority": files}
        if mesh is not None:
            own = folder / "mesh-ca.key"
            own.write_bytes(mesh.key_pem)
            configuration["mesh_authority"] = {"cert": str(mesh.ca), "key": str(own)}
        self._config.write_text(yaml.safe_dump(configuration))
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
        self.process.wait(60)


def pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the private key as PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
