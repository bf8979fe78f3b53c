"""Two API servers on three members of etcd: any process may be killed, nothing is lost and nothing is done twice."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from minik8s_modules.api.errors import AlreadyExists, NotFound, StatusError
from minik8s_modules.api.kinds import CONFIG_MAP, CUSTOM_RESOURCE_DEFINITION, ENDPOINTS, LEASE, SERVICE, Kind
from minik8s_modules.api.objects import condition, is_deleting
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.informer import Informer
from minik8s_modules.client.kubeconfig import Access
from minik8s_modules.runtime.leader import LeaderElector, Token
from minik8s_modules.store.stubs import rpc
from minik8s_modules.store.wire.connection import Connections
from tests.support.apiserver import ApiServerProcess, beside
from tests.support.etcd import EtcdServer
from tests.support.waiting import until

WRITERS, WRITES = 3, 40
SERVICES = 50
ADDRESSES = ("192.0.2.1", "192.0.2.2")


class Several(NamedTuple):
    """The processes, and the first server's certificates, which are all the cluster's."""

    members: Sequence[EtcdServer]
    servers: Sequence[ApiServerProcess]

    def access(self, *order: int) -> Access:
        """Return the administrator's access that asks the servers in ``order``."""
        first, urls = self.servers[0], [self.servers[number].url for number in order]
        ca, cert, key = (path.read_bytes() for path in (first.authority.ca, first.admin.cert, first.admin.key))
        return Access(urls[0], ca, cert, key, others=tuple(urls[1:]))

    def client(self, *order: int) -> ApiClient:
        """Return the administrator's client."""
        return ApiClient.of(self.access(*order))

    def leader(self) -> EtcdServer:
        """Return the member that leads."""
        for member in self.members:
            connections = Connections([member.endpoint], None)
            status = rpc.StatusResponse.FromString(connections.read("/etcdserverpb.Maintenance/Status", b""))
            connections.close()
            if status.leader == status.header.member_id:
                return member
        raise AssertionError("no member leads")


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    """The cluster; a test starts again what it has killed."""
    folder = tmp_path_factory.mktemp("several")
    members = [EtcdServer(folder / f"m{number}") for number in range(3)]
    cluster = ",".join(f"m{number}={member.peer}" for number, member in enumerate(members))
    for number, member in enumerate(members):
        member.arguments += ["--name", f"m{number}", "--initial-cluster", cluster]
        # on a busy machine the short times of a lone member would make elections without end
        member.arguments += ["--heartbeat-interval", "100", "--election-timeout", "1000"]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(EtcdServer.start, members))
    servers = _servers(folder, [member.endpoint for member in members])
    try:
        for server in servers:
            server.start()
        yield Several(members, servers)
    finally:
        for server in servers:
            server.stop()
        for member in members:
            member.stop()


def _servers(folder: Path, endpoints: list[str]) -> list[ApiServerProcess]:
    """Return two servers of one cluster: the second asks another member first."""
    dual: dict[str, Any] = {"dual_stack": True, "service_cidr_ipv6": "fd00:96::/112"}
    settings: dict[str, Any] = {"advertise_address": ADDRESSES[0], "etcd": {"endpoints": endpoints}, **dual}
    first = ApiServerProcess(folder / "a", endpoints[0], **settings)
    return [first, beside(first, folder / "b", [*endpoints[1:], endpoints[0]], ADDRESSES[1], **dual)]


class Seen:
    """Counts what an informer is told of ConfigMaps whose names begin with ``prefix``."""

    def __init__(self, client: ApiClient, prefix: str) -> None:
        self.created: Counter[str] = Counter()
        self.changed: list[int] = []
        self._prefix = prefix
        self.informer = Informer(client, CONFIG_MAP, "default")
        self.informer.add_handler(self._on_change)
        self.informer.start()
        assert self.informer.wait_synced(60)

    def _on_change(self, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        name = ((new or old) or {})["metadata"]["name"]
        if name.startswith(self._prefix) and old is None:
            self.created[name] += 1
        if name == f"{self._prefix}count" and new is not None:
            self.changed.append(int(new["data"]["n"]))


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, "data": data}


