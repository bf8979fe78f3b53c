"""Joining: whom a machine believes, how it asks, what it keeps; against an API in memory."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from minik8s_modules.api.access import authority_pins, bootstrap_tokens, certificate_requests
from minik8s_modules.api.access.bootstrap_tokens import BootstrapToken
from minik8s_modules.api.errors import AlreadyExists, Unauthorized
from minik8s_modules.api.kinds import CERTIFICATE_SIGNING_REQUEST as CSR
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.base.errors import ConfigurationError, TemporaryError
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.reconcile.standalone import joining
from minik8s_modules.reconcile.standalone.files import Home, Identity, client_validity, kubeconfig, validity
from minik8s_modules.reconcile.standalone.joining import CLIENT_SIGNER, SERVING_SIGNER, Stopped, make_request
from minik8s_modules.reconcile.standalone.leaving import remaining
from minik8s_modules.reconcile.values.items import Outcome
from tests.support.pki import Authority

TOKEN = BootstrapToken("abcdef", "0123456789abcdef")
SERVER = "https://192.0.2.1:6443"


class Api(FakeApi):
    """Answers from a list, whatever is asked; an exception is raised."""

    def __init__(self, *answers: Any) -> None:
        super().__init__()
        self._answers = iter(answers)

    def create(self, *_asked: Any, **_told: Any) -> Any:
        """Answer."""
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    get = create


DENIED = {"status": {"conditions": [{"type": "Denied", "reason": "TokenUsed", "message": "why"}]}}


def issued(pem: bytes) -> dict[str, Any]:
    return {"status": {"certificate": base64.b64encode(pem).decode()}}


def info(authority: bytes, *tokens: BootstrapToken) -> dict[str, str]:
    secrets = [bootstrap_tokens.secret_of(token, None) for token in tokens]
    text = bootstrap_tokens.cluster_kubeconfig(SERVER, authority)
    return dict(bootstrap_tokens.signed_info(text, secrets, FakeClock().now()))


def pin_of(pem: bytes) -> str:
    return authority_pins.key_hash(x509.load_pem_x509_certificate(pem))


def test_an_authority_is_believed_by_its_hash_or_by_the_tokens_signature(tmp_path: Path):
    own, other = (Authority(tmp_path, name).ca.read_bytes() for name in ("own", "other"))
    believe = joining.trusted_authorities
    assert believe(info(own + other), TOKEN, [pin_of(own)], SERVER) == own
    assert believe(info(own, TOKEN), TOKEN, [], SERVER) == own
    with pytest.raises(ConfigurationError, match="another cluster, or somebody intercepts"):
        believe(info(other, TOKEN), TOKEN, [pin_of(own)], SERVER)
    for data in (info(own), info(own, TOKEN._replace(secret="f" * 16)), info(own, BootstrapToken("ghijkl", "f" * 16))):
        with pytest.raises(ConfigurationError, match="does not know the token"):
            believe(data, TOKEN, [], SERVER)
    with pytest.raises(ConfigurationError, match="names no authorities"):
        believe({"kubeconfig": "{}"}, TOKEN, [], SERVER)


def test_a_request_is_a_nodes_and_its_key_is_shown_to_nobody():
    request = make_request(SERVING_SIGNER, "n1", "n1.node.minik8s.internal")
    asked = certificate_requests.parse(base64.b64encode(request.request.encode()).decode()).asked
    assert (asked.common_name, asked.organizations) == ("system:node:n1", ("system:nodes",))
    assert asked.dns_names == ("n1.node.minik8s.internal",)
    assert "PRIVATE" not in repr(request)


def test_a_certificate_is_waited_for_through_outages():
    api = Api(TemporaryError("away"), {}, TemporaryError("away"), {"status": {}}, issued(b"pem"))
    request = make_request(CLIENT_SIGNER, "n1")
    assert joining.obtain(api, request, FakeClock(), threading.Event()) == b"pem"


def test_a_request_that_was_sent_before_a_crash_is_gone_on_with():
    api = Api(AlreadyExists(CSR, "node-csr-x"), issued(b"pem"))
    assert joining.obtain(api, make_request(CLIENT_SIGNER, "n1"), FakeClock(), threading.Event()) == b"pem"


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([Unauthorized()], "rejects the token"),
        ([{}, DENIED], "TokenUsed.*why"),
    ],
)
def test_what_is_refused_for_good_is_told(answers: list[Any], message: str):
    with pytest.raises(ConfigurationError, match=message):
        joining.obtain(Api(*answers), make_request(CLIENT_SIGNER, "n1"), FakeClock(), threading.Event())


def test_a_server_that_is_away_is_waited_for_until_somebody_stops_it(tmp_path: Path):
    pem = Authority(tmp_path, "own").ca.read_bytes()
    answers: Iterator[Any] = iter([TemporaryError("refused"), info(pem, TOKEN)])

    def fetch(server: str) -> dict[str, str]:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    assert joining.discover(SERVER, TOKEN, [], FakeClock(), threading.Event(), fetch) == pem
    stop = threading.Event()
    stop.set()
    answers = iter([TemporaryError("refused")])
    with pytest.raises(Stopped):
        joining.discover(SERVER, TOKEN, [], FakeClock(), stop, fetch)


def test_the_folder_is_one_process_own_and_its_files_are_whole(tmp_path: Path):
    home, second = Home(tmp_path / "agent"), Home(tmp_path / "agent")
    home.open()
    with pytest.raises(ConfigurationError, match="another reconciler runs with"):
        second.open()
    home.close()
    second.open()
    assert second.identity() is None
    second.write("identity.json", json.dumps(Identity("n1", SERVER)._asdict()))
    assert second.identity() == Identity("n1", SERVER)
    key = second.hmac_key().read_text()
    assert second.hmac_key().read_text() == key
    assert (tmp_path / "agent" / "hmac.key").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in (tmp_path / "agent").iterdir()) == ["hmac.key", "identity.json", "lock"]
    second.close()


def test_certificates_are_renewed_at_three_quarters_of_their_life(tmp_path: Path):
    authority = Authority(tmp_path, "own")
    made = authority.issue("n1", "system:node:n1", ("system:nodes",))
    good = validity(made.cert.read_bytes())
    assert not good.renewal_due(good.begin + (good.end - good.begin) * 0.7)
    assert good.renewal_due(good.begin + (good.end - good.begin) * 0.8)
    assert good.over(good.end)
    home = Home(tmp_path / "agent")
    home.open()
    assert client_validity(home.path("kubeconfig")) is None
    text = kubeconfig(Identity("n1", SERVER), authority.ca.read_bytes(), made.cert.read_bytes(), made.key.read_text())
    assert client_validity(home.write("kubeconfig", text)) == good
    home.close()


def test_a_machine_is_empty_when_nothing_is_due_and_nothing_failed():
    clean: dict[str, Any] = {"due": [], "errors": {}, "fenced": False}
    assert remaining(Outcome("i", "n", "ok", {"network": clean}, "")) == []
    due = {**clean, "due": [{"key": "u1", "after_s": 1, "reason": "GracePeriod"}]}
    assert remaining(Outcome("i", "n", "ok", {"sandboxes": due}, "")) == ["sandboxes/u1: GracePeriod"]
    failed = {**clean, "errors": {"u1": {"reason": "DockerError", "message": "busy"}}}
    assert remaining(Outcome("i", "n", "ok", {"sandboxes": failed}, "")) == ["sandboxes/u1: busy"]
    assert remaining(Outcome("i", "n", "ok", {"network": {**clean, "fenced": True}}, ""))
    assert remaining(Outcome("i", "n", "unreachable", {}, "away")) == ["away"]
