"""What a Gateway runs as, changed by hand with kubectl: the controllers put it back, and `why` and `drift` tell of it.

Over a real API server, whose defaults and allocated fields are not to be taken for changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import DEPLOYMENT, EVENT, SERVICE, Kind
from minik8s_modules.api.network.gateway_api import CONTROLLER, GATEWAY_KINDS, GROUP, name_of_parts
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.plans.drifting import edited
from minik8s_modules.controllers.network.gateways import MANAGER, PARTS
from tests.integration.control.conftest import Cluster, Daemon
from tests.support.gateway_api import definitions
from tests.support.waiting import until
from tests.support.webhook import WebhookServer, patch

NAME, LONG_S = name_of_parts("edge"), 60.0
SPOILED = {
    DEPLOYMENT: ("set", "image", f"deployment/{NAME}", "envoy=minik8s/busybox:1"),
    SERVICE: ("patch", f"service/{NAME}", "--type=json",
              '-p=[{"op": "replace", "path": "/spec/ports/0/port", "value": 81}]'),
}  # fmt: skip


class Edge:
    """A Gateway of a namespace of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.namespace = cluster, cluster.namespace()
        listeners = [{"name": "http", "port": 80, "protocol": "HTTP"}]
        made = [
            {"kind": "GatewayClass", "metadata": {"name": "ours"}, "spec": {"controllerName": CONTROLLER}},
            {"kind": "Gateway", "metadata": {"name": "edge", "namespace": self.namespace},
             "spec": {"gatewayClassName": "ours", "listeners": listeners}},
        ]  # fmt: skip
        self.apply(*definitions())
        cluster.server.kubectl("wait", "--for=condition=Established", "crd", "--all")
        self.apply(*({"apiVersion": f"{GROUP}/v1", **each} for each in made))

    def apply(self, *found: JsonObject) -> None:
        """Apply objects."""
        self.cluster.server.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(found))

    def kubectl(self, *words: str) -> None:
        """Run kubectl in the namespace."""
        self.cluster.server.kubectl("-n", self.namespace, *words)

    def part(self, kind: Kind) -> JsonObject:
        """Return a part as it stands."""
        return self.cluster.admin.get(kind, NAME, self.namespace)

    def parts(self) -> set[str]:
        """Return the kinds of the parts that there are."""
        admin = self.cluster.admin
        found = [(kind, each) for kind in PARTS for each in admin.list(kind, self.namespace).items]
        return {kind.kind for kind, each in found if objects.name(each) == NAME}

    def ports(self) -> set[int]:
        """Return the ports of its Service."""
        return {each["port"] for each in self.part(SERVICE)["spec"]["ports"]}

    def versions(self) -> list[str]:
        """Return the generations of the parts: specs that are written again have new ones."""
        return [objects.resource_version(self.part(kind)) for kind in PARTS]

    def told(self) -> set[str]:
        """Return the kinds of the parts that Events call reverted."""
        events = self.cluster.admin.list(EVENT, self.namespace).items
        return {each["message"].split()[0] for each in events if each["reason"] == "Reverted"}

    def drifted(self) -> list[str]:
        """Return what `drift` tells of it."""
        return [each for each in edited(self.cluster.admin) if f"Gateway {self.namespace}/edge" in each]


@contextmanager
def controllers(cluster: Cluster) -> Iterator[Daemon]:
    daemon = cluster.daemon("controllers").start()
    try:
        yield daemon
    finally:
        daemon.stop()


@pytest.fixture
def edge(cluster: Cluster) -> Edge:
    return Edge(cluster)


def stands(edge: Edge) -> bool:
    """Return whether the image and the port are as the Gateway has them."""
    image = edge.part(DEPLOYMENT)["spec"]["template"]["spec"]["containers"][0]["image"]
    ports = [each["port"] for each in edge.part(SERVICE)["spec"]["ports"]]
    return (image, ports) == ("minik8s/envoy:1", [80])


