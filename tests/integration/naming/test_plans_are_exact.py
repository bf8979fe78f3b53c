"""What a plan shows of rules, names and files is what stands there when it was applied and the pods are ready."""

from __future__ import annotations

import difflib
import json
import time
from typing import Any

import yaml

from minik8s_modules.api.kinds import DEPLOYMENT, POD
from minik8s_modules.api.objects import JsonObject
from tests.integration.naming.conftest import Cluster
from tests.integration.services.conftest import SERVER
from tests.support.pki import Authority

SECTIONS = ("services", "dns", "ingress")
HOST = "shop.example.test"


def deployment(name: str, replicas: int, app: str) -> JsonObject:
    """Return a Deployment whose pods answer at http."""
    container = {
        "name": "app",
        "image": "minik8s/busybox:1",
        "command": ["sh", "-c", SERVER],
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
    }
    labels = {"app": app}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return obj("apps/v1", "Deployment", name, spec)


def obj(version: str, kind: str, name: str, spec: JsonObject) -> JsonObject:
    """Return an object of the namespace default."""
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def service(name: str, app: str, **spec: Any) -> JsonObject:
    """Return a Service, port 80 to http."""
    ports = [{"name": "web", "port": 80, "targetPort": "http"}]
    return obj("v1", "Service", name, {"selector": {"app": app}, "ports": ports, **spec})


def ingress(service_name: str, **spec: Any) -> JsonObject:
    """Return an Ingress of one path."""
    backend = {"service": {"name": service_name, "port": {"name": "web"}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    rules = [{"host": HOST, "http": {"paths": paths}}]
    return obj("networking.k8s.io/v1", "Ingress", "shop", {"rules": rules, **spec})


def dns() -> JsonObject:
    """Return a DNS object of a host of its own."""
    paths = [{"path": "/shop", "backend": {"service": {"name": "shop", "port": 80}}}]
    return obj("v1", "DNS", "names", {"rules": [{"host": "names.example.test", "paths": paths}]})


class Applied:
    """Objects that are planned, applied and looked at; the cluster's node says what is there."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.known: dict[tuple[str, str], JsonObject] = {}

    def plan(self, **spec: Any) -> JsonObject:
        """Return what a plan says of the node: its diffs and its steps."""
        return dict(self.cluster.plan(**spec)["nodes"][self.cluster.node.name])

    def sections(self, side: str, **spec: Any) -> dict[str, str]:
        """Return one side of the diffs of our sections."""
        diff = self.plan(**spec)["diff"]
        return {section: str(diff[section][side]) for section in SECTIONS if section in diff}

    def now(self) -> dict[str, str]:
        """Return what stands there of the known objects: what a plan to delete them all shows as before."""
        return self.sections("before", deleted=list(self.known.values()))

    def change(self, *objects: JsonObject, deleted: tuple[JsonObject, ...] = ()) -> dict[str, str]:
        """Plan and apply; return what the plan shows of our sections."""
        planned = self.sections("after", objects=list(objects), deleted=list(deleted))
        if objects:
            self.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(json.loads(json.dumps(objects))))
        for each in deleted:
            self.cluster.kubectl("delete", each["kind"], each["metadata"]["name"])
            del self.known[each["kind"], each["metadata"]["name"]]
        self.known |= {(each["kind"], each["metadata"]["name"]): each for each in objects}
        return planned

    def stands(self, planned: dict[str, str], *, only: bool = False) -> None:
        """Wait until what the node has is what the plan has shown; ``only``: of the lines that it has shown."""
        end = time.monotonic() + 60
        while not all(_shows(self.now().get(section, ""), text, only=only) for section, text in planned.items()):
            assert time.monotonic() < end, _difference(planned, self.now())
            time.sleep(0.5)

    def settled(self, name: str, replicas: int) -> None:
        """Wait until a Deployment is rolled out, nothing of it is going, and the node has heard of it."""
        cluster = self.cluster
        cluster.until(lambda: _rolled_out(cluster.admin.get(DEPLOYMENT, name, "default"), replicas), 120)
        cluster.until(lambda: all("deletionTimestamp" not in p["metadata"] for p in cluster.admin.list(POD).items), 60)
        cluster.until(lambda: len(cluster.endpoints("shop")) == replicas)


def _rolled_out(deployment: JsonObject, replicas: int) -> bool:
    status = deployment["status"]
    reported = [status.get(name, 0) for name in ("replicas", "readyReplicas", "updatedReplicas")]
    return reported == [replicas] * 3 and status.get("observedGeneration") == deployment["metadata"]["generation"]


def _shows(found: str, planned: str, *, only: bool) -> bool:
    if not only:
        return found == planned
    return set(planned.splitlines()) <= set(found.splitlines())


def _difference(planned: dict[str, str], found: dict[str, str]) -> str:
    pairs = [(planned[section].splitlines(), found.get(section, "").splitlines()) for section in planned]
    return "\n".join(line for pair in pairs for line in difflib.unified_diff(*pair, "planned", "found", lineterm=""))


def test_a_plan_shows_what_will_stand_there(cluster: Cluster) -> None:
    applied = Applied(cluster)
    pair = Authority(cluster.folder / "ca", "ca").issue("tls", HOST)
    cluster.kubectl("create", "secret", "tls", "tls", f"--cert={pair.cert}", f"--key={pair.key}")
    tls = {"tls": [{"hosts": [HOST], "secretName": "tls"}]}
    headless = service("each", "shop", clusterIP="None")
    planned = applied.change(
        deployment("shop", 2, "shop"), service("shop", "shop"), headless, ingress("shop", **tls), dns()
    )
    applied.settled("shop", 2)
    assert set(planned) == set(SECTIONS)
    assert "503" not in planned["ingress"]
    applied.stands(planned)
    assert applied.plan(objects=list(applied.known.values()))["steps"] == []

    # more pods, the oldest name of which stays
    planned = applied.change(deployment("shop", 3, "shop"))
    applied.settled("shop", 3)
    assert set(planned) == {"services", "dns"}
    applied.stands(planned, only=True)

    # another selector: nobody is behind it, and the path says so
    planned = applied.change(service("shop", "nobody"))
    cluster.until(lambda: not cluster.endpoints("shop"))
    assert "503" in planned["ingress"]
    applied.stands(planned, only=True)
    applied.change(service("shop", "shop"))
    cluster.until(lambda: len(cluster.endpoints("shop")) == 3)

    # another backend, and no certificate any more
    planned = applied.change(ingress("absent"))
    assert "does not exist" in planned["ingress"]
    applied.stands(planned, only=True)


def test_a_plan_shows_what_will_go(cluster: Cluster) -> None:
    applied = Applied(cluster)
    gone = service("gone", "nobody")
    applied.change(gone, service("stays", "nobody"))
    cluster.until(lambda: cluster.resolve("gone.default.svc.cluster.local")[0] == "NOERROR")
    before = applied.sections("before", deleted=[gone])
    planned = applied.change(deleted=(gone,))
    assert "gone" in before["dns"]
    assert "gone" not in planned["dns"]
    cluster.until(lambda: cluster.resolve("gone.default.svc.cluster.local")[0] == "NXDOMAIN")
    assert applied.plan(deleted=[gone])["steps"] == []
