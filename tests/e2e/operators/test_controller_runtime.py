"""controller-runtime's own examples: an operator with a kind of its own, and one on built-in kinds with webhooks.

Both take the port 8080 for their metrics, the second 9443 for its webhooks: upstream's examples have no options.
"""

from __future__ import annotations

import base64
import json
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import POD, REPLICA_SET
from minik8s_modules.api.objects import JsonObject
from tests.e2e.operators.conftest import built, running
from tests.integration.control.conftest import Cluster, pod
from tests.support.apiserver import own_server
from tests.support.pki import Authority
from tests.support.waiting import until as _until

MARK = "example-mutating-admission-webhook"
# kind, webhook, path, operations: the first would put right what the second refuses, so it sees new pods alone
HOOKS = [
    ("MutatingWebhookConfiguration", "mpod.kb.io", "/mutate--v1-pod", ["CREATE"]),
    ("ValidatingWebhookConfiguration", "vpod.kb.io", "/validate--v1-pod", ["CREATE", "UPDATE"]),
]
until = partial(_until, timeout_s=60)
DATE = {"type": "string", "format": "date-time"}
TEMPLATE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
# What controller-gen makes of examples/crd/pkg/resource.go, but for the template's own fields.
CHAOS_PODS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "chaospods.chaosapps.metamagical.io"},
    "spec": {
        "group": "chaosapps.metamagical.io",
        "scope": "Namespaced",
        "names": {"plural": "chaospods", "singular": "chaospod", "kind": "ChaosPod", "listKind": "ChaosPodList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "additionalPrinterColumns": [
                    {"name": "next stop", "type": "string", "format": "date", "jsonPath": ".spec.nextStop"},
                    {"name": "last run", "type": "string", "format": "date", "jsonPath": ".status.lastRun"},
                ],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "apiVersion": {"type": "string"},
                            "kind": {"type": "string"},
                            "metadata": {"type": "object"},
                            "spec": {
                                "type": "object",
                                "required": ["template"],
                                "properties": {"template": TEMPLATE, "nextStop": DATE},
                            },
                            "status": {"type": "object", "properties": {"lastRun": DATE}},
                        },
                    }
                },
            }
        ],
    },
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane without nodes."""
    folder = tmp_path_factory.mktemp("cluster")
    with own_server(folder) as server:
        made = Cluster(folder, server)
        controllers = made.daemon("controllers").start()
        yield made
        controllers.stop()
        made.admin.close()


def chaos(space: str) -> JsonObject:
    spec = {"template": pod("unused", space)}
    return {
        "apiVersion": "chaosapps.metamagical.io/v1",
        "kind": "ChaosPod",
        "metadata": {"name": "storm", "namespace": space},
        "spec": spec,
    }


def test_an_operator_with_a_kind_of_its_own(cluster: Cluster, tmp_path: Path):
    """Makes a pod per ChaosPod, replaces it after ten or twenty seconds; the pod goes with its owner."""
    server, space = cluster.server, cluster.namespace()
    server.kubectl("create", "-f", "-", stdin=json.dumps(CHAOS_PODS))
    server.kubectl("wait", "--for=condition=Established", "crd/chaospods.chaosapps.metamagical.io")

    def made() -> JsonObject:
        """The pod's metadata, {} while there is none: the operator may replace it at once."""
        found = [one["metadata"] for one in cluster.admin.list(POD, space).items]
        return next((one for one in found if one["name"] == "storm"), {})

    with running(built("runtime-crd"), tmp_path, server.kubeconfig) as log:
        server.kubectl("create", "-f", "-", stdin=json.dumps(chaos(space)))
        first = until(made)
        owner = first["ownerReferences"][0]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("ChaosPod", "storm", True)
        until(lambda: "nextStop" in server.kubectl("get", "chaospod", "storm", "-n", space, "-o", "json").stdout)
        columns = server.kubectl("get", "chaospods", "-n", space).stdout.split("\n")[0].split()
        assert columns == ["NAME", "NEXT", "STOP", "LAST", "RUN"]
        until(lambda: made().get("uid", first["uid"]) != first["uid"])
        server.kubectl("delete", "chaospod", "storm", "-n", space)
        until(lambda: not made())
        assert "unable to update" not in log.read_text()


def configuration(kind: str, name: str, path: str, operations: list[str], ca: Path, space: str) -> JsonObject:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": operations}
    bundle = base64.b64encode(ca.read_bytes()).decode()
    hook = {
        "name": name,
        "rules": [rule],
        "clientConfig": {"url": f"https://127.0.0.1:9443{path}", "caBundle": bundle},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": space}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": [hook],
    }


def annotated(cluster: Cluster, space: str) -> bool:
    """Whether a new pod has got the webhook's annotation: a configuration may take a moment to be heard of."""
    made = cluster.admin.create(POD, {**pod(f"p-{time.monotonic_ns()}", space)})
    return bool(made["metadata"].get("annotations", {}).get(MARK) == "foo")


def test_an_operator_on_built_in_kinds_with_webhooks(cluster: Cluster, tmp_path: Path):
    server, space = cluster.server, cluster.namespace()
    hooks = Authority(tmp_path / "pki", "hooks")
    serving = hooks.issue("serving", "builtins")
    folder = tmp_path / "k8s-webhook-server" / "serving-certs"
    folder.mkdir(parents=True)
    shutil.copy(serving.cert, folder / "tls.crt")
    shutil.copy(serving.key, folder / "tls.key")

    def sets() -> list[JsonObject]:
        return cluster.admin.list(REPLICA_SET, space).items

    with running(built("runtime-builtins"), tmp_path, server.kubeconfig) as log:
        until(lambda: "Serving webhook server" in log.read_text())
        configurations = [configuration(*each, hooks.ca, space) for each in HOOKS]
        server.kubectl("create", "-f", "-", stdin="\n".join(map(json.dumps, configurations)))
        until(lambda: annotated(cluster, space))
        cluster.admin.create(POD, pod("first", space))
        with pytest.raises(StatusError, match=f'"vpod.kb.io" denied the request: annotation {MARK} did not have value'):
            cluster.admin.patch(POD, "first", space, {"metadata": {"annotations": {MARK: "bar"}}})
        server.kubectl("create", "deployment", "web", "--image=x", "--replicas=2", "-n", space)
        until(lambda: [one["metadata"]["labels"].get("hello") for one in sets()] == ["world"])
        pods = until(lambda: [one for one in cluster.admin.list(POD, space).items if "web" in one["metadata"]["name"]])
        assert {one["metadata"]["annotations"][MARK] for one in pods} == {"foo"}
        # the controllers here write the same ReplicaSet: one of two is told so, and tries again
        errors = [line for line in log.read_text().splitlines() if "Reconciler error" in line]
        assert all("the object has been modified" in line for line in errors), errors
