"""Reading kubeconfigs and using their certificates on a real TLS server."""

from __future__ import annotations

import base64
import ssl
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api.kinds import NODE
from minik8s_modules.base.config import read_mapping
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.client import kubeconfig
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.kubeconfig import Authorities, load_kubeconfig
from tests.support.pki import Authority, write_kubeconfig


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path, "cluster")


def test_a_kubeconfig_may_name_files_or_carry_data(tmp_path, authority):
    client = authority.issue("admin", "minik8s-admin", ("system:masters",))
    path = write_kubeconfig(tmp_path / "config", "https://127.0.0.1:6443/", authority.ca, client)
    by_file = load_kubeconfig(path)
    document = yaml.safe_load(path.read_text())
    user = document["users"][0]["user"]
    user["client-key-data"] = base64.b64encode(client.key.read_bytes()).decode()
    del user["client-key"]
    path.write_text(yaml.safe_dump(document))
    assert load_kubeconfig(path) == by_file
    assert by_file.server == "https://127.0.0.1:6443"
    assert b"PRIVATE KEY" in by_file.key_pem


def test_authorities_are_read_when_one_of_their_files_has_changed(tmp_path, authority, monkeypatch):
    path = write_kubeconfig(tmp_path / "config", "https://h:6443", authority.ca, authority.issue("admin", "admin"))
    read: list[Path] = []

    def reading(path: Path, name: str) -> Mapping[str, Any]:
        read.append(path)
        return read_mapping(path, name)

    monkeypatch.setattr(kubeconfig, "read_mapping", reading)
    authorities = Authorities(path)
    pem = authority.ca.read_bytes()
    assert {authorities() for _ in range(5)} == {pem}
    assert len(read) == 2  # the second time for the file that the first one named

    authority.ca.write_bytes(pem + pem)
    assert authorities() == pem + pem

    document = yaml.safe_load(path.read_text())
    cluster = document["clusters"][0]["cluster"]
    cluster["certificate-authority-data"] = base64.b64encode(b"inside").decode()
    path.write_text(yaml.safe_dump(document))
    assert authorities() == b"inside"
    authority.ca.unlink()
    read.clear()
    assert {authorities() for _ in range(5)} == {b"inside"}
    assert len(read) == 1

    path.unlink()
    with pytest.raises(ConfigurationError):
        authorities()
    path.write_text(yaml.safe_dump(document))
    assert authorities() == b"inside"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update({"current-context": "other"}), "contexts has no entry named 'other'"),
        (lambda d: d["users"][0]["user"].update({"exec": {"command": "x"}}), "exec is not supported"),
        (
            lambda d: d["clusters"][0]["cluster"].update({"insecure-skip-tls-verify": True}),
            "insecure-skip-tls",
        ),
        (lambda d: d["clusters"][0]["cluster"].update({"server": "ftp://x"}), "https://"),
        (lambda d: d["users"][0]["user"].update({"client-key": "missing.key"}), "cannot read client-key"),
        (lambda d: d["users"][0]["user"].update({"client-key-data": "%%"}), "not base64"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path, authority, change, message):
    client = authority.issue("admin", "minik8s-admin")
    path = write_kubeconfig(tmp_path / "config", "https://127.0.0.1:6443", authority.ca, client)
    document = yaml.safe_load(path.read_text())
    change(document)
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigurationError, match=message):
        load_kubeconfig(path)


@pytest.mark.parametrize(("text", "message"), [("a: [", "not valid YAML"), ("- a", "mapping")])
def test_a_file_that_is_no_kubeconfig_is_refused(tmp_path, text, message):
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        load_kubeconfig(path)
    with pytest.raises(ConfigurationError, match="cannot read kubeconfig"):
        load_kubeconfig(tmp_path / "missing")


def test_the_client_shows_its_certificate_and_trusts_only_its_ca(tmp_path, authority):
    server_certificate = authority.issue("server", "localhost")
    client = authority.issue("admin", "minik8s-admin")
    stranger = Authority(tmp_path, "stranger")
    seen = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(dict(pair[0] for pair in self.connection.getpeercert()["subject"]))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server_certificate.cert, server_certificate.key)
    context.load_verify_locations(authority.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    server = HTTPServer(("127.0.0.1", 0), Answer)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    url = f"https://127.0.0.1:{server.server_address[1]}"
    try:
        trusted = ApiClient(url, authority.ca, client.cert, client.key)
        assert trusted.get(NODE, "n") == {}
        trusted.close()
        with pytest.raises(ApiUnreachable, match="certificate"):
            ApiClient(url, stranger.ca, client.cert, client.key).get(NODE, "n")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert seen == [{"commonName": "minik8s-admin"}]


def test_a_key_of_another_certificate_is_refused(authority):
    one, other = authority.issue("one", "one"), authority.issue("other", "other")
    with pytest.raises(ConfigurationError, match="cannot be used"):
        ApiClient("https://127.0.0.1:1", authority.ca, one.cert, other.key)


def test_comments_of_an_authority_may_have_any_letters(authority):
    authority.ca.write_bytes("# Zürich\n".encode() + authority.ca.read_bytes())
    client = authority.issue("admin", "minik8s-admin")
    ApiClient("https://127.0.0.1:1", authority.ca, client.cert, client.key).close()
    authority.ca.write_bytes("# Zürich\n".encode())
    with pytest.raises(ConfigurationError, match="cannot be used"):
        ApiClient("https://127.0.0.1:1", authority.ca, client.cert, client.key)