def insistently(call: Any, *arguments: Any) -> None:
    """Make a creation until it is there; a lost answer may mean that it is."""
    end = time.monotonic() + 60
    while True:
        try:
            call(*arguments)
        except AlreadyExists:
            return
        except (StatusError, TemporaryError):
            assert time.monotonic() < end, "no writes for a minute"
            time.sleep(0.1)
        else:
            return


def count_up(client: ApiClient, name: str, times: int) -> None:
    """Raise a number ``times`` times, each on top of what was read: compare-and-swap lets no raise happen twice."""
    reached = 0
    end = time.monotonic() + 120
    while reached < times:
        try:
            found = client.get(CONFIG_MAP, name, "default")
            reached = int(found["data"]["n"])
            if reached < times:
                client.update(CONFIG_MAP, {**found, "data": {"n": str(reached + 1)}})
        except (StatusError, TemporaryError):
            assert time.monotonic() < end, f"stuck at {reached}"
            time.sleep(0.05)


def test_writes_go_on_when_the_leader_of_etcd_is_killed(several: Several):
    client, watcher = several.client(0, 1), several.client(1, 0)
    insistently(client.create, CONFIG_MAP, config_map("load-count", n="0"))
    seen = Seen(watcher, "load-")
    names = [f"load-{writer}-{number}" for writer in range(WRITERS) for number in range(WRITES)]
    killed = several.leader()
    with ThreadPoolExecutor(WRITERS + 1) as pool:
        counting = pool.submit(count_up, client, "load-count", WRITES)
        writing = [pool.submit(insistently, client.create, CONFIG_MAP, config_map(name)) for name in names]
        until(lambda: sum(each.done() for each in writing) > WRITES)
        killed.kill9()
        for each in (*writing, counting):
            each.result(180)
    stored = [each["metadata"]["name"] for each in client.list(CONFIG_MAP, "default").items]
    assert sorted(name for name in stored if name.startswith("load-")) == sorted([*names, "load-count"])
    until(lambda: set(names) <= set(seen.created) and WRITES in seen.changed, 60)
    assert set(seen.created.values()) == {1}
    assert sorted(seen.changed) == sorted(set(seen.changed))  # no raise was told, or made, twice
    seen.informer.stop()
    killed.start()


def test_what_a_server_shows_of_its_own_writes_is_what_the_other_one_reads(several: Several):
    """The writer's own form goes into its cache, what etcd's watch brings into the other's."""
    first, second = several.servers
    place, merge = "/api/v1/namespaces/default", {"Content-Type": "application/merge-patch+json"}
    scaler = {
        "metadata": {"name": "own"},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}},
    }
    written = [
        (f"{place}/configmaps", {"metadata": {"name": "own", "labels": {"a": "x"}}, "data": {"k": "é\u2028"}}),
        (f"{place}/secrets", {"metadata": {"name": "own"}, "stringData": {"k": "v"}}),
        (f"{place}/services", {"metadata": {"name": "own"}, "spec": {"ports": [{"port": 80}]}}),
        ("/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", scaler),
    ]
    for path, body in written:
        assert first.request("POST", path, body).code == 201, path
        patch = {"metadata": {"annotations": {"changed": "yes"}, "finalizers": ["example.com/wait"]}}
        assert first.request("PATCH", f"{path}/own", patch, headers=merge).code == 200, path
        assert first.request("DELETE", f"{path}/own").code == 200, path
        _same(several, path)
        assert first.request("PATCH", f"{path}/own", {"metadata": {"finalizers": None}}, headers=merge).code == 200
        _same(several, path)
        assert second.request("GET", f"{path}/own").code == 404


