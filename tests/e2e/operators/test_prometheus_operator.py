"""prometheus-operator as its own bundle installs it, running Debian's Prometheus: monitors, rules, reloads, scale."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from tests.e2e.operators.conftest import built
from tests.support.clients import prometheus
from tests.support.clusters.installed import IMAGE, Installed
from tests.support.docker.program_image import program_image
from tests.support.gotools import MONITORING, TOGETHER, module_path

VERSION = TOGETHER[MONITORING]
BUNDLE = "bundle.yaml"
PROGRAMS = {"prometheus-operator": "/bin/operator", "prometheus-config-reloader": "/bin/prometheus-config-reloader"}
SERVE = 'mkdir -p /tmp/w; echo "things 42" >/tmp/w/metrics; exec httpd -f -p 8080 -h /tmp/w'
READS = {"apiGroups": [""], "resources": ["services", "endpoints", "pods"], "verbs": ["get", "list", "watch"]}
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def release() -> str:
    """The release of Prometheus: ``v2.53.3``."""
    done = subprocess.run([str(prometheus()), "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"version (\d+\.\d+\.\d+)", done.stdout + done.stderr)
    assert found, done
    return f"v{found[1]}"


@pytest.fixture(scope="module")
def operator(cluster: Installed, release: str) -> Iterator[Installed]:
    """The cluster with the operator, installed as its documentation says."""
    bundle = str(module_path(MONITORING, VERSION) / BUNDLE)
    registry = "quay.io/prometheus-operator"
    with ExitStack() as images:
        for name, at in PROGRAMS.items():
            images.enter_context(program_image(f"{registry}/{name}:{VERSION}", built(name), at))
        images.enter_context(program_image(f"quay.io/prometheus/prometheus:{release}", prometheus(), "/bin/prometheus"))
        try:
            cluster.kubectl("create", "-f", bundle)
            cluster.kubectl("wait", "--for=condition=Available", "deployment/prometheus-operator", "--timeout=60s")
            yield cluster
        finally:
            cluster.kubectl("delete", "-f", bundle, "--ignore-not-found", "--timeout=60s")


@pytest.fixture
def namespace(operator: Installed) -> Iterator[str]:
    name = f"monitoring-{uuid.uuid4().hex[:8]}"
    operator.kubectl("create", "namespace", name)
    yield name
    operator.drop_namespace(name)


def manifests(space: str, release: str) -> list[JsonObject]:
    labels = {"app": "shop"}
    app = {"name": "app", "image": IMAGE, "command": ["sh", "-c", SERVE], "ports": [{"containerPort": 8080}]}
    pods = {"metadata": {"labels": labels}, "spec": {"containers": [app], "terminationGracePeriodSeconds": 0}}
    bound = {"kind": "ServiceAccount", "name": "prometheus", "namespace": space}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "prometheus"}
    port = {"name": "web", "port": 80, "targetPort": 8080}
    return [
        kind("v1", "ServiceAccount", "prometheus"),
        kind("rbac.authorization.k8s.io/v1", "Role", "prometheus", rules=[READS]),
        kind("rbac.authorization.k8s.io/v1", "RoleBinding", "prometheus", subjects=[bound], roleRef=reference),
        kind("apps/v1", "Deployment", "shop", spec={"selector": {"matchLabels": labels}, "template": pods}),
        kind("v1", "Service", "shop", labels, spec={"selector": labels, "ports": [port]}),
        monitoring("ServiceMonitor", "shop", selector={"matchLabels": labels}, endpoints=[{"port": "web"}]),
        monitoring(
            "Prometheus",
            "p",
            version=release,
            replicas=1,
            serviceAccountName="prometheus",
            serviceMonitorSelector={},
            ruleSelector={},
            scrapeInterval="1s",
            evaluationInterval="1s",
            externalLabels={"place": "here"},
        ),
    ]


def kind(version: str, name: str, object_name: str, labels: dict[str, str] | None = None, **fields: Any) -> JsonObject:
    metadata = {"name": object_name, "labels": labels or {}}
    return {"apiVersion": version, "kind": name, "metadata": metadata, **fields}


def monitoring(name: str, object_name: str, **spec: Any) -> JsonObject:
    return kind("monitoring.coreos.com/v1", name, object_name, spec=spec)


def test_a_prometheus_and_a_monitor_scrape_pods(operator: Installed, namespace: str, release: str):
    def apply(*objects: JsonObject) -> None:
        stdin = "\n".join(map(json.dumps, objects))
        operator.kubectl("apply", "--server-side", "-n", namespace, "-f", "-", stdin=stdin)

    def ask(path: str) -> Any:
        """What Prometheus' API answers, by way of the API server."""
        at = f"/api/v1/namespaces/{namespace}/pods/prometheus-p-0:9090/proxy/api/v1/{path}"
        done = operator.kubectl("get", "--raw", at, check=False).stdout
        return json.loads(done)["data"] if done.startswith("{") else None

    def value(expression: str) -> str:
        found = ask(f"query?query={urllib.parse.quote(expression)}")
        return str(found["result"][0]["value"][1]) if found and found["result"] else ""

    def wait(*arguments: str) -> None:
        operator.kubectl("wait", "-n", namespace, "--timeout=80s", *arguments)

    apply(*manifests(namespace, release))
    operator.until(lambda: value("sum(things)") == "42", PATIENCE_S)
    wait("--for=condition=Available", "prometheus/p")
    wait("--for=condition=Reconciled", "prometheus/p")
    columns = operator.kubectl("get", "prometheus", "p", "-n", namespace).stdout.split("\n")
    assert columns[0].split() == ["NAME", "VERSION", "DESIRED", "READY", "RECONCILED", "AVAILABLE", "AGE"]
    assert columns[1].split()[:6] == ["p", release, "1", "1", "True", "True"]

    operator.kubectl("scale", "-n", namespace, "deployment/shop", "--replicas=3")
    operator.until(lambda: value("sum(things)") == "126", PATIENCE_S)

    rule = {"record": "twice", "expr": "2 * sum(things)"}
    apply(monitoring("PrometheusRule", "more", groups=[{"name": "g", "rules": [rule]}]))
    operator.until(lambda: value("twice") == "252", PATIENCE_S)

    change = json.dumps({"spec": {"externalLabels": {"place": "there"}}})
    operator.kubectl("patch", "prometheus", "p", "-n", namespace, "--type=merge", "-p", change)
    operator.until(lambda: "place: there" in (ask("status/config") or {}).get("yaml", ""), PATIENCE_S)

    operator.kubectl("scale", "-n", namespace, "prometheus/p", "--replicas=2")  # by its definition: shards
    wait("--for=jsonpath={.status.availableReplicas}=2", "prometheus/p")
    wait("--for=jsonpath={.status.readyReplicas}=1", "statefulset/prometheus-p-shard-1")
    operator.kubectl("delete", "prometheus", "p", "-n", namespace)
    operator.until(lambda: not [name for name in operator.pods(namespace) if name.startswith("prometheus-p")])


def test_an_invalid_monitor_is_refused_by_its_schema(operator: Installed, namespace: str):
    wrong = monitoring("ServiceMonitor", "w", selector={}, endpoints=[{"port": "web", "interval": "soon"}])
    done = operator.kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(wrong), check=False)
    assert "spec.endpoints[0].interval in body should match" in done.stderr
