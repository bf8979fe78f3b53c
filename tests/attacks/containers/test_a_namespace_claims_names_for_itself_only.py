"""What a namespace calls its hosts and Services is nobody else's name, unless a HostGrant says so.

The attacks: an editor of one namespace claims ``login.bank.example`` by a DNS object, and all pods and nodes go to him;
he makes a Service ``front``, and ``wget http://front/`` from any namespace without one reaches it. All on a real
CoreDNS and nginx, asked from pods and from the node.
"""

from __future__ import annotations

import subprocess
from functools import partial

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import DNS, HOST_GRANT, NAMESPACE, POD
from tests.integration.naming.conftest import Cluster
from tests.integration.reconcile.conftest import IMAGE
from tests.support.node import SOCKET

EVIL, BANK, VICTIM = "evil", "bank", "victim"
HOST = "login.bank.example"
NOBODY = "NXDOMAIN"


class Town:
    """A cluster with three namespaces beside ``default``: evil and bank serve, the victim only asks."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        for name in (EVIL, BANK, VICTIM):
            cluster.admin.create(NAMESPACE, {"metadata": {"name": name}})
            self.client(name)
        self.client("default")
        for name in (EVIL, BANK):
            cluster.web("web", {"app": "web"}, namespace=name, container={"env": [{"name": "POD", "value": name}]})
            cluster.service("web", {"app": "web"}, namespace=name)
        for name in (EVIL, BANK, VICTIM, "default"):
            cluster.until(partial(self.ready, name, "client"), 120)

    def client(self, namespace: str) -> None:
        """Make a pod that asks."""
        container = {"name": "app", "image": IMAGE, "command": ["sleep", "3600"]}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
        self.cluster.admin.create(POD, {"metadata": {"name": "client", "namespace": namespace}, "spec": spec})

    def ready(self, namespace: str, name: str) -> bool:
        """Return whether a pod is ready."""
        condition = objects.condition(self.cluster.admin.get(POD, name, namespace), "Ready") or {}
        return condition.get("status") == "True"

    def fetch(self, namespace: str, host: str, port: int = 80) -> str:
        """Return what a pod of a namespace is answered by a host, "" where it finds none."""
        status = objects.status(self.cluster.admin.get(POD, "client", namespace))
        container = status["containerStatuses"][0]["containerID"].rpartition("/")[2]
        # busybox' own limit of time (-T) ends it while it looks a name up
        asked = ["timeout", "10", "wget", "-qO-", f"http://{host}:{port}/"]
        argv = ["docker", "-H", f"unix://{SOCKET}", "exec", container, *asked]
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()

    def finds(self, namespace: str, host: str, who: str) -> bool:
        """Return whether a pod of a namespace reaches the server of ``who`` under a host that nginx answers for."""
        return self.fetch(namespace, host, self.cluster.http_port) == who

    def claim(self, namespace: str, name: str, host: str) -> None:
        """Claim a host by a DNS object that leads to the namespace's own server."""
        paths = [{"path": "/", "backend": {"service": {"name": "web", "port": 80}}}]
        spec = {"rules": [{"host": host, "paths": paths}]}
        self.cluster.admin.create(DNS, {"metadata": {"name": name, "namespace": namespace}, "spec": spec})

    def grant(self, name: str, namespace: str, *hosts: str, short: bool = False) -> None:
        """Give hosts, or short names, to a namespace."""
        spec = {"namespaces": [namespace], "hosts": list(hosts), "shortNames": short}
        self.cluster.admin.create(HOST_GRANT, {"metadata": {"name": name}, "spec": spec})

    def condition_text(self, namespace: str, name: str, condition: str) -> str:
        """Return reason and message of a DNS object's condition."""
        found = objects.condition(self.cluster.admin.get(DNS, name, namespace), condition) or {}
        return f"{found.get('status')} {found.get('reason')}: {found.get('message')}"


@pytest.fixture(scope="module")
def town(cluster: Cluster) -> Town:
    return Town(cluster)