def _same(several: Several, path: str) -> None:
    """Wait until both servers list what is at ``path`` alike, at one revision."""
    first, second = several.servers
    revision = first.request("GET", path).json["metadata"]["resourceVersion"]
    query = f"{path}?resourceVersion={revision}"
    until(lambda: second.request("GET", query).json["items"] == first.request("GET", query).json["items"], 60)


def test_a_watch_goes_on_at_the_other_server_when_its_own_is_killed(several: Several):
    first, second = several.servers
    seen = Seen(several.client(0, 1), "watch-")
    argv = second.kubectl_argv("get", "configmaps", "--watch", "--output=name")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as kubectl:
        assert kubectl.stdout is not None
        collected: list[str] = []
        reading = threading.Thread(target=lambda: collected.extend(kubectl.stdout or ()), daemon=True)
        reading.start()
        writer = several.client(0, 1)
        for number in range(10):
            writer.create(CONFIG_MAP, config_map(f"watch-{number}"))
        until(lambda: len(seen.created) == 10)
        first.kill9()
        for number in range(10, 20):
            insistently(writer.create, CONFIG_MAP, config_map(f"watch-{number}"))
        until(lambda: len(seen.created) == 20, 60)
        until(lambda: "configmap/watch-19\n" in collected, 60)
        kubectl.terminate()
    assert set(seen.created.values()) == {1}
    assert "watch-19" in second.kubectl("get", "configmaps", "--output=name").stdout
    seen.informer.stop()
    first.start()


def node_port_service(name: str) -> dict[str, Any]:
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
    spec = {"type": "NodePort", "ports": ports, "ipFamilyPolicy": "RequireDualStack"}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def test_servers_that_allocate_at_the_same_time_give_nothing_twice(several: Several):
    clients = [several.client(0), several.client(1)]
    starting = threading.Barrier(WRITERS * len(clients))

    def make(server: int, writer: int) -> None:
        starting.wait(30)
        for number in range(writer, SERVICES, WRITERS):
            insistently(clients[server].create, SERVICE, node_port_service(f"given-{server}-{number}"))

    with ThreadPoolExecutor(starting.parties) as pool:
        writing = [pool.submit(make, server, writer) for server in range(len(clients)) for writer in range(WRITERS)]
        for each in writing:
            each.result(180)
    for client in clients:
        specs = given(client, len(clients) * SERVICES)
        cluster_ips = [address for spec in specs for address in spec["clusterIPs"]]
        node_ports = [port["nodePort"] for spec in specs for port in spec["ports"]]
        assert len(set(cluster_ips)) == len(cluster_ips) == 2 * len(specs)
        assert len(set(node_ports)) == len(node_ports) == 2 * len(specs)


def given(client: ApiClient, count: int) -> list[dict[str, Any]]:
    """Return what the services have that were allocated for, once the server shows them all."""

    def found() -> list[dict[str, Any]]:
        services = client.list(SERVICE, "default").items
        return [each["spec"] for each in services if each["metadata"]["name"].startswith("given-")]

    until(lambda: len(found()) == count, 60)
    return found()


def addresses(client: ApiClient) -> list[str]:
    subsets = client.get(ENDPOINTS, "kubernetes", "default")["subsets"]
    return [address["ip"] for address in subsets[0]["addresses"]]


def test_pods_are_sent_to_the_servers_that_live(several: Several):
    first, client = several.servers[0], several.client(1)
    until(lambda: addresses(client) == [*ADDRESSES], 60)
    first.kill9()
    until(lambda: addresses(client) == [ADDRESSES[1]], 60)
    first.start()
    until(lambda: addresses(client) == [*ADDRESSES], 60)
    assert first.stop() == 0
    assert addresses(client) == [ADDRESSES[1]]  # who ends politely says so
    first.start()


