"""Real kubectl 1.32 against a real API server on a real etcd: the commands people type, and what they read back."""

from __future__ import annotations

import json
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator

import pytest
import yaml

from minik8s_modules.api.kinds import CERTIFICATE_SIGNING_REQUEST
from minik8s_modules.api.objects import JsonObject
from tests.support.apiserver import ApiServerProcess, own_server
from tests.unit.api import samples

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - {name: c, image: "minik8s/busybox:1", command: [sleep, "3600"]}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    with own_server(tmp_path_factory.mktemp("server")) as api:
        yield api


class Kubectl:
    """kubectl in a namespace of its own."""

    def __init__(self, server: ApiServerProcess, namespace: str) -> None:
        self.server = server
        self.namespace = namespace

    def __call__(self, *arguments: str, stdin: str = "", env: dict[str, str] | None = None) -> str:
        """Run a command that must succeed and return what it prints."""
        return self.server.kubectl("-n", self.namespace, *arguments, stdin=stdin, env=env).stdout

    def fails(self, *arguments: str, stdin: str = "") -> str:
        """Run a command that must fail and return its words."""
        done = self.server.kubectl("-n", self.namespace, *arguments, stdin=stdin, check=False)
        assert done.returncode != 0, done.stdout
        return done.stderr

    def json(self, *arguments: str):
        """Return an object as kubectl shows it with -o json."""
        return json.loads(self("get", *arguments, "-o", "json"))


@pytest.fixture
def kubectl(server: ApiServerProcess) -> Kubectl:
    name = f"t-{uuid.uuid4().hex[:8]}"
    server.kubectl("create", "namespace", name)
    return Kubectl(server, name)


def test_version_tells_both_sides(kubectl: Kubectl):
    assert "Server Version: v1.32" in kubectl("version")
    assert "WARNING" not in kubectl("version")


def test_apply_creates_leaves_configures_and_removes_fields(kubectl: Kubectl):
    assert kubectl("apply", "-f", "-", stdin=POD) == "pod/web created\n"
    assert kubectl("apply", "-f", "-", stdin=POD) == "pod/web unchanged\n"
    labelled = POD.replace("app: web", "app: web, tier: front")
    assert kubectl("apply", "-f", "-", stdin=labelled) == "pod/web configured\n"
    assert kubectl.json("pod", "web")["metadata"]["labels"] == {"app": "web", "tier": "front"}
    assert kubectl("apply", "-f", "-", stdin=POD) == "pod/web configured\n"
    assert kubectl.json("pod", "web")["metadata"]["labels"] == {"app": "web"}


def test_diff_shows_what_apply_would_change_and_changes_nothing(kubectl: Kubectl):
    kubectl("apply", "-f", "-", stdin=POD)
    changed = POD.replace("app: web", "app: other")
    done = kubectl.server.kubectl("-n", kubectl.namespace, "diff", "-f", "-", stdin=changed, check=False)
    assert done.returncode == 1
    assert "-    app: web\n+    app: other" in done.stdout
    assert kubectl.json("pod", "web")["metadata"]["labels"] == {"app": "web"}
    assert kubectl("diff", "-f", "-", stdin=POD) == ""


def test_get_shows_tables_wide_and_sorted(kubectl: Kubectl):
    kubectl("apply", "-f", "-", stdin=POD)
    header, row = kubectl("get", "pods").splitlines()
    assert header.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row.split()[:4] == ["web", "0/1", "Pending", "0"]
    assert "NODE" in kubectl("get", "pods", "-o", "wide").splitlines()[0]
    assert kubectl("get", "pods", "-l", "app=web", "-o", "name") == "pod/web\n"
    assert kubectl("get", "pods", "--field-selector=spec.nodeName=x") == ""
    assert "web" in kubectl("get", "pods", "-A", "--sort-by=.metadata.name")
    assert kubectl("get", "all", "-o", "name") == "pod/web\n"
    assert yaml.safe_load(kubectl("get", "pod", "web", "-o", "yaml"))["spec"]["restartPolicy"] == "Always"