def test_what_is_changed_by_hand_comes_back_and_what_others_own_stays(edge: Edge):
    with controllers(edge.cluster):
        until(lambda: edge.parts() == {kind.kind for kind in PARTS}, LONG_S)
        assert edge.drifted() == []  # what the server completes is no change
        for words in SPOILED.values():
            edge.kubectl(*words)
        until(lambda: stands(edge), LONG_S)
        until(lambda: edge.told() == {"Deployment", "Service"}, LONG_S)

        # others' fields: a scale, an annotation that restarts, limits
        edge.kubectl("scale", f"deployment/{NAME}", "--replicas=3")
        edge.kubectl("rollout", "restart", f"deployment/{NAME}")
        edge.kubectl("set", "resources", f"deployment/{NAME}", "--limits=cpu=2")
        edge.kubectl("set", "image", f"deployment/{NAME}", "envoy=minik8s/busybox:1")
        until(lambda: stands(edge), LONG_S)
        spec = edge.part(DEPLOYMENT)["spec"]
        assert spec["replicas"] == 3
        assert "kubectl.kubernetes.io/restartedAt" in spec["template"]["metadata"]["annotations"]
        assert spec["template"]["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "2"}

        # a port that was edited and came back goes with its listener; the one that somebody added stays
        extra = {"name": "mine", "port": 9, "targetPort": 9}
        added = json.dumps([{"op": "add", "path": "/spec/ports/-", "value": extra}])
        edge.kubectl("patch", f"service/{NAME}", "--type=json", f"-p={added}")
        edge.kubectl(*SPOILED[SERVICE])
        until(lambda: edge.ports() == {9, 80}, LONG_S)
        moved = json.dumps([{"op": "replace", "path": "/spec/listeners/0/port", "value": 8080}])
        edge.kubectl("patch", "gateway/edge", "--type=json", f"-p={moved}")
        until(lambda: edge.ports() == {9, 8080}, LONG_S)
    assert edge.drifted() == []


def test_while_no_controller_runs_drift_and_why_name_the_fields(edge: Edge):
    with controllers(edge.cluster):
        until(lambda: edge.parts() == {kind.kind for kind in PARTS}, LONG_S)
    for words in SPOILED.values():
        edge.kubectl(*words)
    deployment, service = edge.drifted()
    assert "spec.template.spec.containers[envoy].image" in deployment
    assert "spec.ports[80/TCP]" in service
    gateway = edge.cluster.admin.get(GATEWAY_KINDS.gateways, "edge", edge.namespace)
    assert objects.name(gateway) == "edge"
    with controllers(edge.cluster):
        until(lambda: stands(edge), LONG_S)
    assert edge.drifted() == []


def test_what_a_webhook_puts_into_every_write_stays_without_an_event_and_without_a_loop(edge: Edge, tmp_path: Path):
    image = {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "mirror.example/envoy:1"}
    with WebhookServer(tmp_path) as hook, controllers(edge.cluster), mirroring(edge, hook):
        until(lambda: edge.parts() == {kind.kind for kind in PARTS}, LONG_S)
        hook.answers["/mirror"] = lambda _request: patch(image)
        edge.kubectl("label", f"deployment/{NAME}", "team=x")

        def tried() -> bool:  # to set it back
            asked = [each["request"] for each in hook.reviews if each["request"]["operation"] == "UPDATE"]
            return any(each["options"].get("fieldManager") == MANAGER for each in asked)

        until(tried, LONG_S)
        before = objects.generation(edge.part(DEPLOYMENT))
        edge.kubectl(*SPOILED[SERVICE])  # all parts are looked at again
        until(lambda: edge.ports() == {80}, LONG_S)
        until(lambda: edge.told() == {"Service"}, LONG_S)
        assert objects.generation(edge.part(DEPLOYMENT)) == before
        assert edge.drifted()


@contextmanager
def mirroring(edge: Edge, hook: WebhookServer) -> Iterator[None]:
    """Have a webhook answer for the Deployments of the namespace; it allows all until it is told otherwise."""
    hook.answers["/mirror"] = lambda _request: {"allowed": True}
    webhook = {
        "name": "mirror.example.com",
        "clientConfig": {"url": hook.url("/mirror"), "caBundle": hook.ca_bundle},
        "rules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["deployments"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": edge.namespace}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    kind, meta = "MutatingWebhookConfiguration", {"name": "mirror"}
    edge.apply({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": meta, "webhooks": [webhook]})
    try:
        yield
    finally:
        edge.kubectl("delete", kind, "mirror")
