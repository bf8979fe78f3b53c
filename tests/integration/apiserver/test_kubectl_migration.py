"""What kubectl applied client-side before comes to the same end by one server-side apply as by kubectl's four patches.

kubectl sends all of them to a server that does not hear who asks: with ``KUBECTL_COMMAND_HEADERS=false``.
"""

from __future__ import annotations

import json
import uuid
from typing import Any, NamedTuple

import pytest

from tests.integration.apiserver.conftest import Namespace
from tests.support.apiserver import ApiServerProcess

UNHEARD = {"KUBECTL_COMMAND_HEADERS": "false"}
FORCED = ("--force-conflicts",)
LABELS = {"app": "x"}


class Case(NamedTuple):
    """Manifests by turns: what is applied client-side, what another manager patches, what is applied server-side."""

    first: dict[str, Any]
    then: dict[str, Any]
    others: dict[str, Any] | None = None
    options: tuple[str, ...] = ()
    client_side: tuple[str, ...] = ()


def config_map(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": LABELS}, **fields}


def deployment(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": list(containers)}}
    declared = {"replicas": 0, "selector": {"matchLabels": LABELS}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": declared}


def container(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "minik8s/busybox:1", **fields}


def autoscaler(version: str, **spec: Any) -> dict[str, Any]:
    declared = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
        "maxReplicas": 3,
        **spec,
    }
    api_version = f"autoscaling/{version}"
    return {"apiVersion": api_version, "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"}, "spec": declared}


def service(*ports: dict[str, Any]) -> dict[str, Any]:
    spec = {"selector": LABELS, "ports": list(ports)}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec}


ENV = [{"name": name, "value": "1"} for name in ("A", "B")]
CASES = {
    "the same again": Case(config_map(data={"k": "v"}), config_map(data={"k": "v"})),
    "fields go, change and come": Case(config_map(data={"k": "v", "l": "v"}), config_map(data={"k": "w", "m": "w"})),
    "nothing is left": Case(
        config_map(data={"k": "v"}), {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    ),
    "another manager has a field": Case(
        config_map(data={"k": "v", "l": "v"}), config_map(data={"k": "v"}), {"data": {"l": "theirs", "o": "theirs"}}
    ),
    "another manager's field is taken": Case(
        config_map(data={"k": "v"}), config_map(data={"k": "w"}), {"data": {"k": "theirs"}}, FORCED
    ),
    "another manager's field is a conflict": Case(
        config_map(data={"k": "v"}), config_map(data={"k": "w"}), {"data": {"k": "theirs"}}
    ),
    "the applier has another name": Case(
        config_map(data={"k": "v", "l": "v"}), config_map(data={"k": "v"}), options=("--field-manager=ci", *FORCED)
    ),
    "the former applier had another name": Case(
        config_map(data={"k": "v", "l": "v"}), config_map(data={"k": "v"}), client_side=("--field-manager=old",)
    ),
    "items of lists go": Case(
        deployment(container("c", env=ENV), container("d")), deployment(container("c", env=ENV[1:]), replicas=1)
    ),
    "items of lists are named by two keys": Case(
        service({"name": "a", "port": 80}, {"name": "b", "port": 81}), service({"name": "b", "port": 81})
    ),
    "the former manifest was of another version": Case(
        autoscaler("v1", minReplicas=2, targetCPUUtilizationPercentage=50), autoscaler("v2")
    ),
}


def played(server: ApiServerProcess, case: Case, env: dict[str, str], *options: str) -> tuple[Any, int, str]:
    """Return the object in the end, how many patches kubectl sent, and what it said."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    assert server.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}}).code == 201
    namespace = Namespace(server, name)
    server.kubectl("apply", "-n", name, "-f", "-", *case.client_side, stdin=json.dumps(case.first))
    if case.others is not None:
        answer = server.request(
            "PATCH",
            f"{namespace.path('configmaps', 'a')}?fieldManager=other",
            json.dumps(case.others).encode(),
            headers={"Content-Type": "application/merge-patch+json"},
        )
        assert answer.code == 200
    argv = ("apply", "--server-side", "-v=6", "-n", name, "-f", "-", *case.options, *options)
    done = server.kubectl(*argv, stdin=json.dumps(case.then), env=env, check=False)
    get = ("get", "-n", name, "-f", "-", "-o", "json", "--show-managed-fields")
    shown = server.kubectl(*get, stdin=json.dumps(case.then)).stdout
    sent = [line for line in done.stderr.splitlines() if "PATCH https" in line]
    told = [line for line in done.stderr.splitlines() if "conflict with" in line and "https" not in line]
    said = [*done.stdout.splitlines(), *told]
    return (
        comparable(json.loads(shown.replace(name, "NAMESPACE"))["items"][0]),
        len(sent),
        "\n".join(said).replace(name, "NAMESPACE"),
    )


def comparable(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object without what is another's each time."""
    for field in ("uid", "resourceVersion", "creationTimestamp", "generation"):
        obj["metadata"].pop(field, None)
    for entry in obj["metadata"]["managedFields"]:
        del entry["time"]
    obj["metadata"]["managedFields"].sort(key=lambda entry: (entry["manager"], entry["operation"]))
    for field in ("clusterIP", "clusterIPs"):
        obj.get("spec", {}).pop(field, None)
    return obj


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_one_apply_ends_as_four_patches_do(server: ApiServerProcess, case: Case):
    by_many, many, said = played(server, case, UNHEARD)
    at_once, once, told = played(server, case, {})
    assert at_once == by_many
    assert told == said
    assert once == 1
    is_conflict = "is a conflict" in next(text for text, each in CASES.items() if each is case)
    assert (many > 1) != is_conflict, "kubectl sends no more than one patch to any server"


def test_a_dry_run_migrates_nothing(server: ApiServerProcess):
    case = CASES["fields go, change and come"]
    obj, sent, said = played(server, case, {}, "--dry-run=server")
    assert (sent, "serverside-applied (server dry run)" in said) == (1, True)
    assert obj["data"] == case.first["data"]
    assert [entry["manager"] for entry in obj["metadata"]["managedFields"]] == ["kubectl-client-side-apply"]