def test_get_of_many_goes_in_pages(kubectl: Kubectl):
    items = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{n}"}} for n in range(7)]
    kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert len(kubectl("get", "cm", "--chunk-size=2", "-o", "name").splitlines()) == 7
    assert kubectl("delete", "cm", "--all").count("deleted") == 7


def test_describe_tells_an_object_with_its_events(kubectl: Kubectl):
    kubectl("apply", "-f", "-", stdin=POD)
    uid = kubectl.json("pod", "web")["metadata"]["uid"]
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "web.1"},
        "involvedObject": {"kind": "Pod", "namespace": kubectl.namespace, "name": "web", "uid": uid},
        "reason": "FailedScheduling",
        "message": "no node fits",
        "type": "Warning",
    }
    kubectl("create", "-f", "-", stdin=json.dumps(event))
    done = kubectl("describe", "pod", "web")
    assert "minik8s/busybox:1" in done
    assert "no node fits" in done
    for kind in ("ns", "svc", "cm", "secrets", "endpoints", "sa", "leases"):
        kubectl("describe", kind)


def test_edit_stores_what_the_editor_leaves(kubectl: Kubectl):
    kubectl("apply", "-f", "-", stdin=POD)
    done = kubectl("edit", "pod", "web", env={"KUBE_EDITOR": "sed -i s/minik8s.busybox:1/edited:2/"})
    assert done == "pod/web edited\n"
    assert kubectl.json("pod", "web")["spec"]["containers"][0]["image"] == "edited:2"


def test_label_and_annotate(kubectl: Kubectl):
    kubectl("apply", "-f", "-", stdin=POD)
    assert kubectl("label", "pod", "web", "tier=front") == "pod/web labeled\n"
    assert kubectl("label", "pod", "web", "tier=front") == "pod/web not labeled\n"
    assert "--overwrite" in kubectl.fails("label", "pod", "web", "tier=back")
    assert kubectl("label", "pod", "web", "tier-") == "pod/web unlabeled\n"
    assert kubectl("annotate", "pod", "web", "note=a b") == "pod/web annotated\n"
    assert kubectl.json("pod", "web")["metadata"]["annotations"]["note"] == "a b"


@pytest.mark.parametrize(
    "patch",
    [
        ("strategic", '{"spec":{"containers":[{"name":"c","image":"p"}]}}'),
        ("json", '[{"op":"replace","path":"/spec/containers/0/image","value":"p"}]'),
    ],
)
def test_patch(kubectl: Kubectl, patch: tuple[str, str]):
    kubectl("apply", "-f", "-", stdin=POD)
    kind, body = patch
    assert kubectl("patch", "pod", "web", f"--type={kind}", "-p", body) == "pod/web patched\n"
    container = kubectl.json("pod", "web")["spec"]["containers"][0]
    assert (container["image"], container["name"]) == ("p", "c")


def test_delete_waits_until_the_object_is_gone(kubectl: Kubectl):
    kubectl("apply", "-f", "-", stdin=POD.replace("containers:", "nodeName: n1\n  containers:"))
    finished = threading.Event()

    def node() -> None:
        while "deletionTimestamp" not in kubectl.json("pod", "web")["metadata"]:
            time.sleep(0.05)
        path = f"/api/v1/namespaces/{kubectl.namespace}/pods/web"
        kubectl.server.request("DELETE", path, {"gracePeriodSeconds": 0})
        finished.set()

    thread = threading.Thread(target=node)
    thread.start()
    assert kubectl("delete", "pod", "web", "--timeout=20s") == 'pod "web" deleted\n'
    thread.join()
    assert finished.is_set()
    assert "NotFound" in kubectl.fails("get", "pod", "web")


def test_wait_sees_a_condition_come(kubectl: Kubectl):
    kubectl("apply", "-f", "-", stdin=POD)
    process = subprocess.Popen(
        kubectl.server.kubectl_argv(
            "-n", kubectl.namespace, "wait", "--for=condition=Ready", "pod/web", "--timeout=20s"
        ),
        stdout=subprocess.PIPE,
        text=True,
    )
    time.sleep(0.3)
    status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/web/status"
    headers = {"Content-Type": "application/merge-patch+json"}
    assert kubectl.server.request("PATCH", path, status, headers=headers).code == 200
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "pod/web condition met\n")
    assert "timed out" in kubectl.fails("wait", "--for=condition=Never", "pod/web", "--timeout=1s")


