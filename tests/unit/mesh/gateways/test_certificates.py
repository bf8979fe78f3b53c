"""What a Secret says of its certificate: whatever is in it, other Gateways are decided with it in the same look."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from minik8s_modules.mesh.gateways.certificates import Certificate, certificate_of
from tests.support.pki import Authority

P256, NO_CURVE = (bytes.fromhex(f"06082a8648ce3d0301{last}") for last in ("07", "63"))


def pem(path: Path, *, of_no_curve: bool) -> str:
    """Return a file in base64, as Secrets have it; its key may be of a curve that nobody knows."""
    first, *lines, last = path.read_text().strip().splitlines()
    der = base64.b64decode("".join(lines))
    der = der.replace(P256, NO_CURVE) if of_no_curve else der
    return base64.b64encode(f"{first}\n{base64.encodebytes(der).decode()}{last}\n".encode()).decode()


@pytest.mark.parametrize("strange", [(), ("tls.crt",), ("tls.key",), ("tls.crt", "tls.key")])
def test_a_key_of_a_curve_that_nobody_knows_is_told_of_its_secret_alone(tmp_path: Path, strange: tuple[str, ...]):
    cert, key = Authority(tmp_path, "site").issue("web", "web")
    data = {name: pem(path, of_no_curve=name in strange) for name, path in (("tls.crt", cert), ("tls.key", key))}
    found = certificate_of({"type": "kubernetes.io/tls", "data": data})
    if strange:
        assert "not a certificate and its key in PEM" in str(found)
    else:
        assert isinstance(found, Certificate)
