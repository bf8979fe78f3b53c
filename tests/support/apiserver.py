"""A real minik8s-apiserver for tests: own certificates, a random port of 127.0.0.1, a process of its own.

server = ApiServerProcess(tmp_path, etcd.endpoint).start()
server.kubectl("get", "namespaces")
server.stop()
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import yaml

from minik8s_modules.apiserver.access.keys import key_ring, write_new
from tests.support.etcd import EtcdServer, free_port
from tests.support.kubectl import kubectl_path
from tests.support.pki import Authority, Certificate, write_kubeconfig

START_TIMEOUT_S = 60.0
ROOT = Path(__file__).resolve().parents[2]


class Answer(NamedTuple):
    """A response: status, headers (names in lower case, the last of equal ones), body."""

    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class ApiServerProcess:
    """One API server with files below ``directory``; ``admin`` is its system:masters certificate.

    Its certificate is good for ``addresses``, too; ``overrides`` are keys of its configuration. ``program`` is what
    Python is told to run.
    """

    program: tuple[str, ...] = ("-m", "minik8s_modules.apiserver.main")

    def __init__(
        self, directory: Path, etcd_endpoint: str, *, addresses: tuple[str, ...] = (), **overrides: Any
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.port = free_port()
        self.authority = Authority(directory / "pki", "cluster")
        serving = self.authority.issue("apiserver", "minik8s-apiserver", addresses=addresses)
        self.admin = self.authority.issue("admin", "minik8s-admin", ("system:masters",))
        self.log = directory / "apiserver.log"
        self.audit = directory / "audit.log"
        self.key_ring = directory / "secrets.keys"
        write_new(self.key_ring, key_ring())
        self._config = directory / "apiserver.yml"
        configuration = {
            "listen_address": "127.0.0.1",
            "port": self.port,
            "advertise_address": "127.0.0.1",
            "tls": {"cert": str(serving.cert), "key": str(serving.key), "client_ca": str(self.authority.ca)},
            "etcd": {"endpoints": [etcd_endpoint]},
            "service_cidr": "100.0.0.0/24",
            "service_accounts": {"signing_key": str(self.authority.issue("sa", "service-accounts").key)},
            "encryption": {"key_ring": str(self.key_ring)},
            "audit": {"path": str(self.audit)},
            **overrides,
        }
        self._config.write_text(yaml.safe_dump(configuration), encoding="utf-8")
        self.url = f"https://127.0.0.1:{self.port}"
        self.kubeconfig = write_kubeconfig(directory / "admin.kubeconfig", self.url, self.authority.ca, self.admin)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The arbiter's process id; its only child is the worker."""
        assert self._process is not None
        return self._process.pid

    def start(self, *, ready: bool = True) -> ApiServerProcess:
        """Start the process; with ``ready`` wait until /readyz says ok."""
        self.begin()
        self.wait_for("/readyz" if ready else "/livez")
        return self

    def begin(self) -> None:
        """Start the process, and wait for nothing."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self.program, "--config", str(self._config)],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
            )

    def wait_for(self, path: str, code: int = 200, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until ``path`` answers ``code``."""
        deadline = time.monotonic() + timeout_s
        answer: object = None
        while time.monotonic() < deadline:
            assert self._process is not None
            assert self._process.poll() is None, self.log.read_text()
            try:
                answer = self.request("GET", path)
                if answer.code == code:
                    return
            except OSError as error:
                answer = error
            time.sleep(0.05)
        raise AssertionError(f"{path} did not answer {code}: {answer}\n{self.log.read_text()}")

    def kill9(self) -> None:
        """Kill arbiter and workers at once; ``start`` begins anew with the same files and port."""
        assert self._process is not None
        workers = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        self._process.wait(60)
        for worker in workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()
        psutil.wait_procs(workers, timeout=60)

    def stop(self) -> int:
        """End the process politely and return its exit code."""
        if self._process is None:
            return 0
        self._process.terminate()
        try:
            return self._process.wait(timeout=60)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._process = None

    def identity(self, common_name: str, *organizations: str) -> Certificate:
        """Return a client certificate for ``common_name``."""
        return self.authority.issue(common_name.replace(":", "-"), common_name, organizations)

    def context(self, client: Certificate | None) -> ssl.SSLContext:
        """Return a client's SSL context with ``client``'s certificate, if any."""
        context = ssl.create_default_context(cafile=str(self.authority.ca))
        if client is not None:
            context.load_cert_chain(client.cert, client.key)
        return context

    def connection(self, client: Certificate | None = None, timeout_s: float = 20.0) -> http.client.HTTPSConnection:
        """Return a connection as ``client``, else as the administrator."""
        context = self.context(client or self.admin)
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=timeout_s)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        client: Certificate | None = None,
        anonymous: bool = False,
        token: str = "",
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Send one request and return the answer; a body that is not bytes goes as JSON."""
        connection = self.connection(client)
        if token:
            headers = {**(headers or {}), "Authorization": f"Bearer {token}"}
        if anonymous or token:
            context = self.context(None)
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=60)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if data is not None else {}
        try:
            connection.request(method, path, data, {**sent, **(headers or {})})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def kubectl_argv(self, *arguments: str) -> list[str]:
        """Return the command line of kubectl 1.32 against this server."""
        cache = self.directory / "kube-cache"
        return [str(kubectl_path()), f"--kubeconfig={self.kubeconfig}", f"--cache-dir={cache}", *arguments]

    def kubectl(
        self, *arguments: str, stdin: str = "", env: dict[str, str] | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl; with ``check`` a failure fails the test with kubectl's words."""
        done = subprocess.run(
            self.kubectl_argv(*arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "HOME": str(self.directory), **(env or {})},
        )
        text = f"kubectl {' '.join(arguments)}: {done.stderr}{done.stdout}\n{self.log.read_text()[-3000:]}"
        assert not check or done.returncode == 0, text
        return done


@contextlib.contextmanager
def own_server(folder: Path, **overrides: Any) -> Iterator[ApiServerProcess]:
    """Run an API server on an etcd of its own; ``overrides`` are keys of its configuration."""
    etcd = EtcdServer(folder / "etcd").start()
    api = ApiServerProcess(folder / "api", etcd.endpoint, **overrides)
    try:
        yield api.start()
    finally:
        api.stop()
        etcd.stop()


def beside(
    first: ApiServerProcess, folder: Path, endpoints: list[str], address: str, **overrides: Any
) -> ApiServerProcess:
    """Return one more server of the cluster of ``first``, with its keys; etcd is at ``endpoints``."""
    serving, signing = first.authority.issue(folder.name, "apiserver"), first.authority.ca.with_name("sa.key")
    more = ApiServerProcess(
        folder,
        endpoints[0],
        advertise_address=address,
        etcd={"endpoints": endpoints},
        tls={"cert": str(serving.cert), "key": str(serving.key), "client_ca": str(first.authority.ca)},
        service_accounts={"signing_key": str(signing)},
        encryption={"key_ring": str(first.key_ring)},
        **overrides,
    )
    more.authority, more.admin = first.authority, first.admin
    more.kubeconfig = write_kubeconfig(folder.with_suffix(".kubeconfig"), more.url, first.authority.ca, first.admin)
    return more