def test_get_watch_prints_a_line_for_each_change(kubectl: Kubectl):
    kubectl("apply", "-f", "-", stdin=POD)
    process = subprocess.Popen(
        kubectl.server.kubectl_argv("-n", kubectl.namespace, "get", "pods", "-w", "--output-watch-events"),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline(), process.stdout.readline()]
        kubectl("label", "pod", "web", "x=y")
        lines.append(process.stdout.readline())
        kubectl("delete", "pod", "web")
        lines.append(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
    assert [line.split()[0] for line in lines] == ["EVENT", "ADDED", "MODIFIED", "DELETED"]


def test_explain_reads_kubernetes_own_words(kubectl: Kubectl):
    assert "Container image name" in kubectl("explain", "pod.spec.containers.image")
    assert "hostPath" in kubectl("explain", "pod.spec.volumes", "--recursive")
    assert "podUID" in kubectl("explain", "podaddress.spec")


def test_api_resources_and_versions(kubectl: Kubectl):
    named = kubectl("api-resources", "-o", "name").splitlines()
    assert {"pods", "nodes", "leases.coordination.k8s.io", "plans.minik8s.io"} <= set(named)
    assert {"v1", "minik8s.io/v1", "discovery.k8s.io/v1"} <= set(kubectl("api-versions").splitlines())


@pytest.mark.parametrize(
    ("command", "kind", "path", "value"),
    [
        (("configmap", "x", "--from-literal=a=b"), "cm", ("data", "a"), "b"),
        (("secret", "generic", "x", "--from-literal=a=b"), "secret", ("data", "a"), "Yg=="),
        (("serviceaccount", "x"), "sa", ("metadata", "name"), "x"),
        (("service", "clusterip", "x", "--tcp=80:8080"), "svc", ("spec", "ports"), None),
    ],
)
def test_typed_creates(kubectl: Kubectl, command: tuple[str, ...], kind: str, path: tuple[str, str], value: object):
    kubectl("create", *command)
    found = kubectl.json(kind, "x")[path[0]][path[1]]
    assert value is None or found == value
    if kind == "svc":
        assert [(port["port"], port["targetPort"]) for port in found] == [(80, 8080)]
    assert "AlreadyExists" in kubectl.fails("create", *command) or "already exists" in kubectl.fails("create", *command)


def test_create_replace_and_run(kubectl: Kubectl):
    pod = POD + "  automountServiceAccountToken: false\n"  # a replacement would lack the volume, which is Forbidden
    assert kubectl("create", "-f", "-", stdin=pod) == "pod/web created\n"
    assert kubectl("replace", "-f", "-", stdin=pod.replace("busybox:1", "busybox:2")) == "pod/web replaced\n"
    assert kubectl("run", "one", "--image=x", "--restart=Never", "--", "sleep", "1") == "pod/one created\n"
    assert kubectl.json("pod", "one")["spec"]["containers"][0]["args"] == ["sleep", "1"]


def test_auth_whoami_and_can_i(kubectl: Kubectl):
    assert "minik8s-admin" in kubectl("auth", "whoami")
    assert kubectl("auth", "can-i", "delete", "nodes") == "yes\n"


def test_a_namespace_shows_terminating(kubectl: Kubectl):
    kubectl("delete", "namespace", kubectl.namespace, "--wait=false")
    assert kubectl("get", "namespace", kubectl.namespace, "--no-headers").split()[1] == "Terminating"
    assert "because it is being terminated" in kubectl.fails("create", "configmap", "x")


def test_mistakes_are_told_as_kubernetes_tells_them(kubectl: Kubectl):
    unknown = POD.replace("containers:", "containerz: []\n  containers:")
    assert 'unknown field "spec.containerz"' in kubectl.fails("apply", "-f", "-", stdin=unknown)
    assert "spec.containers[0].image: Required value" in kubectl.fails(
        "apply", "-f", "-", stdin=POD.replace('image: "minik8s/busybox:1", ', "")
    )
    assert 'pods "nobody" not found' in kubectl.fails("get", "pod", "nobody")
    assert "no matches for kind" in kubectl.fails(
        "apply", "-f", "-", stdin="apiVersion: example.com/v1\nkind: Unicorn\nmetadata: {name: a}\n"
    )


def test_server_side_apply_shares_conflicts_and_takes_over(kubectl: Kubectl):
    assert kubectl("apply", "--server-side", "-f", "-", stdin=POD) == "pod/web serverside-applied\n"
    version = kubectl.json("pod", "web")["metadata"]["resourceVersion"]
    kubectl("apply", "--server-side", "-f", "-", stdin=POD)
    assert kubectl.json("pod", "web")["metadata"]["resourceVersion"] == version
    other = POD.replace("app: web", "app: other")
    done = kubectl.fails("apply", "--server-side", "--field-manager=me", "-f", "-", stdin=other)
    assert 'Apply failed with 1 conflict: conflict with "kubectl": .metadata.labels.app' in done
    forced = ("apply", "--server-side", "--field-manager=me", "--force-conflicts", "-f", "-")
    assert kubectl(*forced, "--dry-run=server", stdin=other) == "pod/web serverside-applied (server dry run)\n"
    assert kubectl.json("pod", "web")["metadata"]["labels"] == {"app": "web"}
    kubectl(*forced, stdin=other)
    assert kubectl.json("pod", "web")["metadata"]["labels"] == {"app": "other"}
    assert "f:labels" in kubectl("get", "pod", "web", "-o", "yaml", "--show-managed-fields")
    assert "managedFields" not in kubectl("get", "pod", "web", "-o", "yaml")


def test_server_side_apply_goes_on_where_client_side_apply_ended(kubectl: Kubectl):
    labelled = POD.replace("app: web", "app: web, tier: front")
    kubectl("apply", "-f", "-", stdin=labelled)
    kubectl("apply", "--server-side", "-f", "-", stdin=POD.replace("app: web", "app: new"))
    assert kubectl.json("pod", "web")["metadata"]["labels"] == {"app": "new"}  # what it applied no more is gone
    owners = {
        entry["manager"] for entry in kubectl.json("pod", "web", "--show-managed-fields")["metadata"]["managedFields"]
    }
    assert owners == {"kubectl", "kubectl-last-applied"}
    assert kubectl("apply", "-f", "-", stdin=POD) == "pod/web configured\n"


def test_kinds_without_controllers_are_created_shown_and_scaled(kubectl: Kubectl):
    image = "--image=minik8s/busybox:1"
    kubectl("create", "deployment", "web", image, "--replicas=0")
    kubectl("create", "job", "once", image, "--", "true")
    kubectl("create", "cronjob", "often", image, "--schedule=*/5 * * * *", "--", "true")
    kubectl("create", "quota", "q", "--hard=pods=2")
    kubectl("create", "pdb", "b", "--selector=app=web", "--min-available=1")
    kubectl("create", "ingress", "i", "--rule=example.com/=web:80")
    kubectl("autoscale", "deployment", "web", "--max=5", "--cpu-percent=80")
    assert kubectl.json("deployment", "web")["spec"]["replicas"] == 0
    assert kubectl("scale", "deployment", "web", "--replicas=3") == "deployment.apps/web scaled\n"
    assert "Expected replicas to be 1, was 3" in kubectl.fails(
        "scale", "deployment", "web", "--current-replicas=1", "--replicas=2"
    )
    header, row = kubectl("get", "deploy", "-o", "wide").splitlines()
    assert header.split()[:5] == ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]
    assert (row.split()[1], row.split()[-3:]) == ("0/3", ["busybox", "minik8s/busybox:1", "app=web"])
    assert "cpu: <unknown>/80%" in kubectl("get", "hpa")
    assert "0/1" in kubectl("get", "jobs")
    assert "*/5 * * * *" in kubectl("get", "cronjobs")
    assert kubectl("get", "rs") == ""
    assert "No rollout history found" in kubectl("rollout", "history", "deployment", "web")
    assert "Replicas:               3 desired" in kubectl("describe", "deployment", "web")
    assert "FIELD: strategy <DeploymentStrategy>" in kubectl("explain", "deployment.spec.strategy")
    names = set(kubectl("get", "all", "-o", "name").split())
    assert names == {"deployment.apps/web", "job.batch/once", "cronjob.batch/often",
                     "horizontalpodautoscaler.autoscaling/web"}  # fmt: skip


