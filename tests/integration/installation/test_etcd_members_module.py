"""``minik8s_etcd_members`` with real members over TLS: one grows to three, one that lost its data is replaced."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.store.etcd import EtcdStore
from minik8s_modules.store.wire.connection import Tls
from tests.integration.installation.test_authorities_module import run
from tests.support.etcd import EtcdServer
from tests.support.pki import Authority

PODS = "/registry/core/pods/"
MODULE = "minik8s_etcd_members"


class Members:
    """Members by name, each a process with its folder, and the module asked through the first of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder / "pki", "etcd")
        self.pair = self.authority.issue("etcd", "etcd")
        self.servers: dict[str, EtcdServer] = {}

    def new(self, name: str) -> EtcdServer:
        """Return a member that was not started yet."""
        transport = ["--cert-file", str(self.pair.cert), "--key-file", str(self.pair.key), "--client-cert-auth"]
        transport += ["--trusted-ca-file", str(self.authority.ca)]
        server = EtcdServer(self.folder / name, arguments=[*transport, "--name", name], scheme="https")
        server.arguments += ["--initial-cluster", f"{name}={server.peer}"]
        server.arguments += ["--heartbeat-interval", "100", "--election-timeout", "1000"]
        self.servers[name] = server
        return server

    def ask(self, state: str, peer: str, *, check: bool = False, **more: Any) -> dict[str, Any]:
        """Run the module, with the first member as the one that answers."""
        endpoint = next(iter(self.servers.values())).endpoint
        files = {"ca": str(self.authority.ca), "cert": str(self.pair.cert), "key": str(self.pair.key)}
        return run(MODULE, check=check, state=state, peer=peer, endpoint=endpoint, **files, **more)

    def join(self, name: str, server: EtcdServer) -> list[str]:
        """Have a new member join, as the role has; return what was done."""
        expected = self.ask("joining", server.peer, name=name)
        assert not self.ask("joining", server.peer, name=name)["changed"]
        server.arguments += ["--initial-cluster", expected["initial_cluster"], "--initial-cluster-state", "existing"]
        server.start()
        voting = self.ask("voting", server.peer)
        assert not self.ask("voting", server.peer)["changed"]
        return [step["action"] for step in (*expected["steps"], *voting["steps"])]

    def store(self, *names: str) -> EtcdStore:
        """Return a store on some members."""
        tls = Tls(self.authority.ca, self.pair.cert, self.pair.key)
        return EtcdStore([self.servers[name].endpoint for name in names], tls)


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    made = Members(tmp_path)
    yield made
    for server in made.servers.values():
        server.stop()


def test_one_member_grows_to_three_with_its_data_and_any_of_them_may_be_lost(members: Members) -> None:
    first = members.new("first").start()
    store = members.store("first")
    store.create(PODS + "kept", b"{}")
    assert not members.ask("only", first.peer)["changed"]
    for name in ("second", "third"):
        assert members.join(name, members.new(name)) == ["add", "promote"]
    second = members.servers["second"]
    second.kill9()
    shutil.rmtree(second.data_dir)
    second.arguments = [each for each in second.arguments if each != "existing"]
    del members.servers["second"]
    again = members.new("second")
    again.peer = second.peer  # the same machine, without its disk
    again.arguments[again.arguments.index("--initial-cluster") + 1] = f"second={again.peer}"
    assert members.join("second", again) == ["remove", "add", "promote"]
    first.kill9()
    found = members.store("second", "third")
    assert found.get(PODS + "kept")
    found.create(PODS + "new", b"{}")
    found.close()
    store.close()


def test_members_that_are_not_declared_go(members: Members) -> None:
    first = members.new("first").start()
    second = members.new("second")
    members.join("second", second)
    answer = members.ask("only", first.peer, peers=[first.peer], check=True)
    assert [step["action"] for step in answer["steps"]] == ["remove"]
    assert not members.ask("only", first.peer, peers=[first.peer, second.peer])["changed"]
    second.stop()
    with pytest.raises(AssertionError, match="cannot change the members"):
        members.ask("only", first.peer, peers=[first.peer], wait_s=0)  # one of two alone decides nothing
    second.arguments = [each for each in second.arguments if each not in {"--initial-cluster-state", "existing"}]
    # What was refused for lack of time stands in the first one's log, and may be done as soon as both are there: the
    # second one then ends at its start.
    second.launch()
    members.ask("only", first.peer, peers=[first.peer])
    assert not members.ask("only", first.peer, peers=[first.peer])["changed"]
    store = members.store("first")
    store.create(PODS + "alone", b"{}")
    store.close()
