"""Attack: offer a listener only what has been broken or weakened, and be served all the same.

Python's own choice takes AES in CBC mode (Lucky 13) and classic Diffie-Hellman, that of Go before 1.22 and of etcd 3.4
even TLS 1.0 and 3DES. Every listener of the cluster is asked here with each of them: API server, streams, plans,
metrics, the pilot, etcd for clients and for peers, and the nodes' nginx.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path

import pytest
import yaml

from minik8s_modules.base.metrics import Registry
from minik8s_modules.base.metrics_server import MetricsServer
from minik8s_modules.base.tls import server_context
from minik8s_modules.mesh.catalogue import Catalogue
from minik8s_modules.mesh.figures import Figures
from minik8s_modules.mesh.main import answer, server_credentials
from minik8s_modules.mesh.xds import Discovery
from minik8s_modules.module_utils.minik8s.names import nginx as nginx_files
from minik8s_modules.reconcile.planning.planserver import PlanFiles, PlanServer
from minik8s_modules.streams.listener import StreamFiles, StreamServer
from tests.integration.naming.conftest import nginx
from tests.support.apiserver import ApiServerProcess
from tests.support.etcd import EtcdServer, free_port
from tests.support.pki import Authority
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[3]
WEAK = {
    "CBC": "ECDHE-ECDSA-AES256-SHA384:ECDHE-ECDSA-AES128-SHA256:ECDHE-RSA-AES256-SHA384",
    "CBC with SHA-1": "ECDHE-ECDSA-AES256-SHA:ECDHE-ECDSA-AES128-SHA:ECDHE-RSA-AES128-SHA",
    "CCM": "ECDHE-ECDSA-AES256-CCM:ECDHE-ECDSA-AES128-CCM8",
    "nobody's key": "AECDH-AES256-SHA:ADH-AES256-GCM-SHA384",
}


class Client:
    """A client that is let in by certificate, so that nothing but its TLS can be what it is refused for."""

    def __init__(self, port: int, authority: Authority) -> None:
        self._port, self._authority = port, authority
        self._certificate = authority.issue("attacker", "system:minik8s:apiserver", ("system:masters",))

    def speak(self, version: ssl.TLSVersion, ciphers: str = "ALL:@SECLEVEL=0") -> str:
        """Return the suite that was agreed on; raises OSError where there is none."""
        context = ssl.create_default_context(cafile=str(self._authority.ca))
        context.load_cert_chain(self._certificate.cert, self._certificate.key)
        context.set_ciphers(ciphers)
        context.minimum_version = context.maximum_version = version
        with (
            socket.create_connection(("127.0.0.1", self._port), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            agreed = secured.cipher()
            assert agreed is not None
            return agreed[0]


@contextlib.contextmanager
def streams(folder: Path, authority: Authority) -> Iterator[int]:
    made = authority.issue("gateway", "minik8s-gateway")
    server = StreamServer("127.0.0.1", 0, StreamFiles(made.cert, made.key, authority.ca), "/nowhere.sock")
    server.start()
    yield server.port
    server.stop()


@contextlib.contextmanager
def plans(folder: Path, authority: Authority) -> Iterator[int]:
    made = authority.issue("reconciler", "minik8s-reconciler")
    server = PlanServer("127.0.0.1", 0, PlanFiles(made.cert, made.key, authority.ca), lambda _question: None)
    server.start()
    yield server.port
    server.stop()


@contextlib.contextmanager
def metrics(folder: Path, authority: Authority) -> Iterator[int]:
    context = server_context(*authority.issue("controllers", "minik8s-controllers"))
    server = MetricsServer(Registry(), "127.0.0.1:0", context, lambda _token: HTTPStatus.OK)
    server.start()
    yield server.port
    server.stop()


@contextlib.contextmanager
def sidecars(folder: Path, authority: Authority) -> Iterator[int]:
    made, port, stop = authority.issue("pilot", "minik8s-pilot"), free_port(), threading.Event()
    discovery = Discovery(Catalogue(print), lambda _header: None, Figures(Registry()), print, print)
    credentials = server_credentials(made.cert, made.key)
    serving = threading.Thread(target=lambda: asyncio.run(answer(discovery, f"127.0.0.1:{port}", credentials, stop)))
    serving.start()
    until(lambda: listens(port))
    yield port
    stop.set()
    serving.join()


def etcd_options(authority: Authority, kind: str) -> list[str]:
    """Return a member's options for ``client`` or ``peer``, as the role has them."""
    made = authority.issue(f"etcd-{kind}", "etcd")
    prefix = "" if kind == "client" else "--peer-"
    names = ("--cert-file", "--key-file", "--trusted-ca-file")
    options = [prefix + name.removeprefix("--") if prefix else name for name in names]
    values = (str(made.cert), str(made.key), str(authority.ca))
    return [text for pair in zip(options, values, strict=True) for text in pair] + [f"{prefix or '--'}client-cert-auth"]