def test_signing_requests_are_approved(kubectl: Kubectl):
    name = kubectl.namespace
    request = samples.sample(CERTIFICATE_SIGNING_REQUEST) | {"metadata": {"name": name}}
    kubectl("apply", "-f", "-", stdin=json.dumps(request))
    assert kubectl("certificate", "approve", name).endswith("approved\n")
    assert "Approved" in kubectl("get", "csr", name)
    kubectl("delete", "csr", name)


def test_empty_maps_and_lists_of_a_manifest_are_no_difference(kubectl: Kubectl):
    container = {"name": "c", "image": "x", "args": [], "env": [], "resources": {}, "ports": []}
    template = {
        "metadata": {"labels": {"a": "b"}, "annotations": {}},
        "spec": {"volumes": [], "containers": [container]},
    }
    manifest = json.dumps({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "sparse", "labels": {}, "annotations": {}},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template},
    })  # fmt: skip
    for options in ((), ("--server-side", "--force-conflicts")):
        kubectl("apply", *options, "-f", "-", stdin=manifest)
        assert "labels" not in kubectl.json("deployment", "sparse")["metadata"]
        assert kubectl("diff", *options, "-f", "-", stdin=manifest) == ""
        version = kubectl.json("deployment", "sparse")["metadata"]["resourceVersion"]
        kubectl("apply", *options, "-f", "-", stdin=manifest)
        assert kubectl.json("deployment", "sparse")["metadata"]["resourceVersion"] == version


