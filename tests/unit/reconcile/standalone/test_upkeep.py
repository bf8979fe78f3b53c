"""A node's own reconciler keeps its certificates and what it knows of the cluster."""

from __future__ import annotations

import base64
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from minik8s_modules.api.access import bootstrap_tokens, certificate_requests
from minik8s_modules.api.errors import AlreadyExists, Invalid
from minik8s_modules.api.kinds import NODE
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.kubeconfig import load_kubeconfig
from minik8s_modules.controllers.access import signing
from minik8s_modules.reconcile.standalone.agent import Agent, Given
from minik8s_modules.reconcile.standalone.files import Identity, kubeconfig, validity
from minik8s_modules.reconcile.standalone.shared_settings import KEY
from minik8s_modules.reconcile.values.node_file import NodeFile, parse_node_file
from tests.support.pki import Authority

SERVER = "https://192.0.2.1:6443"


class Cluster:
    """Signs what it is asked for, and tells settings, authorities and servers."""

    def __init__(self, authority: Authority, clock: FakeClock) -> None:
        self.authorities = authority.ca.read_bytes()
        self._authority = signing.load_authority(self.authorities, authority.key_pem)
        self._clock = clock
        self._requests: dict[str, Any] = {}
        self.settings = '{"cluster_cidr": "10.1.0.0/16", "network": {"driver": "vxlan"}}'
        self.addresses = ["192.0.2.1"]
        self.node_error: Exception | None = None
        self.patched: list[Any] = []

    def create(self, kind: Any, obj: Any, *, dry_run: bool = False) -> Any:
        """Take a signing request, or look at a Node."""
        if kind is NODE:
            assert dry_run
            if self.node_error is not None:
                raise self.node_error
        self._requests[obj["metadata"]["name"]] = obj
        return obj

    def get(self, kind: Any, name: str, _namespace: str = "") -> Any:
        """Tell what is asked for."""
        if name in self._requests and kind is not NODE:
            asked = self._requests[name]["spec"]
            now, life = self._clock.now(), timedelta(days=1)
            pem = signing.sign(
                certificate_requests.parse(asked["request"]), self._authority, asked["usages"], now, life
            )
            return {"status": {"certificate": base64.b64encode(pem).decode()}}
        if name == "minik8s-nodes":
            return {"data": {KEY: self.settings}}
        if name == "cluster-info":
            return {"data": {"kubeconfig": bootstrap_tokens.cluster_kubeconfig(SERVER, self.authorities)}}
        if name == "kubernetes":
            return {"subsets": [{"addresses": [{"ip": ip} for ip in self.addresses], "ports": [{"port": 6443}]}]}
        return {"metadata": {"name": name}, "spec": {}}

    def patch(self, _kind: Any, _name: str, _namespace: str, body: Any) -> Any:
        """Note what is changed of a Node."""
        self.patched.append(body)
        return body


class Machine:
    """An agent that has joined, and its cluster."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock(datetime.now(UTC))
        self.authority = Authority(folder / "pki", "own")
        self.cluster = Cluster(self.authority, self.clock)
        self.agent = self.made(folder, parse_node_file("{apiVersion: v1, kind: Node}", "f"))
        self.agent.home.open()
        issued = self.authority.issue("n1", "system:node:n1", ("system:nodes",))
        text = kubeconfig(
            Identity("n1", SERVER), self.cluster.authorities, issued.cert.read_bytes(), issued.key.read_text()
        )
        self.agent.home.write("kubeconfig", text)
        self.agent.home.write("serving.pem", issued.cert.read_text() + issued.key.read_text())

    def made(self, folder: Path, file: NodeFile) -> Agent:
        """Return an agent on the folder."""
        given = Given("n1", SERVER, None, (), file, folder / "state", folder / "run", "/docker.sock", folder, {})
        return Agent(given, self.clock)

    @property
    def api(self) -> ApiClient:
        """The cluster as the agent's client."""
        return cast("ApiClient", self.cluster)

    def keep(self) -> bool:
        """Let the agent look once; return whether its daemons are to be started anew."""
        self.agent.keep(self.api, threading.Event())
        changed = self.agent.changed.is_set()
        self.agent.changed.clear()
        return changed


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_certificates_are_renewed_before_they_end_and_not_earlier(machine: Machine):
    before = machine.agent.home.read("kubeconfig"), machine.agent.home.read("serving.pem")
    assert not machine.keep()
    assert (machine.agent.home.read("kubeconfig"), machine.agent.home.read("serving.pem")) == before
    machine.clock.advance(20 * 3600)
    assert machine.keep()
    access = load_kubeconfig(machine.agent.home.path("kubeconfig"))
    for pem in (access.cert_pem, machine.agent.home.read("serving.pem").encode()):
        assert validity(pem).begin > machine.clock.now() - timedelta(minutes=6)
    assert access.key_pem.decode() not in before[0]


def test_settings_authorities_and_servers_that_change_are_taken_over_within_the_hour(machine: Machine):
    machine.clock.advance(3601)
    assert machine.keep(), "what was not known is a change"
    assert machine.agent.known_settings()["cluster_cidr"] == "10.1.0.0/16"
    machine.clock.advance(3601)
    assert not machine.keep()
    machine.cluster.settings = '{"cluster_cidr": "10.1.0.0/16", "drift": "fast"}'
    machine.clock.advance(60)
    assert not machine.keep()
    machine.clock.advance(3601)
    assert machine.keep()
    other = Authority(machine.agent.home.folder, "next").ca.read_bytes()
    machine.cluster.authorities += other
    machine.cluster.addresses = ["192.0.2.2", "192.0.2.1"]
    machine.clock.advance(3601)
    assert machine.keep()
    assert other in load_kubeconfig(machine.agent.home.path("kubeconfig")).ca_pem
    assert machine.agent.servers == (SERVER, "https://192.0.2.2:6443")


def test_what_the_cluster_refuses_of_the_nodes_file_is_told_and_what_it_lacks_is_added(machine: Machine):
    text = "{apiVersion: v1, kind: Node, metadata: {labels: {disk: ssd}}}"
    agent = machine.made(machine.agent.home.folder, parse_node_file(text, "f"))
    machine.cluster.node_error = Invalid(NODE, "n1", [])
    with pytest.raises(ConfigurationError, match="refuses what the node's file declares"):
        agent.declare(machine.api)
    machine.cluster.node_error = AlreadyExists(NODE, "n1")
    agent.declare(machine.api)
    assert machine.cluster.patched == [{"metadata": {"labels": {"disk": "ssd"}, "annotations": {}}}]
