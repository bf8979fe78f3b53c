"""Real Envoys as the sidecars of clients, told by a real pilot: a network namespace each, servers beside them.

    client's namespace: what asks ─REDIRECT─▶ Envoy (uid 1337) ══veth══▶ this machine: servers, one an address a Pod
                                                ╚═ xDS ═▶ minik8s-pilot ─▶ API server, etcd ◀─ minik8s-controllers

What a node does is played: a Pod that comes gets an address and a server, one that goes loses both at once, with all
its connections, as a program that is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD, SERVICE, SERVICE_ACCOUNT, SUBSET, VIRTUAL_SERVICE
from minik8s_modules.api.network.gateway_api import GATEWAY_NAME
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.sidecars import with_sidecar
from tests.integration.control.conftest import Cluster, Daemon, cluster, etcd
from tests.integration.control.test_pilot_real import Pilot
from tests.integration.mesh.loads import CLIENTS, LONG_S, RATE, REPOSITORY, Load, Together
from tests.support.docker.envoy import envoy_program
from tests.support.playing import PlayingNode
from tests.support.waiting import until

__all__ = ["LONG_S", "cluster", "etcd"]
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 16
PORT, TARGET, OK = 9080, 8080, 200
NEXT_ARGUMENT = " " * 14 + "grpc.keepalive_time_ms:"
RULES = """
table ip mesh {
  chain out {
    type nat hook output priority -100
    meta skuid != 1337 meta skgid != 1337 ip daddr != 127.0.0.0/8 ip protocol tcp redirect to :15001
  }
}
"""


def run(*words: str, stdin: str = "") -> str:
    """Run a program to its end; return what it prints."""
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


class Client:
    """A client's network namespace with its Envoy; the address of this machine in it is ``gateway``."""

    numbers = itertools.count()

    def __init__(self, folder: Path, name: str) -> None:
        number = next(self.numbers) % 60
        self.name, self.namespace = name, f"mk8t-mesh-{WORKER}-{number}"
        self.gateway, self.own = (f"198.19.{WORKER}.{4 * number + each}" for each in (1, 2))
        self._device = f"mt{WORKER}h{number}"
        self._folder = folder / self.namespace
        self._envoy: subprocess.Popen[bytes] | None = None
        self._loads: list[Load] = []
        self._folder.mkdir(mode=0o755)
        with contextlib.suppress(AssertionError):  # of a run that was killed
            run("ip", "netns", "del", self.namespace)
        run("ip", "netns", "add", self.namespace)
        run("ip", "link", "add", self._device, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        run("ip", "addr", "add", f"{self.gateway}/30", "dev", self._device)
        run("ip", "link", "set", self._device, "up")
        self.inside("ip", "link", "set", "lo", "up")
        self.inside("ip", "addr", "add", f"{self.own}/30", "dev", "eth0")
        self.inside("ip", "link", "set", "eth0", "up")
        self.inside("ip", "route", "add", "default", "via", self.gateway)
        self.inside("nft", "-f", "-", stdin=RULES)

    def inside(self, *words: str, stdin: str = "") -> str:
        """Run a program in the namespace, whose connections its Envoy has."""
        return run("ip", "netns", "exec", self.namespace, *words, stdin=stdin)

    def start(self, ca: bytes, token: str, pilot: int, replaced: Sequence[tuple[str, str]] = ()) -> None:
        """Start its Envoy, told by the pilot at a port of this machine, as the image does but for the addresses.

        ``replaced`` are words of its bootstrap, and others.
        """
        for file, content in (("ca.crt", ca), ("token", token.encode())):
            (self._folder / file).write_bytes(content)
        text = (REPOSITORY / "roles/envoy/files/bootstrap.yaml").read_text()
        for old, new in (
            ("/var/run/secrets/kubernetes.io/serviceaccount", str(self._folder)),
            ("dns:///minik8s-pilot.kube-system.svc.cluster.local:15012", f"ipv4:{self.gateway}:{pilot}"),
            ("grpc.keepalive_time_ms:", "grpc.ssl_target_name_override: {string_value: localhost}\n" + NEXT_ARGUMENT),
            *replaced,
        ):
            assert old in text, old
            text = text.replace(old, new)
        (self._folder / "bootstrap.yaml").write_text(text)
        words = [
            "ip",
            "netns",
            "exec",
            self.namespace,
            "setpriv",
            "--reuid",
            "1337",
            "--clear-groups",
            str(envoy_program()),
        ]
        options = ["--config-path", str(self._folder / "bootstrap.yaml"), "--concurrency", "1", "--use-dynamic-base-id"]
        with (self._folder / "log").open("wb") as log:
            self._envoy = subprocess.Popen([*words, *options, "--log-level", "warn"], stdout=log, stderr=log)

    def log(self) -> str:
        """Return what its Envoy has said."""
        return (self._folder / "log").read_text()

    def stats(self, path: str) -> str:
        """Return what Envoy's administration answers."""
        script = "import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1]).read().decode())"
        return self.inside(sys.executable, "-c", script, f"http://127.0.0.1:15000{path}")

    def get(
        self, address: str, path: str = "/", headers: Sequence[str] = (), timeout_s: int = 30, method: str = "GET"
    ) -> tuple[int, str]:
        """Ask once, by the sidecar; return code and body."""
        asked = ["-X", method, *(word for each in headers for word in ("-H", each))]
        words = ["curl", "-s", "-m", str(timeout_s), "-w", "\\n%{http_code}", *asked, f"http://{address}:{PORT}{path}"]
        done = subprocess.run(
            ["ip", "netns", "exec", self.namespace, *words], capture_output=True, text=True, check=False
        )
        body, _, code = done.stdout.rpartition("\n")
        return int(code), body.strip()

    def asking(self, address: str, rate: int, path: str = "/") -> Load:
        """Begin to ask at a steady rate."""
        return self._begun(Load(["ip", "netns", "exec", self.namespace], address, PORT, rate, path))

    def asking_past(self, address: str, rate: int) -> Load:
        """Begin to ask a Pod at a steady rate, past the sidecar, as who is of its group may."""
        words = ["ip", "netns", "exec", self.namespace, "setpriv", "--regid", "1337", "--clear-groups"]
        return self._begun(Load(words, address, TARGET, rate))

    def _begun(self, load: Load) -> Load:
        self._loads.append(load)
        return load

    def end(self) -> None:
        """End its Envoy; ``start`` begins it again."""
        if self._envoy is not None:
            self._envoy.kill()
            self._envoy.wait()

    def stop(self) -> None:
        """End its Envoy, and take the namespace away."""
        for each in self._loads:
            each.kill()  # of a test that has failed under it
        self.end()
        run("ip", "netns", "del", self.namespace)


class Servers(PlayingNode):
    """The node: a server for each Pod, which answers with the Pod's name and image; others' are told no address."""

    numbers = itertools.count(1)

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.admin)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._at: dict[str, tuple[str, Any]] = {}
        self.requests: dict[str, list[str]] = {}
        self.delays_s: dict[str, float] = {}
        self.codes: dict[str, int] = {}
        self.breaking: set[str] = set()
        self.tls: dict[str, ssl.SSLContext] = {}
        self.callers: set[str] = set()

    def begin(self, pod: JsonObject) -> JsonObject:
        """Start the server of a Pod."""
        if "ports" not in objects.containers(pod)[0] and GATEWAY_NAME not in objects.labels(pod):
            return {}
        if objects.uid(pod) not in self._at:
            ip = f"198.18.{WORKER}.{next(self.numbers) % 250 + 1}"
            run("ip", "addr", "replace", f"{ip}/32", "dev", "lo")
            serving = asyncio.run_coroutine_threadsafe(self._serve(pod, ip), self._loop).result(LONG_S)
            self._at[objects.uid(pod)] = (ip, serving)
        ip = self._at[objects.uid(pod)][0]
        return {"podIP": ip, "podIPs": [{"ip": ip}]}

    def end(self, pod: JsonObject) -> None:
        """End the server of a Pod and its connections, at once."""
        ip, serving = self._at.pop(objects.uid(pod), ("", None))
        if serving is not None:
            asyncio.run_coroutine_threadsafe(serving.end(), self._loop).result(LONG_S)
            run("ip", "addr", "del", f"{ip}/32", "dev", "lo")

    def stop(self) -> None:
        """End all."""
        super().stop()
        for ip, serving in self._at.values():
            asyncio.run_coroutine_threadsafe(serving.end(), self._loop).result(LONG_S)
            run("ip", "addr", "del", f"{ip}/32", "dev", "lo")
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _serve(self, pod: JsonObject, ip: str) -> Server:
        server = Server(self, objects.name(pod), objects.containers(pod)[0]["image"])
        await server.begin(ip)
        return server


