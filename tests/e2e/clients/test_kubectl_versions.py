"""The same journey with kubectl 1.32 (Debian trixie) and sid's (1.36): they ask for different things on the way.

What one version shows is enough stands in ``tests/e2e/test_kubectl_journeys.py``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.apiserver import ApiServerProcess
from tests.support.clients import kubectl_sid
from tests.support.kubectl import kubectl_path

IMAGE = "minik8s/busybox:1"
PROGRAMS = {"trixie": kubectl_path, "sid": kubectl_sid}


class Kubectl:
    """One version of kubectl in a namespace of its own."""

    def __init__(self, program: Path, server: ApiServerProcess, namespace: str, home: Path) -> None:
        self.namespace = namespace
        self.home = home
        self._argv = [str(program), f"--kubeconfig={server.kubeconfig}", f"--cache-dir={home}", "-n", namespace]

    def run(
        self, *arguments: str, stdin: str = "", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, however it ends."""
        argv, environment = [*self._argv, *arguments], {**os.environ, "HOME": str(self.home), **(env or {})}
        return subprocess.run(
            argv, input=stdin, capture_output=True, text=True, timeout=60, check=False, env=environment
        )

    def __call__(self, *arguments: str, stdin: str = "", env: dict[str, str] | None = None) -> str:
        """Run a command that must succeed and return what it prints."""
        done = self.run(*arguments, stdin=stdin, env=env)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def fails(self, *arguments: str, stdin: str = "") -> str:
        """Run a command that must fail and return its words."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode != 0, (arguments, done.stdout)
        return done.stderr

    def value(self, path: str, *arguments: str) -> str:
        """Return what a JSONPath finds."""
        return self("get", *arguments, "-o", f"jsonpath={{{path}}}")

    def file(self, name: str, document: object) -> str:
        """Write a document to a file and return its path."""
        path = self.home / name
        path.write_text(json.dumps(document), encoding="utf-8")
        return str(path)


@pytest.fixture(params=sorted(PROGRAMS))
def kubectl(request: pytest.FixtureRequest, server: ApiServerProcess, namespace: str, tmp_path: Path) -> Kubectl:
    return Kubectl(PROGRAMS[request.param](), server, namespace, tmp_path)


def config_map(name: str, **data: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"set": "a"}}, "data": data}


CREATED: Sequence[tuple[str, str, str]] = (
    ("configmap x --from-literal=a=b", ".data.a", "b"),
    ("secret generic x --from-literal=a=b", ".data.a", "Yg=="),
    ("secret docker-registry y --docker-server=s --docker-username=u --docker-password=p", ".type",
     "kubernetes.io/dockerconfigjson"),
    (f"deployment x --image={IMAGE} --replicas=0", ".spec.replicas", "0"),
    (f"job x --image={IMAGE} -- true", ".spec.template.spec.containers[0].command[0]", "true"),
    (f"cronjob x --image={IMAGE} --schedule=@daily -- true", ".spec.schedule", "@daily"),
    ("serviceaccount x", ".metadata.name", "x"),
    ("role x --verb=get --resource=pods,deployments.apps", ".rules[1].apiGroups[0]", "apps"),
    ("rolebinding x --role=x --serviceaccount=default:x", ".subjects[0].name", "x"),
    ("quota x --hard=pods=2", ".spec.hard.pods", "2"),
    ("poddisruptionbudget x --selector=app=x --min-available=1", ".spec.minAvailable", "1"),
    ("ingress x --rule=HOST/=x:80", ".spec.rules[0].host", "HOST"),
    ("service clusterip x --tcp=80:8080", ".spec.ports[0].targetPort", "8080"),
    ("service nodeport y --tcp=80", ".spec.type", "NodePort"),
    ("service externalname z --external-name=example.com", ".spec.externalName", "example.com"),
)  # fmt: skip


def test_everything_that_create_makes(kubectl: Kubectl):
    made: list[str] = []
    for command, path, value in CREATED:
        host = f"{kubectl.namespace}.example"  # nobody else may have it
        words = command.replace("HOST", host).split()
        done = kubectl("create", *words)
        assert re.fullmatch(r"\S+/\w created\n", done), done
        made.append(done.split()[0])
        assert kubectl.value(path, made[-1]) == value.replace("HOST", host), command
    assert kubectl("describe", *made).count("Name:  ") >= len(made)
    assert kubectl("create", "job", "again", "--from=cronjob/x") == "job.batch/again created\n"
    assert kubectl("create", "token", "x", "--duration=1h").count(".") == 2


def test_what_create_makes_of_the_clusters_kinds(kubectl: Kubectl):
    name = kubectl.namespace
    try:
        kubectl("create", "clusterrole", name, "--verb=get", "--non-resource-url=/metrics")
        kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", "--user=u")
        kubectl("create", "priorityclass", name, "--value=10", "--description=d")
        assert kubectl.value(".roleRef.name", "clusterrolebinding", name) == name
        assert kubectl.value(".value", "priorityclass", name) == "10"
    finally:
        kubectl("delete", "clusterrole,clusterrolebinding,priorityclass", name)


def test_a_deployment_is_set_scaled_rolled_and_exposed(kubectl: Kubectl):
    kubectl("create", "deployment", "web", f"--image={IMAGE}", "--port=80")
    kubectl("set", "image", "deployment/web", "busybox=minik8s/busybox:2")
    kubectl("set", "env", "deployment/web", "A=B")
    kubectl("set", "resources", "deployment/web", "--limits=cpu=200m")
    container = json.loads(kubectl("get", "deployment", "web", "-o", "json"))["spec"]["template"]["spec"]["containers"]
    assert (container[0]["image"], container[0]["env"]) == ("minik8s/busybox:2", [{"name": "A", "value": "B"}])
    assert container[0]["resources"]["limits"] == {"cpu": "200m"}
    assert kubectl("scale", "deployment", "web", "--replicas=3") == "deployment.apps/web scaled\n"
    assert kubectl("rollout", "pause", "deployment", "web") == "deployment.apps/web paused\n"
    assert kubectl("rollout", "resume", "deployment", "web") == "deployment.apps/web resumed\n"
    assert kubectl("rollout", "restart", "deployment", "web") == "deployment.apps/web restarted\n"
    assert "No rollout history found" in kubectl("rollout", "history", "deployment", "web")
    assert "timed out" in kubectl.fails("rollout", "status", "deployment", "web", "--timeout=1s")
    assert kubectl("expose", "deployment", "web", "--port=80") == "service/web exposed\n"
    assert kubectl.value(".spec.selector.app", "service", "web") == "web"
    kubectl("autoscale", "deployment", "web", "--max=5", "--cpu-percent=80")
    assert kubectl.value(".spec.maxReplicas", "hpa", "web") == "5"
    assert {"deployment.apps/web", "service/web"} <= set(kubectl("get", "all", "-o", "name").split())


def test_a_scale_is_shown_and_patched_and_a_status_edited(kubectl: Kubectl):
    kubectl("create", "deployment", "web", f"--image={IMAGE}")
    scale = ("deployment", "web", "--subresource=scale")
    kubectl("patch", *scale, "--type=merge", "-p", '{"spec":{"replicas":4}}')
    assert kubectl.value(".spec.replicas", *scale) == "4"
    kubectl("patch", *scale, "--type=strategic", "-p", '{"kind":"Deployment","spec":{"replicas":5}}')
    assert kubectl.value(".spec.replicas", *scale) == "5"
    edited = {"KUBE_EDITOR": "sed -i 's/^status:.*/status: {observedGeneration: 7}/'"}
    kubectl("edit", "deployment", "web", "--subresource=status", env=edited)
    assert kubectl.value(".status.observedGeneration", "deployment", "web") == "7"


def test_a_pod_is_run_labelled_patched_and_edited(kubectl: Kubectl):
    assert kubectl("run", "one", f"--image={IMAGE}", "--", "sleep", "1") == "pod/one created\n"
    assert kubectl("run", "dry", f"--image={IMAGE}", "--dry-run=server", "-o", "name") == "pod/dry\n"
    assert kubectl("label", "pod", "one", "a=b") == "pod/one labeled\n"
    assert kubectl("annotate", "pod", "one", "a=b") == "pod/one annotated\n"
    kubectl("patch", "pod", "one", "-p", '{"spec":{"containers":[{"name":"one","image":"p"}]}}')
    kubectl("patch", "pod", "one", "--subresource=status", "--type=merge", "-p", '{"status":{"phase":"Running"}}')
    kubectl("edit", "pod", "one", env={"KUBE_EDITOR": "sed -i 's/image: p/image: q/'"})
    assert kubectl.value(".spec.containers[0].image", "pod", "one") == "q"
    kubectl("wait", "pod/one", "--for=jsonpath={.status.phase}=Running", "--timeout=20s")
    assert kubectl("get", "pods", "--field-selector=status.phase=Running", "-o", "name") == "pod/one\n"
    assert "a=b" in kubectl("get", "pods", "--show-labels", "--sort-by=.metadata.name")
    assert kubectl("events", "--for=pod/one") == ""
    assert "force deleted" in kubectl("delete", "pod", "one", "--force", "--grace-period=0")
    kubectl("wait", "pod/one", "--for=delete", "--timeout=20s")


def test_apply_diff_replace_and_kustomize(kubectl: Kubectl):
    first, second = kubectl.file("a.json", config_map("a", k="v")), kubectl.file("b.json", config_map("a", k="w"))
    assert kubectl.run("diff", "-f", first).returncode == 1
    assert kubectl("apply", "-f", first) == "configmap/a created\n"
    assert kubectl("diff", "-f", first) == ""
    assert "+  k: w\n" in kubectl.run("diff", "--server-side", "-f", second).stdout.replace('"', "")
    assert kubectl("apply", "--server-side", "-f", first) == "configmap/a serverside-applied\n"
    assert "conflict" in kubectl.fails("apply", "--server-side", "--field-manager=me", "-f", second)
    kubectl("apply", "--server-side", "--field-manager=me", "--force-conflicts", "-f", second)
    assert kubectl.value(".data.k", "configmap", "a") == "w"
    assert "k: v" in kubectl("apply", "view-last-applied", "-f", first)
    assert kubectl("replace", "-f", first) == "configmap/a replaced\n"
    assert kubectl("replace", "--force", "-f", first).splitlines()[1] == "configmap/a replaced"
    kubectl.file("kustomization.yaml", {"resources": ["a.json"], "namePrefix": "k-"})
    assert kubectl("apply", "-k", str(kubectl.home)) == "configmap/k-a created\n"
    assert "k-a" in kubectl("get", "-k", str(kubectl.home))
    assert kubectl("delete", "-k", str(kubectl.home)).count("deleted") == 1


def test_prune_removes_what_left_the_file(kubectl: Kubectl):
    first, second = kubectl.file("a.json", config_map("a", k="v")), kubectl.file("b.json", config_map("b", k="v"))
    kubectl("apply", "-f", first, "--prune", "-l", "set=a")
    assert "configmap/a pruned" in kubectl("apply", "-f", second, "--prune", "-l", "set=a")
    alpha = {"KUBECTL_APPLYSET": "true"}
    kubectl("apply", "-f", first, "--prune", "--applyset=configmap/set", env=alpha)
    done = kubectl("apply", "-f", second, "--prune", "--applyset=configmap/set", env=alpha)
    assert "configmap/a pruned" in done


def test_a_replication_controller_is_scaled_exposed_and_described(kubectl: Kubectl):
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": IMAGE}]}}
    made = {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "web"},
            "spec": {"template": template}}  # fmt: skip
    assert kubectl("create", "-f", kubectl.file("rc.json", made)) == "replicationcontroller/web created\n"
    assert kubectl("scale", "rc/web", "--replicas=3") == "replicationcontroller/web scaled\n"
    assert kubectl.value(".spec.replicas", "rc", "web") == "3"
    assert kubectl("expose", "rc", "web", "--port=80") == "service/web exposed\n"
    assert kubectl.value(".spec.selector.app", "service", "web") == "web"
    kubectl("set", "image", "rc/web", "web=minik8s/busybox:2")
    assert "minik8s/busybox:2" in kubectl("describe", "rc", "web")
    assert "replicationcontroller/web" in kubectl("get", "all")
    kept = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "kept"}, "template": template}
    kubectl("create", "-f", kubectl.file("template.json", kept))
    assert kubectl("get", "podtemplates", "--no-headers").split()[:4] == ["kept", "web", IMAGE, "app=web"]


def test_nodes_are_tainted_cordoned_and_drained(kubectl: Kubectl):
    node = f"node-{kubectl.namespace}"
    kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}))
    try:
        assert kubectl("taint", "node", node, "k=v:NoSchedule") == f"node/{node} tainted\n"
        assert kubectl("taint", "node", node, "k-") == f"node/{node} untainted\n"
        assert kubectl("cordon", node) == f"node/{node} cordoned\n"
        assert "SchedulingDisabled" in kubectl("get", "node", node)
        assert f"node/{node} drained" in kubectl("drain", node, "--dry-run=server")
        assert f"node/{node} drained" in kubectl("drain", node)
        assert kubectl("uncordon", node) == f"node/{node} uncordoned\n"
        assert "Unschedulable:" in kubectl("describe", "node", node)
    finally:
        kubectl("delete", "node", node)


def test_auth(kubectl: Kubectl):
    assert "minik8s-admin" in kubectl("auth", "whoami")
    assert kubectl("auth", "can-i", "create", "pods") == "yes\n"
    assert "[*]" in kubectl("auth", "can-i", "--list")
    kubectl("create", "serviceaccount", "robot")
    robot = f"--as=system:serviceaccount:{kubectl.namespace}:robot"
    assert kubectl.run("auth", "can-i", "get", "pods", robot).stdout.startswith("no")
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "reader", "namespace": kubectl.namespace},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}  # fmt: skip
    assert "reconciled" in kubectl("auth", "reconcile", "-f", kubectl.file("role.json", role))
    kubectl("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={kubectl.namespace}:robot")
    assert kubectl("auth", "can-i", "get", "pods", robot) == "yes\n"
    assert kubectl.run("auth", "can-i", "get", "pods", "--subresource=log", robot).stdout.startswith("no")


def test_what_the_server_tells_about_itself(kubectl: Kubectl):
    assert "deployments.apps" in kubectl("api-resources", "-o", "name")
    assert "deploy" in kubectl("api-resources", "--api-group=apps", "-o", "wide")
    assert "apps/v1" in kubectl("api-versions").splitlines()
    assert "FIELD: strategy" in kubectl("explain", "deployment.spec.strategy")
    assert "VERSION:    v2" in kubectl("explain", "hpa", "--api-version=autoscaling/v2")
    assert json.loads(kubectl("get", "--raw", "/version"))["major"] == "1"
    assert "control plane" in kubectl("cluster-info")
    folder = kubectl.home / "dump"
    kubectl("cluster-info", "dump", f"--output-directory={folder}", "--namespaces=default")
    assert (folder / "default" / "services.json").exists()


def test_what_there_is_not_is_told_as_an_error(kubectl: Kubectl):
    kubectl("run", "one", f"--image={IMAGE}")
    assert "pod is not running" in kubectl.fails("port-forward", "one", "8080:80")
    for command in ("exec one -- true", "attach one"):
        assert "does not have a host assigned" in kubectl.fails(*command.split())
    assert kubectl.fails("top", "pods")