def test_a_host_answers_in_the_pods_of_its_own_namespace_alone(town: Town) -> None:
    cluster = town.cluster
    town.claim(EVIL, "login", HOST)
    cluster.until(lambda: town.finds(EVIL, HOST, EVIL), 60)
    for namespace in (BANK, VICTIM, "default"):
        assert town.fetch(namespace, HOST, cluster.http_port) == ""
    assert cluster.resolve(HOST)[0] == NOBODY
    cluster.until(lambda: town.condition_text(EVIL, "login", "Granted").startswith("False HostNotGranted"))
    assert '"namespaces": ["evil"], "hosts": ["login.bank.example"]' in town.condition_text(EVIL, "login", "Granted")


def test_a_grant_takes_effect_and_ends_at_once(town: Town) -> None:
    cluster = town.cluster
    town.claim(EVIL, "other", "other.bank.example")
    cluster.until(lambda: town.finds(EVIL, "other.bank.example", EVIL), 60)
    town.grant("evil-other", EVIL, "other.bank.example")
    cluster.until(lambda: cluster.resolve("other.bank.example") == ("NOERROR", [cluster.listen]))
    cluster.until(lambda: town.finds(VICTIM, "other.bank.example", EVIL))
    cluster.until(lambda: town.condition_text(EVIL, "other", "Granted").startswith("True"))
    cluster.admin.delete(HOST_GRANT, "evil-other")
    cluster.until(lambda: cluster.resolve("other.bank.example")[0] == NOBODY)
    cluster.until(lambda: town.finds(EVIL, "other.bank.example", EVIL))


def test_whoever_is_granted_a_host_takes_it_from_whoever_claimed_it_first(town: Town) -> None:
    cluster, host = town.cluster, "www.bank.example"
    town.claim(EVIL, "first", host)
    cluster.until(lambda: town.finds(EVIL, host, EVIL), 60)
    town.grant("bank", BANK, "*.bank.example")
    town.claim(BANK, "own", host)
    for namespace in (VICTIM, BANK, EVIL, "default"):
        cluster.until(partial(town.finds, namespace, host, BANK), 60)
    cluster.until(lambda: cluster.get(host) == (200, BANK))
    cluster.until(lambda: town.condition_text(EVIL, "first", "Accepted").startswith("False HostNotGranted"))
    assert "DNS bank/own, which has it by HostGrant bank" in town.condition_text(EVIL, "first", "Accepted")


def test_a_bare_name_in_a_pod_is_its_own_namespaces(town: Town) -> None:
    cluster = town.cluster
    cluster.service("front", {"app": "web"}, namespace=EVIL)
    ours = cluster.service("ours", {"app": "web"})
    cluster.until(lambda: town.fetch(EVIL, "front") == EVIL, 60)
    cluster.until(lambda: cluster.resolve("ours.nodes.cluster.local") == ("NOERROR", [ours]))
    for namespace in (BANK, VICTIM, "default"):
        assert town.fetch(namespace, "front") == ""
        assert town.fetch(namespace, "front.evil") == EVIL
    for name in ("front", "ours", "front.nodes.cluster.local"):
        assert cluster.resolve(name)[0] == NOBODY


def test_nodes_find_short_names_of_granted_namespaces(town: Town) -> None:
    cluster = town.cluster
    address = cluster.service("till", {"app": "web"}, namespace=BANK)
    cluster.until(lambda: cluster.resolve("till.bank.svc.cluster.local") == ("NOERROR", [address]))
    assert cluster.resolve("till.nodes.cluster.local")[0] == NOBODY
    town.grant("tills", BANK, short=True)
    cluster.until(lambda: cluster.resolve("till.nodes.cluster.local") == ("NOERROR", [address]))
    assert town.fetch(VICTIM, "till") == ""
    taken = cluster.service("till", {"app": "web"}, namespace="default")
    cluster.until(lambda: cluster.resolve("till.nodes.cluster.local") == ("NOERROR", [taken]))