class Server:
    """A Pod's server."""

    def __init__(self, node: Servers, name: str, image: str) -> None:
        self._node, self._name, self._image = node, name, image
        self._open: set[asyncio.StreamWriter] = set()

    async def begin(self, ip: str) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, ip, TARGET, ssl=self._node.tls.get(self._name))

    async def end(self) -> None:
        """Listen no more, and end every connection with a reset."""
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        shown = (writer.get_extra_info("peercert") or {}).get("subjectAltName", ())
        self._node.callers |= {value for kind, value in shown if kind == "URI"}
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                self._node.requests.setdefault(self._name, []).append(head)
                if self._name in self._node.breaking:
                    writer.transport.abort()
                    break
                if delay := self._node.delays_s.get(self._name):
                    await asyncio.sleep(delay)
                body = f"{self._name} {self._image}".encode()
                code = self._node.codes.get(self._name, 200)
                writer.write(f"HTTP/1.1 {code} -\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        self._open.discard(writer)
        writer.close()


class Mesh:
    """The cluster, its pilot, its node, and clients with sidecars, in one namespace."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.node = Servers(cluster)
        self.node.start()
        self.pilot = Pilot(cluster, "0.0.0.0")
        self.namespace = self.pilot.namespace
        self.clients: list[Client] = []
        cluster.admin.create(SERVICE_ACCOUNT, {"metadata": {"name": "robot", "namespace": self.namespace}})

    def service(self, name: str = "reviews") -> str:
        """Make a Service of the Pods with its label; return its address."""
        spec = {"selector": {"app": name}, "ports": [{"port": PORT, "targetPort": TARGET}]}
        meta = {"name": name, "namespace": self.namespace}
        made = self.cluster.admin.create(SERVICE, {"metadata": meta, "spec": spec})
        return str(objects.spec(made)["clusterIP"])

    @staticmethod
    def spec(image: str) -> JsonObject:
        """Return the spec of a Pod that answers."""
        return {"containers": [{"name": "app", "image": image, "ports": [{"containerPort": TARGET}]}]}

    def pod(self, name: str, image: str = "v1", app: str = "reviews") -> None:
        """Make a Pod that answers."""
        meta = {"name": name, "namespace": self.namespace, "labels": {"app": app}}
        self.cluster.admin.create(POD, {"metadata": meta, "spec": self.spec(image)})

    def address(self, pod: str) -> str:
        """Return where a Pod answers."""
        return str(objects.status(self.cluster.admin.get(POD, pod, self.namespace))["podIP"])

    def _address_yet(self, pod: str) -> object:
        return objects.status(self.cluster.admin.get(POD, pod, self.namespace)).get("podIP")

    def client(self, name: str = "client", namespace: str = "", replaced: Sequence[tuple[str, str]] = ()) -> Client:
        """Make a Pod with a sidecar, and its Envoy."""
        meta = {"name": "robot", "namespace": namespace}
        if namespace:
            self.cluster.admin.create(SERVICE_ACCOUNT, {"metadata": meta})
        app = {"serviceAccountName": "robot", "containers": [{"name": "app", "image": "a"}]}
        meta = {"name": name, "namespace": namespace or self.namespace}
        self.cluster.admin.create(POD, {"metadata": meta, "spec": with_sidecar(app)})
        made = Client(self.folder, name)
        self.clients.append(made)
        token = self.pilot.token(name, namespace)
        made.start(self.cluster.server.authority.ca.read_bytes(), token, self.pilot.port, replaced)
        return made

    def together(self, address: str) -> Together:
        """Begin to ask from several clients, once all of them are led to a Service, and past the sidecars besides."""
        self.pod("beside", app="beside")
        clients = [self.client(f"client-{number}") for number in range(CLIENTS)]
        for each in clients:
            serves(each, address)
        past = str(until(lambda: self._address_yet("beside"), LONG_S))
        return Together([each.asking(address, RATE) for each in clients], clients[0].asking_past(past, RATE))

    def subset(self, name: str, *pods: str) -> None:
        """Declare a Subset."""
        meta = {"name": name, "namespace": self.namespace}
        self.cluster.admin.create(SUBSET, {"metadata": meta, "spec": {"pods": [*pods]}})

    def split(self, subsets: Sequence[JsonObject], **more: Any) -> None:
        """Declare the VirtualService of the reviews."""
        spec = {"serviceRef": "reviews", "port": PORT, "subsets": [*subsets], **more}
        meta = {"name": "reviews", "namespace": self.namespace}
        virtual = {"apiVersion": "v1", "kind": VIRTUAL_SERVICE.kind, "metadata": meta, "spec": spec}
        self.cluster.server.kubectl(
            "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=yaml.safe_dump(virtual)
        )

    def stop(self) -> None:
        """End all."""
        for client in self.clients:
            client.stop()
        self.pilot.daemon.stop()
        self.node.stop()


@pytest.fixture
def mesh(cluster: Cluster) -> Iterator[Mesh]:
    # not below pytest's folder: Envoys are another user, who is to find their files
    with tempfile.TemporaryDirectory(prefix="mk8t-mesh-") as folder:
        Path(folder).chmod(0o755)
        made = Mesh(cluster, Path(folder))
        yield made
        made.stop()


@pytest.fixture
def controllers(cluster: Cluster) -> Iterator[Daemon]:
    """Yield the controllers, running."""
    daemon = cluster.daemon("controllers").start()
    yield daemon
    daemon.stop()


def serves(client: Client, address: str) -> None:
    """Wait for the sidecar to lead somewhere."""
    told: list[tuple[int, str]] = []

    def answers() -> bool:
        told.append(client.get(address))
        return told[-1][0] == OK

    try:
        until(answers, LONG_S)
    except AssertionError as error:
        raise AssertionError(f"{told[-1]}; {client.log()[-2000:]}") from error
