"""A whole cluster on this machine whose node has a CoreDNS and an nginx of its own."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import ssl
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api.kinds import HOST_GRANT, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.names import nginx as server
from minik8s_modules.module_utils.minik8s.names.dns_guard import NOWHERE, guard
from minik8s_modules.module_utils.minik8s.pods.dns_host import remove_address
from minik8s_modules.store.errors import StaleWrite
from minik8s_modules.store.etcd import EtcdStore
from tests.integration.reconcile import conftest as whole_path
from tests.integration.services import conftest as services
from tests.support.etcd import free_port
from tests.support.servers import coredns

OUTSIDE, OUTSIDE_ADDRESS = "www.outside.test", "192.0.2.77"
"""All that the world outside the cluster has; the rest has no name there."""


class Cluster(services.Cluster):
    """A cluster with names and paths."""

    nginx: subprocess.Popen[bytes]
    """The shell that starts the node's nginx again whenever it ended."""

    def __init__(self, folder: Path) -> None:
        number = uuid.uuid4().int
        self.upstream = f"127.{number % 100 + 100}.{(number >> 8) % 250}.{(number >> 16) % 250 + 2}"
        self.listen = f"169.254.{number % 200 + 30}.{(number >> 8) % 250 + 2}"
        self.http_port, self.https_port = free_port(), free_port()
        super().__init__(folder)

    def _configs(self) -> dict[str, JsonObject]:
        configs = super()._configs()
        configs["reconcile"] |= {
            "dns": {"listen": self.listen, "forward": [self.upstream]},
            "ingress": {"http_port": self.http_port, "https_port": self.https_port},
        }
        return configs

    def start(self) -> None:
        """Start all daemons; namespace ``default`` has the grant that an installation gives it."""
        super().start()
        spec = {"namespaces": ["default"], "hosts": ["*"], "shortNames": True}
        self.admin.create(HOST_GRANT, {"metadata": {"name": "default"}, "spec": spec})

    @property
    def state(self) -> Path:
        """The node's state directory."""
        return Path(self.node.state_dir)

    def resolve(self, name: str, kind: str = "A") -> tuple[str, list[str]]:
        """Ask the node's server."""
        return coredns.ask((self.listen, 53), name, kind)

    def world(self) -> Path:
        """Return the Corefile of the server that ours asks for what it does not know."""
        folder = self.folder / "world"
        folder.mkdir()
        zone = ". 5 IN SOA ns. hostmaster. 1 7200 1800 86400 1\n. 5 IN NS ns.\n"
        (folder / "zone").write_text(f"{zone}{OUTSIDE}. 5 IN A {OUTSIDE_ADDRESS}\n")
        (folder / "Corefile").write_text(f".:53 {{\n  bind {self.upstream}\n  file {folder}/zone .\n}}\n")
        return folder / "Corefile"

    def stop_nginx(self) -> None:
        """Stop the node's nginx as somebody does who asks it to; whoever started it does so again."""
        pid = self.until(lambda: server.master(str(self.state / "nginx")))
        os.kill(pid, signal.SIGTERM)
        self.until(lambda: server.master(str(self.state / "nginx")) != pid)

    @contextlib.contextmanager
    def without_nginx(self) -> Iterator[None]:
        """Keep the node's nginx stopped; it is started again at the end."""
        os.kill(self.nginx.pid, signal.SIGSTOP)
        try:
            self.stop_nginx()
            yield
        finally:
            os.kill(self.nginx.pid, signal.SIGCONT)

    def slip_in(self, kind: Kind, name: str, before: str, after: str) -> None:
        """Exchange a text of a stored object past the API, as if admission had not seen the other one yet."""
        store, key = EtcdStore([self.etcd.endpoint]), kind.key("default", name)
        try:
            self.until(lambda: _exchanged(store, key, before.encode(), after.encode()))
        finally:
            store.close()

    def get(self, host: str, path: str = "/", **options: Any) -> tuple[int, str]:
        """Return code and body of a request to the node's nginx; (0, why) for none."""
        if not options.get("tls"):
            return request(self.http_port, host, path)
        context = ssl.create_default_context(cafile=options["tls"])
        context.check_hostname = False
        return _answer(_Named(self.https_port, context, host), host, path)

    def location(self, host: str, path: str) -> str:
        """Return where the node's nginx sends a plain request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=30)
        try:
            connection.request("GET", path, headers={"Host": host})
            return connection.getresponse().headers.get("Location", "")
        finally:
            connection.close()


def _exchanged(store: EtcdStore, key: str, before: bytes, after: bytes) -> bool:
    entry = store.get(key)
    assert entry is not None
    try:
        store.update(key, entry.value.replace(before, after), entry.revision)
    except StaleWrite:
        return False  # its status was written meanwhile
    return True


def health(port: int, path: str = "/healthz", address: str = "127.0.0.1") -> tuple[int, str, JsonObject]:
    """Return how a node answers a health check: code, weight, body; (0, why, {}) for not at all."""
    connection = http.client.HTTPConnection(address, port, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        weight = answer.headers.get("X-Load-Balancing-Endpoint-Weight", "")
        return answer.status, weight, dict(json.loads(answer.read()))
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error), {}
    finally:
        connection.close()


def free_node_port() -> int:
    """Return a node port that nobody on this machine listens at: tests beside us take some, too."""
    return next(port for port in random.sample(range(30500, 32768), 200) if server.can_listen(port))


def request(port: int, host: str, path: str = "/", address: str = "127.0.0.1") -> tuple[int, str]:
    """Return code and body of a request to an nginx of this machine; (0, why) for none."""
    return _answer(http.client.HTTPConnection(address, port, timeout=30), host, path)


def _answer(connection: http.client.HTTPConnection, host: str, path: str) -> tuple[int, str]:
    try:
        connection.request("GET", path, headers={"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.read().decode().strip()
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error)
    finally:
        connection.close()


class _Named(http.client.HTTPSConnection):
    """A connection to 127.0.0.1 that asks for the certificate of another name."""

    def __init__(self, port: int, context: ssl.SSLContext, name: str) -> None:
        super().__init__("127.0.0.1", port, timeout=30, context=context)
        self._tls, self._name = context, name

    def connect(self) -> None:
        """Connect."""
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)


@contextlib.contextmanager
def nginx(folder: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the nginx of a node's directory; like a service manager, it starts it again while it cannot start yet."""
    run = (
        f"while :; do [ -e {folder}/nginx.conf ] && nginx -p {folder}/ -c nginx.conf -g 'daemon off;'; sleep 0.2; done"
    )
    with log.open("ab") as out:
        process = subprocess.Popen(["sh", "-c", run], stdout=out, stderr=out, start_new_session=True)
        try:
            yield process
        finally:
            subprocess.run(["kill", "-KILL", "--", f"-{process.pid}"], check=False)
            process.wait()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    whole_path.IDENTITIES.setdefault("controllers", "system:kube-controller-manager")
    folder = Path(tempfile.mkdtemp(prefix="mk8s-"))
    folder.chmod(0o755)
    made = Cluster(folder)
    try:
        with (
            coredns.running(made.world(), folder / "world.log"),
            coredns.running(made.state / "dns/Corefile", folder / "coredns.log"),
            nginx(made.state / "nginx", folder / "nginx.log") as made.nginx,
        ):
            made.start()
            made.until(made.registered, 120)
            yield made
    finally:
        made.close()
        remove_address(made.listen)
        guard(made.node.name, NOWHERE)
        if not os.environ.get("MINIK8S_KEEP"):
            shutil.rmtree(folder, ignore_errors=True)
