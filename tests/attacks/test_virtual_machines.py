"""Virtual machines: who reaches guests, whom the extension believes, and what a machine may name."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD
from minik8s_virtual_machines import installation
from tests.support.apiserver import Answer
from tests.support.extension import front_proxy
from tests.support.machines_world import World, machine
from tests.support.pki import Certificate
from tests.support.waiting import until

ROOT = "/apis/subresources.kubevirt.io/v1/namespaces/default"
CONSOLE = f"{ROOT}/virtualmachineinstances/guarded/console"
SCREENSHOT = f"{ROOT}/virtualmachineinstances/guarded/vnc/screenshot"
AS_ADMIN = {"X-Remote-User": "minik8s-admin", "X-Remote-Group": "system:masters"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("machines")) as found:
        found.apply(machine("guarded"))
        found.wait("guarded", "Running")
        yield found


def allow(world: World, user: str, *resources: str, verbs: tuple[str, ...] = ("get", "update")) -> Certificate:
    """Return the certificate of a user who may do that, and nothing else."""
    rules = [{"apiGroups": ["subresources.kubevirt.io"], "resources": [*resources], "verbs": [*verbs]}]
    group = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": user, "namespace": "default"}}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user}
    world.apply(
        {**group, "kind": "Role", "rules": rules},
        {**group, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]},
    )
    return world.server.identity(user)


def directly(world: World, path: str, client: Certificate | None, headers: dict[str, str]) -> Answer:
    """Ask the daemon itself, as whoever reaches its port can."""
    context = ssl.create_default_context(cafile=str(world.server.authority.ca))
    context.check_hostname = False
    if client is not None:
        context.load_cert_chain(client.cert, client.key)
    connection = http.client.HTTPSConnection(world.address, world.port, context=context, timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return Answer(response.status, {}, response.read())
    finally:
        connection.close()


def test_who_may_look_at_machines_reaches_no_console(world: World) -> None:
    user = world.server.identity("looker")
    world.kubectl("create", "rolebinding", "looker", "--clusterrole=view", "--user=looker")
    machines = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
    until(lambda: world.server.request("GET", machines, client=user).code == 200)
    for path in (CONSOLE, SCREENSHOT, f"{ROOT}/virtualmachineinstances/guarded/portforward/22"):
        assert world.server.request("GET", path, client=user).code == 403, path
    for action in ("start", "stop", "restart"):
        answer = world.server.request("PUT", f"{ROOT}/virtualmachines/guarded/{action}", {}, client=user)
        assert answer.code == 403, action
    assert world.printable("guarded") == "Running"


def test_nobody_passes_a_pod_off_as_a_guest(world: World) -> None:
    user = world.server.identity("editor-of-pods")
    world.kubectl("create", "rolebinding", "editor-of-pods", "--clusterrole=edit", "--user=editor-of-pods")
    pods = "/api/v1/namespaces/default/pods"
    until(lambda: world.server.request("GET", pods, client=user).code == 200)
    (real,) = world.pods("guarded")
    owner = dict(real["metadata"]["ownerReferences"][0])
    owner.pop("blockOwnerDeletion", None)  # that would take a right on the instance
    spec = {"containers": [{"name": "compute", "image": "trap:1"}]}
    marks = {
        each: objects.labels(real)[each] for each in ("kubevirt.io", "kubevirt.io/created-by", "vm.kubevirt.io/name")
    }
    forged: dict[str, Any] = {"metadata": {"name": "a-trap", "labels": marks, "ownerReferences": [owner]}, "spec": spec}
    refused = world.server.request("POST", pods, forged, client=user)
    assert (refused.code, b"made by virtual machines alone" in refused.body) == (403, True), refused.body

    forged["metadata"]["labels"] = {**marks, "kubevirt.io": "other"}
    assert world.server.request("POST", pods, forged, client=user).code == 201
    merge = {"Content-Type": "application/merge-patch+json"}
    for name, meta in (
        ("a-trap", {"labels": marks}),
        (objects.name(real), {"labels": {"kubevirt.io": None}}),
        (objects.name(real), {"labels": {"kubevirt.io/created-by": "x"}}),
        (objects.name(real), {"ownerReferences": None}),
    ):
        answer = world.server.request("PATCH", f"{pods}/{name}", {"metadata": meta}, client=user, headers=merge)
        assert (answer.code, b"made by virtual machines alone" in answer.body) == (403, True), (meta, answer.body)
    for containers in ("containers", "initContainers"):
        changed = {containers: [{"name": objects.spec(real)[containers][0]["name"], "image": "trap:1"}]}
        strategic = {"Content-Type": "application/strategic-merge-patch+json"}
        answer = world.server.request(
            "PATCH", f"{pods}/{objects.name(real)}", {"spec": changed}, client=user, headers=strategic
        )
        assert (answer.code, b"labels, owner and images" in answer.body) == (403, True), (containers, answer.body)
    noted = {"metadata": {"annotations": {"example.com/note": "seen"}}}
    path = f"{pods}/{objects.name(real)}"
    assert world.server.request("PATCH", path, noted, client=user, headers=merge).code == 200
    world.act("guarded", "restart")  # another decision, with the trap in sight
    until(lambda: [objects.uid(pod) for pod in world.pods("guarded")] not in ([], [objects.uid(real)]))
    world.wait("guarded", "Running")
    (pod,) = objects.status(world.vmi("guarded"))["activePods"]
    assert pod == objects.uid(world.pods("guarded")[0])


def test_headers_that_name_another_user_are_not_passed_on(world: World) -> None:
    user = world.server.identity("stranger")
    assert world.server.request("GET", CONSOLE, client=user, headers=AS_ADMIN).code == 403


def test_a_right_on_the_screen_is_none_on_its_picture(world: World) -> None:
    """The API server asks for ``vnc`` in both cases, since it reads one part of the path."""
    user = allow(world, "watcher", "virtualmachineinstances/vnc")
    screen = SCREENSHOT.removesuffix("/screenshot")
    until(lambda: b"No graphics" in world.server.request("GET", screen, client=user).body)
    answer = world.server.request("GET", SCREENSHOT, client=user)
    assert answer.code == 403
    assert "vnc/screenshot" in answer.json["message"]


def test_nobody_but_the_front_proxy_is_believed(world: World) -> None:
    assert directly(world, CONSOLE, None, AS_ADMIN).code == 401
    with pytest.raises((ssl.SSLError, OSError)):  # a certificate of the cluster is none of the front proxy's authority
        directly(world, CONSOLE, world.server.admin, AS_ADMIN)
    with pytest.raises((ssl.SSLError, OSError)):
        directly(world, CONSOLE, front_proxy(world.folder / "forged")[1], AS_ADMIN)
    # the same authority, but another name than ``requestheader-allowed-names``; then the proxy itself, as a cross-check
    assert directly(world, CONSOLE, other_name(world), AS_ADMIN).code == 403
    assert directly(world, CONSOLE, world.proxy, AS_ADMIN).code == 400  # it is no WebSocket


def other_name(world: World) -> Certificate:
    return world.proxies.issue("other", "somebody-else", names=None)


def test_the_proxy_names_one_user(world: World) -> None:
    assert directly(world, CONSOLE, world.proxy, {}).code == 400
    assert directly(world, CONSOLE, world.proxy, {"X-Remote-User": "nobody"}).code == 403


@pytest.mark.parametrize("source", [
    {"persistentVolumeClaim": {"claimName": "kube-system/claim"}},
    {"persistentVolumeClaim": {"claimName": "../kube-system/claim"}},
    {"secret": {"secretName": "kube-system/keys"}},
    {"secret": {"secretName": "keys", "namespace": "kube-system"}},
    {"cloudInitNoCloud": {"secretRef": {"name": "kube-system/keys"}}},
    {"hostDisk": {"path": "/etc/shadow", "type": "Disk"}},
    {"hostDisk": {"path": "/srv/disks/../../etc/shadow", "type": "Disk"}},
    {"hostPath": {"path": "/"}},
])  # fmt: skip
def test_a_machine_names_nothing_outside_its_namespace(world: World, source: dict[str, Any]) -> None:
    reaching = machine("reaching")
    reaching["spec"]["template"]["spec"]["volumes"] = [{"name": "root", **source}]
    done = world.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(reaching), check=False)
    assert done.returncode != 0
    assert "spec.template.spec.volumes[0]" in done.stderr
    assert not world.vm("reaching")


def test_a_pod_that_claims_to_be_a_launcher_gets_no_console(world: World) -> None:
    instance = world.vmi("guarded")
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "guarded", "controller": True}
    labels = {"kubevirt.io/created-by": objects.uid(instance)}  # the other one the policy would refuse
    meta = {
        "name": "a-launcher", "namespace": "default", "labels": labels,
        "ownerReferences": [{**owner, "uid": objects.uid(instance)}],
    }  # fmt: skip
    container = {"name": "compute", "image": "trap:1"}
    world.admin.create(POD, {"metadata": meta, "spec": {"nodeName": "far", "containers": [container]}})
    until(lambda: objects.status(world.admin.get(POD, "a-launcher", "default")).get("phase") == "Running")
    world.server.request("PUT", f"{ROOT}/virtualmachineinstances/guarded/pause", {})
    world.wait("guarded", "Paused")
    logs = world.kubectl("logs", "a-launcher").stdout
    world.admin.delete(POD, "a-launcher", "default")
    assert "pause" not in logs
    assert objects.status(world.vmi("guarded"))["activePods"].keys() == {objects.uid(world.pods("guarded")[0])}


def test_the_daemon_has_no_right_that_its_roles_do_not_name() -> None:
    rules = [rule for each in installation.roles() for rule in each.get("rules") or []]
    assert not any("*" in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]] for rule in rules)


def test_a_review_is_no_way_to_the_api(world: World, tmp_path: Path) -> None:
    """Reviews need no certificate: what they answer does not depend on who asks."""
    del tmp_path
    assert directly(world, "/admission/mutate", None, {}).code == 405
    assert directly(world, "/admission/../apis/subresources.kubevirt.io/v1", None, {}).code in {400, 404, 405}
    assert json.loads(directly(world, "/admission/other", None, {}).body)["kind"] == "Status"
