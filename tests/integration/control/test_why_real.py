"""Faults made on a real API server, as the controllers and the scheduler show them: ``why`` names each cause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from minik8s_modules.api.kinds import (
    CONFIG_MAP,
    CRON_JOB,
    DEPLOYMENT,
    DNS,
    INGRESS,
    JOB,
    KINDS,
    LEASE,
    NAMESPACE,
    NODE,
    POD,
    POD_DISRUPTION_BUDGET,
    PRIORITY_CLASS,
    RESOURCE_QUOTA,
    ROLE_BINDING,
    SERVICE,
    Kind,
)
from minik8s_modules.cli.causes.checks import FINE, Verdict, judge
from minik8s_modules.cli.causes.surroundings import Around
from tests.integration.control.conftest import Cluster, pod
from tests.support.waiting import until

PATIENCE_S = 60.0
pytestmark = pytest.mark.usefixtures("daemon", "scheduler")
UNUSED = frozenset({PRIORITY_CLASS})
"""Kinds of which the server makes objects, and on which nothing acts yet."""
APP = {"name": "app", "image": "minik8s/busybox:1"}


def deployment(replicas: int = 1, **spec: Any) -> dict[str, Any]:
    """Return what declares a Deployment of app web."""
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [APP], **spec}}
    return {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}


def make(cluster: Cluster, kind: Kind, space: str, spec: Mapping[str, Any], name: str = "web", **more: Any) -> None:
    """Create an object of a namespace."""
    cluster.admin.create(kind, {"metadata": {"name": name, "namespace": space}, "spec": spec, **more})


def asked(cluster: Cluster, kind: Kind, space: str, name: str = "web") -> Verdict:
    """Return what ``why`` says of an object now."""
    return judge(cluster.admin.get(kind, name, space), Around(cluster.admin))


def expect(cluster: Cluster, kind: Kind, space: str, cause: str, lead: str, name: str = "web") -> None:
    """Wait until ``why`` tells a cause; then the next command is the one expected."""
    until(lambda: cause in asked(cluster, kind, space, name).cause, PATIENCE_S)
    assert asked(cluster, kind, space, name).faults[0].next == lead


def test_a_quota(cluster: Cluster) -> None:
    space = cluster.namespace()
    make(cluster, RESOURCE_QUOTA, space, {"hard": {"pods": "1"}}, "q")
    until(lambda: cluster.admin.get(RESOURCE_QUOTA, "q", space).get("status"), PATIENCE_S)
    make(cluster, DEPLOYMENT, space, deployment(3))
    expect(cluster, DEPLOYMENT, space, "exceeded quota: q", f"kubectl -n {space} describe resourcequota q")
    lead = f"kubectl -n {space} describe resourcequota q"
    expect(cluster, RESOURCE_QUOTA, space, "used up, so that new objects are refused: pods 1 of 1", lead, "q")


def test_an_account_that_is_missing(cluster: Cluster) -> None:
    space = cluster.namespace()
    make(cluster, DEPLOYMENT, space, deployment(serviceAccountName="nobody"))
    lead = f"kubectl -n {space} get events --field-selector=type=Warning"
    expect(cluster, DEPLOYMENT, space, 'serviceaccount "nobody" not found', lead)


@pytest.mark.parametrize(
    ("spec", "cause", "lead"),
    [
        ({"nodeSelector": {"disk": "none"}}, "node affinity/selector", "kubectl get nodes --show-labels"),
        (
            {"containers": [{**APP, "resources": {"requests": {"cpu": "999"}}}]},
            "Insufficient cpu",
            "kubectl describe nodes",
        ),
        ({"schedulerName": "mine"}, "it waits for a scheduler named mine", "kubectl -n {space} edit pod/web"),
    ],
    ids=["affinity", "resources", "scheduler"],
)
def test_a_pod_that_fits_nowhere(cluster: Cluster, spec: dict[str, Any], cause: str, lead: str) -> None:
    cluster.node()
    space = cluster.namespace()
    cluster.admin.create(POD, pod("web", space, **spec))
    expect(cluster, POD, space, cause, lead.format(space=space))


def test_a_taint_and_a_port_of_the_node(cluster: Cluster) -> None:
    space, node = cluster.namespace(), cluster.node()
    ports = {
        "containers": [{**APP, "ports": [{"containerPort": 80, "hostPort": 8099}]}],
        "nodeSelector": {"test": node},
    }
    cluster.admin.create(POD, pod("first", space, **ports))
    until(lambda: cluster.admin.get(POD, "first", space)["spec"].get("nodeName"), PATIENCE_S)
    cluster.admin.create(POD, pod("web", space, **ports))
    expect(cluster, POD, space, "didn't have free ports", f"kubectl -n {space} get pod first -o wide")
    cluster.admin.patch(NODE, node, "", {"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}})
    cluster.admin.create(POD, pod("other", space, nodeSelector={"test": node}))
    lead = "kubectl get nodes -o custom-columns=NAME:.metadata.name,TAINTS:.spec.taints"
    expect(cluster, POD, space, "untolerated taint", lead, "other")


def test_a_budget(cluster: Cluster) -> None:
    space, node = cluster.namespace(), cluster.node()
    make(cluster, DEPLOYMENT, space, deployment(2, nodeSelector={"test": node}))
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    make(cluster, POD_DISRUPTION_BUDGET, space, budget)
    lead = f"kubectl -n {space} get pods -l app=web -o wide"
    expect(cluster, POD_DISRUPTION_BUDGET, space, "it allows no eviction: healthy pods: 0, required: 1", lead)


def test_a_finalizer_of_an_object_and_of_its_namespace(cluster: Cluster) -> None:
    space = cluster.namespace()
    held = {"name": "web", "namespace": space, "finalizers": ["example.com/held"]}
    cluster.admin.create(CONFIG_MAP, {"metadata": held})
    cluster.admin.delete(NAMESPACE, space)
    cause = "NamespaceFinalizersRemaining: Some content in the namespace has finalizers remaining: example.com/held"
    lead = f"kubectl -n {space} get all,configmaps,secrets,persistentvolumeclaims"
    expect(cluster, NAMESPACE, "", cause, lead, space)
    lead = f"""kubectl -n {space} patch configmap/web --type=merge -p '{{"metadata":{{"finalizers":null}}}}'"""
    expect(
        cluster, CONFIG_MAP, space, "is kept by its finalizers until the controllers that set them remove them", lead
    )
    cluster.admin.patch(CONFIG_MAP, "web", space, {"metadata": {"finalizers": None}})


def test_a_service_by_selector_and_by_target_port(cluster: Cluster) -> None:
    space, node = cluster.namespace(), cluster.node()
    make(cluster, SERVICE, space, {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]})
    expect(cluster, SERVICE, space, "has the labels app=web", f"kubectl -n {space} get pods --show-labels")
    labels = {"name": "a", "namespace": space, "labels": {"app": "web"}}
    cluster.admin.create(POD, {"metadata": labels, "spec": {"containers": [APP], "nodeName": node}})
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"phase": "Running", "podIP": "10.244.9.9", "podIPs": [{"ip": "10.244.9.9"}], "conditions": conditions}
    cluster.admin.patch(POD, "a", space, {"status": status}, subresource="status")
    lead = f"kubectl -n {space} edit service/web"
    expect(cluster, SERVICE, space, "pod a: no container of it has a port named http", lead)
    ports = [{"port": 80, "targetPort": 8080}]
    cluster.admin.patch(SERVICE, "web", space, {"spec": {"ports": ports}})
    until(lambda: asked(cluster, SERVICE, space).otherwise == FINE and not asked(cluster, SERVICE, space).faults)


def test_hosts_without_paths_and_classes_that_do_not_exist(cluster: Cluster) -> None:
    space = cluster.namespace()
    make(cluster, DNS, space, {"rules": [{"host": f"{space}.test", "paths": []}]})
    expect(cluster, DNS, space, "has no paths: nginx answers 404", f"kubectl -n {space} edit dns/web")
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    rules = [{"host": f"i.{space}.test", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}]
    make(cluster, INGRESS, space, {"ingressClassName": "nobodys", "rules": rules})
    lead = f"kubectl -n {space} edit ingress/web"
    expect(cluster, INGRESS, space, "IngressClassNotFound: there is no IngressClass nobodys", lead)


def test_jobs_that_fail_and_that_are_suspended(cluster: Cluster) -> None:
    space = cluster.namespace()
    template = {"spec": {"containers": [APP], "restartPolicy": "Never"}}
    make(cluster, JOB, space, {"activeDeadlineSeconds": 1, "template": template})
    expect(cluster, JOB, space, "DeadlineExceeded: ", f"kubectl -n {space} logs job/web --tail=20")
    cron = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": {"template": template}}}
    make(cluster, CRON_JOB, space, cron)
    lead = f"""kubectl -n {space} patch cronjob/web --type=merge -p '{{"spec":{{"suspend":false}}}}'"""
    expect(cluster, CRON_JOB, space, "it is suspended", lead)


def test_rights_that_lead_nowhere(cluster: Cluster) -> None:
    space = cluster.namespace()
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    subjects = [{"kind": "ServiceAccount", "name": "robot", "namespace": space}]
    cluster.admin.create(
        ROLE_BINDING, {"metadata": {"name": "web", "namespace": space}, "roleRef": role, "subjects": subjects}
    )
    cause = f"it gives nothing: there is no Role reader; there is no ServiceAccount robot in namespace {space}"
    expect(cluster, ROLE_BINDING, space, cause, f"kubectl -n {space} get roles")


def test_a_node_that_nobody_has_heard_of_since_it_was_made(cluster: Cluster) -> None:
    node = cluster.node(unschedulable=True)
    verdict = asked(cluster, NODE, "", node)
    assert verdict.cause == "it is cordoned: it takes no new pods"
    assert verdict.faults[0].next == f"kubectl uncordon {node}"


def test_nothing_that_a_fresh_cluster_makes_for_itself_is_at_fault(cluster: Cluster) -> None:
    """No false alarm: what the start of the API server and of the controllers made is in order."""
    until(lambda: cluster.admin.list(LEASE, "kube-system").items, PATIENCE_S)
    around = Around(cluster.admin, "")
    at_fault = {}
    for kind in KINDS.all():
        if "list" in kind.verbs and kind.stored and kind.storage is None and kind not in UNUSED:
            for one in cluster.admin.list(kind).items:
                own = f"{one['metadata'].get('namespace', '')} {one['metadata']['name']}"
                if not own.startswith("t-") and "n-" not in own and (cause := judge(one, around).cause):
                    at_fault[f"{kind.plural} {own}"] = cause
    assert at_fault == {}
