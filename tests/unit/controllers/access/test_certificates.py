"""The daemon that signs certificates, before its first request and with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import CERTIFICATE_SIGNING_REQUEST, LEASE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.access import certificates
from minik8s_modules.controllers.access.certificates import CertificateController
from tests.support.pki import Authority
from tests.support.waiting import until


class Signer:
    """Notes what it is given; the second look at a request is asked for."""

    def __init__(self, made: list[Signer]) -> None:
        self.given: list[str] = []
        made.append(self)

    def settle(self, request: JsonObject) -> float | None:
        """Return the seconds until the next look."""
        self.given.append(objects.name(request))
        return 0.01 if len(self.given) == 1 else None


def test_the_signer_is_made_with_the_first_request():
    api, made = FakeApi(), list[Signer]()
    controller = CertificateController(api, lambda: Signer(made))  # type: ignore[arg-type,return-value]
    controller.start()
    try:
        assert controller._requests.wait_synced(60)
        assert not made
        api.create(CERTIFICATE_SIGNING_REQUEST, {"metadata": {"name": "first"}})
        until(lambda: made and made[0].given == ["first", "first"])
        api.create(CERTIFICATE_SIGNING_REQUEST, {"metadata": {"name": "second"}})
        until(lambda: made[0].given[-1] == "second")
        assert len(made) == 1
    finally:
        controller.stop()


def test_an_authority_that_cannot_be_used_is_named_at_the_start(tmp_path: Path):
    good, other, key = Authority(tmp_path, "good"), Authority(tmp_path, "other"), tmp_path / "good.key"
    key.write_bytes(good.key_pem)
    certificates._check([(good.ca, key)])
    with pytest.raises(ConfigurationError, match=rf"{other.ca}, {key}: no certificate of the authority fits"):
        certificates._check([(good.ca, key), (other.ca, key)])
    with pytest.raises(ConfigurationError, match="missing"):
        certificates._check([(good.ca, tmp_path / "missing")])


class Client(FakeApi):
    """A client that can be closed."""

    def close(self) -> None:
        """Do nothing."""


def _update(installed: Path) -> None:
    new = installed.with_name("new")
    new.touch()
    new.replace(installed)


@pytest.mark.parametrize("change", [_update, Path.unlink])
def test_a_daemon_whose_programs_were_replaced_before_the_first_request_ends_instead_of_signing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
):
    authority, key, installed = Authority(tmp_path, "ca"), tmp_path / "ca.key", tmp_path / "certificates.py"
    key.write_bytes(authority.key_pem)
    installed.touch()
    api, stop = Client(), threading.Event()
    for name in ("client_of", "election_client"):
        monkeypatch.setattr(certificates, name, lambda *_: api)
    monkeypatch.setattr(certificates, "__file__", str(installed))
    settings = Configuration({"authority": {"cert": str(authority.ca), "key": str(key)}}, "test")
    daemon = threading.Thread(target=certificates.serve, args=(settings, stop))
    daemon.start()
    try:
        until(lambda: api.list(LEASE).items)
        change(installed)
        assert not stop.is_set()
        api.create(CERTIFICATE_SIGNING_REQUEST, {"metadata": {"name": "first"}})
        assert stop.wait(60)
    finally:
        stop.set()
        daemon.join(60)
    assert not daemon.is_alive()
    assert "status" not in api.get(CERTIFICATE_SIGNING_REQUEST, "first")


def test_what_a_late_import_raises_ends_the_daemon():
    stop = threading.Event()
    late = certificates._of_one_release(certificates._installed(), stop)
    with pytest.raises(certificates.ReleaseReplaced, match="AttributeError: gone"), late:
        raise AttributeError("gone")
    assert stop.is_set()
