"""Bad input from a user of the installed cluster: a clear error, nothing stored, nothing lost, nothing run.

The API alone is tried with many more bodies in ``tests/integration/apiserver``; here is what goes through to a node.
"""

from __future__ import annotations

import json
import socket
import ssl
import time

import pytest

from minik8s_modules.api.kinds import CONFIG_MAP, POD
from minik8s_modules.client.kubeconfig import load_kubeconfig
from minik8s_modules.client.transport import tls_context
from tests.support.clusters.installed import IMAGE, KUBECONFIG, Installed

LOOKUP = "{{ lookup('pipe','id') }}"
STATEMENT = "{% for x in [1] %}{{ x }}{% endfor %}{# gone #}"
OBJECTS = ("pods", "configmaps", "secrets", "services", "serviceaccounts")

POD_YAML = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: c, image: "minik8s/busybox:1", command: [sleep, "3600"]}
"""
REFUSED = {
    "no YAML": (POD_YAML + "  bad: [", "yaml"),
    "a tab": (POD_YAML.replace("  containers", "\tcontainers"), "yaml"),
    "no kind": (POD_YAML.replace("kind: Pod", ""), "kind"),
    "an unknown kind": (POD_YAML.replace("kind: Pod", "kind: Pood"), "Pood"),
    "an unknown version": (POD_YAML.replace("apiVersion: v1", "apiVersion: v7"), "v7"),
    "an unknown field": (POD_YAML.replace("image:", "imagee: x, image:"), "imagee"),
    "a number for a list": (POD_YAML.replace("[sleep, \"3600\"]", "5"), "command"),
    "a number in a list of texts": (POD_YAML.replace('"3600"', "3600"), "command"),
    "a text for a map": (POD_YAML.replace("{name: web}", "web"), "metadata"),
    "a name that climbs": (POD_YAML.replace("name: web", "name: ../../etc"), "../../etc"),
    "a name with a template": (POD_YAML.replace("name: web", f'name: "{LOOKUP}"'), "lookup"),
    "a container's name that climbs": (POD_YAML.replace("name: c", "name: ../c"), "../c"),
    "a label with a template": (POD_YAML.replace("name: web", f'name: web, labels: {{a: "{LOOKUP}"}}'), "lookup"),
    "no containers": ("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: []}\n", "containers"),
    "a NUL in a variable": (POD_YAML.replace("command:", 'env: [{name: "A\\0", value: x}], command:'), "env"),
    "a mount that climbs": (
        POD_YAML.replace("command:", "volumeMounts: [{name: v, mountPath: /x, subPath: ../../etc}], command:")
        + "  volumes: [{name: v, emptyDir: {}}]\n",
        "subPath",
    ),
    "a file that climbs": (
        POD_YAML + "  volumes: [{name: v, configMap: {name: c, items: [{key: a, path: ../../x}]}}]\n",
        "path",
    ),
}  # fmt: skip


def stored(cluster: Installed, namespace: str) -> str:
    """Return what the namespace holds, with versions."""
    done = cluster.kubectl("get", ",".join(OBJECTS), "-n", namespace, "-o", "json")
    items = json.loads(done.stdout)["items"]
    return json.dumps(
        sorted((one["kind"], one["metadata"]["name"], one["metadata"]["resourceVersion"]) for one in items)
    )


def test_what_cannot_be_used_is_refused_with_its_reason(cluster: Installed, namespace: str) -> None:
    before = stored(cluster, namespace)
    for case, (text, word) in REFUSED.items():
        done = cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=text, check=False)
        assert done.returncode != 0, f"{case}: {done.stdout}"
        assert word.lower() in done.stderr.lower(), f"{case}: {done.stderr}"
        assert "Traceback" not in done.stderr, case
        assert stored(cluster, namespace) == before, case


def test_an_object_of_2_mb_is_refused_and_one_of_1_mb_kept(cluster: Installed, namespace: str) -> None:
    for size, ok in ((2_000_000, False), (1_000_000, True)):
        data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"n{size}"}, "data": {"x": "y" * size}}
        done = cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(data), check=False)
        assert (done.returncode == 0) == ok, done.stderr
    assert len(cluster.admin.get(CONFIG_MAP, "n1000000", namespace)["data"]["x"]) == 1_000_000


def test_a_stale_update_is_refused_and_loses_nothing(cluster: Installed, namespace: str) -> None:
    cluster.kubectl("create", "configmap", "c", "-n", namespace, "--from-literal=a=1")
    stale = cluster.kubectl("get", "configmap", "c", "-n", namespace, "-o", "json").stdout
    cluster.kubectl("patch", "configmap", "c", "-n", namespace, "-p", '{"data":{"b":"2"}}')
    done = cluster.kubectl("replace", "-f", "-", stdin=stale, check=False)
    assert "the object has been modified" in done.stderr
    assert cluster.admin.get(CONFIG_MAP, "c", namespace)["data"] == {"a": "1", "b": "2"}


def connection() -> ssl.SSLSocket:
    """Return an authenticated connection to write bytes on."""
    access = load_kubeconfig(KUBECONFIG)
    host, _, port = access.server.removeprefix("https://").partition(":")
    return tls_context(access).wrap_socket(socket.create_connection((host, int(port)), 10), server_hostname=host)


def test_cut_off_bodies_and_slow_clients_store_nothing_and_hold_nobody_up(cluster: Installed, namespace: str) -> None:
    before = stored(cluster, namespace)
    body = json.dumps({"metadata": {"name": "cut"}, "data": {"x": "y" * 500}}).encode()
    head = f"POST /api/v1/namespaces/{namespace}/configmaps HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    cut = connection()
    cut.sendall(head.encode() + body[:100])
    cut.close()
    slow = [connection() for _ in range(60)]
    for each in slow:
        each.sendall(head.encode()[:40])
    began = time.monotonic()
    cluster.pod("beside", namespace)
    cluster.until(lambda: cluster.ready("beside", namespace))
    assert time.monotonic() - began < 20  # a slow client is waited for longer
    for each in slow:
        each.close()
    cluster.admin.delete(POD, "beside", namespace, grace_s=0)
    cluster.until(lambda: stored(cluster, namespace) == before)


def test_templates_stay_what_the_user_wrote(cluster: Installed, namespace: str) -> None:
    data = {"literal": LOOKUP, "statement": STATEMENT}
    cluster.admin.create(CONFIG_MAP, {"metadata": {"name": "c", "namespace": namespace}, "data": data})
    container = {
        "name": "app",
        "image": IMAGE,
        "command": ["sh", "-c", 'echo "$1 $2"; exec sleep 36000', "x", LOOKUP],
        "args": [STATEMENT],
        "workingDir": f"/{LOOKUP}",
        "env": [
            {"name": "LITERAL", "value": LOOKUP},
            {"name": "STATEMENT", "value": STATEMENT},
            {"name": "REFERRED", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "literal"}}},
            {"name": "NOTE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['note']"}}},
        ],
        "volumeMounts": [
            {"name": "conf", "mountPath": f"/mount {LOOKUP}"},
            {"name": "data", "mountPath": "/data", "subPath": LOOKUP},
        ],
    }
    items = [{"key": "literal", "path": f"{LOOKUP}.txt"}, {"key": "statement", "path": "statement"}]
    volumes = [{"name": "conf", "configMap": {"name": "c", "items": items}}, {"name": "data", "emptyDir": {}}]
    metadata = {"name": "templates", "namespace": namespace, "annotations": {"note": LOOKUP}}
    spec = {"containers": [container], "volumes": volumes}
    uid = cluster.admin.create(POD, {"metadata": metadata, "spec": spec})["metadata"]["uid"]
    cluster.until(lambda: cluster.ready("templates", namespace))
    app = next(one for name, one in cluster.containers(uid).items() if "_POD_" not in name)
    script = (
        'echo "$LITERAL"; echo "$STATEMENT"; echo "$REFERRED"; echo "$NOTE"; pwd; cat "/mount $LITERAL/$LITERAL.txt"'
    )
    seen = cluster.execute(app, "sh", "-c", script).splitlines()
    assert seen == [LOOKUP, STATEMENT, LOOKUP, LOOKUP, f"/{LOOKUP}", LOOKUP]
    assert cluster.execute(app, "sh", "-c", 'cat "/mount $LITERAL/statement"') == STATEMENT
    inspected = json.dumps(cluster.docker.inspect(app))
    pod = cluster.admin.get(POD, "templates", namespace)
    assert pod["metadata"]["annotations"]["note"] == LOOKUP
    assert "uid=" not in inspected + json.dumps(pod) + json.dumps(cluster.events(namespace))
    assert json.loads(inspected)["Args"][-2:] == [LOOKUP, STATEMENT]


@pytest.mark.parametrize("image", [LOOKUP, "a b", "../../etc/passwd", "upper/CASE:1", "busybox:1\nx"])
def test_an_image_name_that_is_none_is_told_and_never_run(cluster: Installed, namespace: str, image: str) -> None:
    cluster.pod("odd", namespace, containers=[{"name": "app", "image": image}])

    def reason() -> str:
        statuses = cluster.pods(namespace)["odd"]["status"].get("containerStatuses") or [{}]
        return str(statuses[0].get("state", {}).get("waiting", {}).get("reason", ""))

    cluster.until(lambda: reason() == "InvalidImageName")
