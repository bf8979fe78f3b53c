"""A real API server, gateway, process of streams and dockerd, with pods made by the node's modules: kubectl's streams.

No scheduler and no reconciler: a test makes the pod object, the containers, and the status that says so.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api.errors import AlreadyExists, NotFound
from minik8s_modules.api.kinds import LEASE, POD, SERVICE_ACCOUNT
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.api import ApiClient
from minik8s_modules.gateway.leases import STREAM_ENDPOINT
from tests.support.apiserver import ApiServerProcess
from tests.support.etcd import EtcdServer, free_port
from tests.support.extension import front_proxy
from tests.support.node import SOCKET, TestNode
from tests.support.pki import Authority, write_kubeconfig
from tests.support.waiting import nap

ROOT = Path(__file__).resolve().parents[3]
KUBELET_PORT = 10250
# nobody, if we may be anybody
PARSER = 65534 if os.geteuid() == 0 else os.geteuid()


class Streaming:
    """One node with an API server and a gateway in front of it."""

    def __init__(self, folder: Path, **variables: Any) -> None:
        self.folder = folder
        folder.chmod(0o711)
        self.node = TestNode(folder)
        self.etcd = EtcdServer(folder / "etcd").start()
        authority = Authority(folder / "streams", "streams")
        self.authority = authority
        caller = authority.issue("caller", "system:minik8s:apiserver")
        client = {"cert": str(caller.cert), "key": str(caller.key), "ca": str(authority.ca)}
        proxies, proxy = front_proxy(folder)
        self.front_proxy = proxies.ca
        self.server = ApiServerProcess(
            folder / "api",
            self.etcd.endpoint,
            reconciler_client=client,
            kubelet_port=KUBELET_PORT,
            front_proxy={"cert": str(proxy.cert), "key": str(proxy.key), "ca": str(proxies.ca)},
        ).start()
        self.admin = ApiClient(self.server.url, self.server.authority.ca, self.server.admin.cert, self.server.admin.key)
        self.port = free_port()
        self._config = self._write_config(variables)
        self.log = folder / "gateway.log"
        self.gateway: subprocess.Popen[bytes] | None = None
        self.parser: subprocess.Popen[bytes] | None = None
        self._sandboxes: JsonObject = {}
        self._containers: JsonObject = {}
        self._number = 10

    def _write_config(self, given: JsonObject) -> Path:
        inventory = self.folder / "hosts.yml"
        variables = {"ansible_connection": "warm_local", "minik8s_docker_socket": SOCKET, **given}
        inventory.write_text(yaml.safe_dump({"all": {"hosts": {self.node.name: variables}}}))
        identity = self.server.identity("system:minik8s:gateway")
        kubeconfig = write_kubeconfig(
            self.folder / "gateway.kubeconfig", self.server.url, self.server.authority.ca, identity
        )
        serving = self.authority.issue("gateway", "minik8s-gateway")
        path = self.folder / "gateway.yml"
        document = {
            "kubeconfig": str(kubeconfig),
            "inventory": str(inventory),
            "socket": str(self.folder / "gw.sock"),
            "run_dir": str(self.folder / "gw"),
            "streams": {
                "socket": str(self.folder / "streams.sock"),
                "user": pwd.getpwuid(PARSER).pw_name,
                "advertise": f"127.0.0.1:{self.port}",
                "client_ca": str(self.authority.ca),
            },
        }
        path.write_text(yaml.safe_dump(document))
        of_streams = {
            "listen": f"127.0.0.1:{self.port}",
            "cert": str(serving.cert),
            "key": str(serving.key),
            "client_ca": str(self.authority.ca),
            "gateway_socket": str(self.folder / "streams.sock"),
        }
        path.with_name("streams.yml").write_text(yaml.safe_dump(of_streams))
        serving.key.parent.chmod(0o711)
        os.chown(serving.key, PARSER, -1)
        return path

    def start_gateway(self) -> None:
        """Start the gateway, and its process of streams if there is none, and wait until the node's Lease names it."""
        self.gateway = self._daemon("gateway", self._config)
        if self.parser is None or self.parser.poll() is not None:
            self.start_parser()
        self.until(self._announced)

    def start_parser(self) -> None:
        """Start the process that parses streams, as a user without rights where we may choose."""
        user: JsonObject = {"user": PARSER, "group": PARSER, "extra_groups": []} if os.geteuid() != PARSER else {}
        self.parser = self._daemon("streams", self._config.with_name("streams.yml"), **user)

    def _daemon(self, room: str, config: Path, **user: Any) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", f"minik8s_modules.{room}.main", "--config", str(config)]
        with self.log.open("ab") as log:
            return subprocess.Popen(argv, stdout=log, stderr=log, cwd=ROOT, **user)

    def _announced(self) -> bool:
        try:
            lease = self.admin.get(LEASE, self.node.name, "kube-node-lease")
        except NotFound:
            return False
        endpoint = lease["metadata"].get("annotations", {}).get(STREAM_ENDPOINT)
        return endpoint == f"https://127.0.0.1:{self.port}" and self.admin_reaches() and self.hands_over()

    def hands_over(self) -> bool:
        """Return whether the gateway answers the process of streams."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            return probe.connect_ex(str(self.folder / "streams.sock")) == 0

    def admin_reaches(self) -> bool:
        """Return whether the gateway's listener answers."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill_gateway(self) -> None:
        """Kill the gateway at once."""
        assert self.gateway is not None
        self.gateway.kill()
        self.gateway.wait(60)

    def kill_parser(self) -> None:
        """Kill the process that parses streams at once."""
        assert self.parser is not None
        self.parser.kill()
        self.parser.wait(60)

    def close(self) -> None:
        """End everything and remove what is left."""
        for daemon in (self.gateway, self.parser):
            if daemon is not None and daemon.poll() is None:
                daemon.send_signal(signal.SIGTERM)
                daemon.wait(60)
        self.admin.close()
        self.server.stop()
        self.etcd.stop()
        self.node.close()

    def until(self, condition: Callable[[], Any], timeout_s: float = 60.0) -> Any:
        """Wait until ``condition`` holds."""
        begun = time.monotonic()
        while time.monotonic() < begun + timeout_s:
            if value := condition():
                return value
            nap(begun)
        raise AssertionError(f"not within {timeout_s} s\n{self.log.read_text()[-3000:]}")

    # pods

    def pod(self, name: str, *scripts: str, **changes: Any) -> JsonObject:
        """Run a pod: one container a script of sh (app, app1, app2, …); return the pod object."""
        names = ["app" if not index else f"app{index}" for index in range(len(scripts) or 1)]
        self._account()
        spec = {
            "nodeName": self.node.name,
            "containers": [{"name": each, "image": "minik8s/busybox:1"} for each in names],
        }
        made = self.admin.create(POD, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
        self._number += 1
        sandbox = self.node.pod(self._number)
        sandbox["pod"] = {"uid": made["metadata"]["uid"], "name": name, "namespace": "default"}
        self._sandboxes[made["metadata"]["uid"]] = sandbox
        for each, script in zip(names, scripts or ["sleep 3600"], strict=True):
            entry = self.node.container(sandbox, each, entrypoint=["sh", "-c", script], **changes)
            self._containers[f"{made['metadata']['uid']}/{each}"] = entry
        self.apply()
        return self.report(made)

    def restart(self, pod: JsonObject, container: str = "app") -> JsonObject:
        """Make the next attempt of a container whose last one has ended; the earlier one is kept."""
        self._containers[f"{pod['metadata']['uid']}/{container}"]["attempt"] += 1
        self.apply()
        return self.report(pod)

    def apply(self) -> None:
        """Bring the node to what is declared."""
        sections = (
            ("network", self.node.network()),
            ("sandboxes", self._sandboxes),
            ("containers", self._containers),
        )
        for section, entries in sections:
            result = self.node.run(section, entries)
            assert not result["errors"], (result["errors"], self._ended())

    def _ended(self) -> JsonObject:
        """Return by name what Docker knows of each container that does not run."""
        found = [self.node.docker.inspect(identity) for identity in self.node.ids()]
        return {each["Name"]: each["State"] for each in found if each is not None and not each["State"]["Running"]}

    def address(self, pod: JsonObject) -> str:
        """Return the pod's address."""
        return str(self._sandboxes[pod["metadata"]["uid"]]["ip"])

    def inspect(self, pod: JsonObject, container: str = "app", attempt: int | None = None) -> JsonObject:
        """Return Docker's view of one container."""
        entry = self._containers[f"{pod['metadata']['uid']}/{container}"]
        wanted = entry["attempt"] if attempt is None else attempt
        marks = pod["metadata"]
        name = f"mk8s_{container}_{marks['name']}_{marks['namespace']}_{marks['uid']}_{wanted}"
        found = self.node.docker.inspect(name)
        assert found is not None
        return dict(found)

    def report(self, pod: JsonObject) -> JsonObject:
        """Write the pod's status as the reconciler would."""
        status = [self._status(pod, each["name"]) for each in pod["spec"]["containers"]]
        body = {"status": {"phase": "Running", "containerStatuses": status}}
        return self.admin.patch(POD, pod["metadata"]["name"], "default", body, subresource="status")

    def _status(self, pod: JsonObject, container: str) -> JsonObject:
        entry = self._containers[f"{pod['metadata']['uid']}/{container}"]
        seen = self.inspect(pod, container)
        state: JsonObject = {"running": {}}
        if not seen["State"]["Running"]:
            state = {"terminated": {"exitCode": seen["State"]["ExitCode"], "containerID": f"docker://{seen['Id']}"}}
        last: JsonObject = {}
        if entry["attempt"]:
            before = self.inspect(pod, container, entry["attempt"] - 1)
            last = {"terminated": {"exitCode": 0, "containerID": f"docker://{before['Id']}"}}
        return {
            "name": container, "image": "i", "imageID": "", "ready": True, "restartCount": entry["attempt"],
            "state": state, "lastState": last, "containerID": f"docker://{seen['Id']}",
        }  # fmt: skip

    def _account(self) -> None:
        try:
            self.admin.create(SERVICE_ACCOUNT, {"metadata": {"name": "default", "namespace": "default"}})
        except AlreadyExists:
            return

    # kubectl

    def kubectl(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run kubectl 1.32."""
        return self.server.kubectl(*arguments, **options)

    def popen(self, *arguments: str, env: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[bytes]:
        """Start kubectl with pipes."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        environment = {**os.environ, "HOME": str(self.folder), **(env or {})}
        return subprocess.Popen(self.server.kubectl_argv(*arguments), env=environment, **{**pipes, **options})


@pytest.fixture(scope="module")
def streaming() -> Iterator[Streaming]:
    folder = Path(tempfile.mkdtemp(prefix="mk8s-"))
    made = Streaming(folder)
    try:
        made.start_gateway()
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)