def etcd_member(folder: Path, authority: Authority) -> EtcdServer:
    suites = yaml.safe_load((ROOT / "roles/etcd/vars/main.yml").read_text())["etcd_cipher_suites"]
    member = EtcdServer(folder / "etcd", scheme="https", arguments=[f"--cipher-suites={','.join(suites)}"])
    member.peer = member.peer.replace("http:", "https:")
    member.arguments += etcd_options(authority, "client") + etcd_options(authority, "peer")
    return member.start()


@contextlib.contextmanager
def etcd_clients(folder: Path, authority: Authority) -> Iterator[int]:
    member = etcd_member(folder, authority)
    yield member.port
    member.stop()


@contextlib.contextmanager
def etcd_peers(folder: Path, authority: Authority) -> Iterator[int]:
    member = etcd_member(folder, authority)
    yield int(member.peer.rpartition(":")[2])
    member.stop()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def ingress(folder: Path, authority: Authority) -> Iterator[int]:
    made, port = authority.issue("shop", "localhost"), free_port()
    site = folder / "nginx"
    nginx_files.prepare(str(site), str(folder / "run"))
    (site / nginx_files.MAIN).write_text(nginx_files.main_text({"http_port": free_port(), "https_port": port}))
    host = f"listen {port} ssl; ssl_certificate {made.cert}; ssl_certificate_key {made.key}; server_name localhost;"
    (site / nginx_files.HOSTS / "localhost.conf").write_text(f"server {{ {host} }}\n")
    with nginx(site, folder / "log"):
        until(lambda: listens(port))
        yield port


OWN: dict[str, Callable[[Path, Authority], contextlib.AbstractContextManager[int]]] = {
    "streams": streams,
    "plans": plans,
    "metrics": metrics,
    "pilot": sidecars,
    "etcd for clients": etcd_clients,
    "etcd for peers": etcd_peers,
    "nginx": ingress,
}


@pytest.fixture(scope="module", params=["API server", *OWN])
def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, server: ApiServerProcess
) -> Iterator[Client]:
    if request.param == "API server":
        yield Client(server.port, server.authority)
        return
    folder = tmp_path_factory.mktemp("tls")
    folder.chmod(0o755)
    authority = Authority(folder / "pki", "cluster")
    with OWN[request.param](folder, authority) as port:
        yield Client(port, authority)


@pytest.mark.parametrize("ciphers", WEAK.values(), ids=WEAK)
def test_a_client_that_offers_nothing_strong_is_not_served(client: Client, ciphers: str):
    with pytest.raises(OSError, match=r"(?i)alert|handshake|EOF|reset|no ciphers"):
        client.speak(ssl.TLSVersion.TLSv1_2, f"{ciphers}:@SECLEVEL=0")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_an_old_version_is_not_spoken(client: Client, version: ssl.TLSVersion):
    with pytest.raises(OSError, match=r"(?i)alert|handshake|EOF|reset|version"):
        client.speak(version)


def test_of_all_that_a_client_offers_the_strong_is_taken(client: Client):
    assert re.match(r"ECDHE-.*(GCM|CHACHA20)", client.speak(ssl.TLSVersion.TLSv1_2))
    assert client.speak(ssl.TLSVersion.TLSv1_3).startswith("TLS_")


def test_one_function_makes_the_contexts_of_all_listeners():
    """A new listener that chose its suites by itself would be seen by none of the tests above."""
    makers = [path for path in (ROOT / "minik8s_modules").rglob("*.py") if "PROTOCOL_TLS_SERVER" in path.read_text()]
    assert makers == [Path(inspect.getfile(server_context))]