def _without_namespace(manifest: JsonObject) -> JsonObject:
    manifest["metadata"].pop("namespace", None)
    manifest.get("spec", {}).get("template", {}).get("metadata", {}).pop("namespace", None)
    manifest.get("spec", {}).get("scaleTargetRef", {}).pop("namespace", None)  # an autoscaler's own
    return manifest


@samples.cases("original_manifests")
def test_the_originals_manifests_apply_and_apply_again(kubectl: Kubectl, path):
    manifest = _without_namespace(yaml.safe_load(path.read_text()))
    manifest["metadata"]["name"] += kubectl.namespace  # volumes are the cluster's
    for service in samples.services_of(manifest):
        kubectl("create", "-f", "-", stdin=json.dumps(service))
    text = json.dumps(manifest)
    assert kubectl("apply", "-f", "-", stdin=text).endswith("created\n")
    version = json.loads(kubectl("get", "-f", "-", "-o", "json", stdin=text))["metadata"]["resourceVersion"]
    kubectl("apply", "-f", "-", stdin=text)
    assert json.loads(kubectl("get", "-f", "-", "-o", "json", stdin=text))["metadata"]["resourceVersion"] == version
    # no controller runs here that would free a volume or a claim of its finalizer
    assert kubectl("delete", "--now", "--wait=false", "-f", "-", stdin=text).count("deleted") == 1


def test_short_names_mean_the_standard_groups(kubectl: Kubectl):
    replica_set = _without_namespace(samples.read(samples.ROOT / "tests/cases/original_manifests/03-replicaset.yml"))
    kubectl("apply", "-f", "-", stdin=json.dumps(replica_set))
    assert kubectl("get", "rs", "-o", "name") == "replicaset.apps/nginx-replicaset\n"
    assert kubectl("get", "legacyreplicasets", "-o", "name") == "replicaset/nginx-replicaset\n"
    assert kubectl.json("rs", "nginx-replicaset")["apiVersion"] == "apps/v1"
    assert kubectl("get", "jobs,hpa") == ""


def test_start_up_objects_are_shown(kubectl: Kubectl):
    assert "100.0.0.1" in kubectl("get", "service", "kubernetes", "-n", "default")
    assert f"127.0.0.1:{kubectl.server.port}" in kubectl("get", "endpoints", "kubernetes", "-n", "default")
    assert "default" in kubectl("get", "namespaces")
    assert "control plane" in kubectl("cluster-info")