def test_who_leads_goes_on_leading_when_its_api_server_dies(several: Several):
    first, stop, tokens = several.servers[0], threading.Event(), []
    elector = LeaderElector(several.client(0, 1), "test-job", identity="me")

    def lead(token: Token, lost: threading.Event) -> None:
        tokens.append(token)
        lost.wait()

    leading = threading.Thread(target=elector.run, args=(stop, lead), daemon=True)
    leading.start()
    until(lambda: tokens)
    first.kill9()
    client = several.client(1)
    before = renewed(client)
    until(lambda: renewed(client) != before, 60)
    stop.set()
    leading.join(30)
    assert len(tokens) == 1
    first.start()


def renewed(client: ApiClient) -> str:
    return str(client.get(LEASE, "test-job", "kube-system")["spec"]["renewTime"])


def _definition(group: str) -> dict[str, Any]:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    names = {"plural": "widgets", "kind": "Widget"}
    spec = {"group": group, "scope": "Cluster", "names": names, "versions": [version]}
    return {"metadata": {"name": f"widgets.{group}"}, "spec": spec}


def _is_established(client: ApiClient, group: str) -> bool:
    try:
        found = condition(client.get(CUSTOM_RESOURCE_DEFINITION, f"widgets.{group}"), "Established")
    except (TemporaryError, NotFound):  # its reads may be behind what the other server was told
        return False
    return found is not None and found["status"] == "True"


def test_a_custom_kind_that_is_established_is_served_by_every_server(several: Several):
    clients = [several.client(0), several.client(1)]
    for number in range(6):
        group = f"g{number}.example.com"
        asked, result = clients[number % 2], clients[(number + 1) % 2]
        asked.create(CUSTOM_RESOURCE_DEFINITION, _definition(group))
        until(partial(_is_established, result, group))
        kind = Kind(group, "v1", "Widget", "widgets", "", namespaced=False)
        for client in clients:
            assert client.list(kind).items == []
        asked.delete(CUSTOM_RESOURCE_DEFINITION, f"widgets.{group}")


def test_a_third_server_is_waited_for_as_well(several: Several, tmp_path: Path):
    endpoints = [member.endpoint for member in several.members]
    third = beside(several.servers[0], tmp_path / "c", endpoints[::-1], "192.0.2.3").start()
    try:
        clients = [several.client(0), several.client(1), ApiClient.of(several.access(0)._replace(server=third.url))]
        for number in range(3):
            group = f"three{number}.example.com"
            clients[number].create(CUSTOM_RESOURCE_DEFINITION, _definition(group))
            until(partial(_is_established, clients[(number + 1) % 3], group))
            kind = Kind(group, "v1", "Widget", "widgets", "", namespaced=False)
            for client in clients:
                assert client.list(kind).items == []
            clients[number].delete(CUSTOM_RESOURCE_DEFINITION, f"widgets.{group}")
    finally:
        third.stop()


def test_a_server_that_dies_does_not_keep_a_custom_kind_from_being_served(several: Several):
    group, other = "killed.example.com", several.client(1)
    kind = Kind(group, "v1", "Widget", "widgets", "", namespaced=False)
    several.client(0).create(CUSTOM_RESOURCE_DEFINITION, _definition(group))
    several.servers[0].kill9()
    try:
        until(lambda: _is_established(other, group))
        other.create(kind, {"metadata": {"name": "a", "finalizers": ["example.com/held"]}})
        other.delete(CUSTOM_RESOURCE_DEFINITION, f"widgets.{group}")
    finally:
        several.servers[0].start()
    first = several.client(0)
    until(lambda: is_deleting(first.get(kind, "a")))
    first.patch(kind, "a", "", {"metadata": {"finalizers": None}})
    until(lambda: _is_gone(first, f"widgets.{group}"))


def _is_gone(client: ApiClient, name: str) -> bool:
    try:
        client.get(CUSTOM_RESOURCE_DEFINITION, name)
    except NotFound:
        return True
    return False
