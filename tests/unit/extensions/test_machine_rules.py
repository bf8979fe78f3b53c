"""What the webhooks of virtual machines fill in and refuse, what the server believes, and its own documents."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import yaml

from minik8s_modules.api.merging.patch import json_patch
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.policies.compiled import compiled
from minik8s_modules.apiserver.policies.evaluating import evaluate
from minik8s_virtual_machines import installation
from minik8s_virtual_machines.api.defaults import patch, with_defaults
from minik8s_virtual_machines.api.definitions import definitions, table, warnings
from minik8s_virtual_machines.api.kinds import KINDS, VM
from minik8s_virtual_machines.api.validation import Policy, problems
from minik8s_virtual_machines.server import webhooks
from minik8s_virtual_machines.server.asked import caller_of, parse, target_of
from tests.support.machines_world import machine

SPEC = "spec.template.spec"


def changed(path: str, value: Any) -> JsonObject:
    """Return a valid machine with one part of its instance's spec replaced."""
    made = with_defaults(machine("one"))
    *parents, last = path.split(".")
    at: Any = made["spec"]["template"]["spec"]
    for each in parents:
        at = at[int(each)] if each.isdecimal() else at[each]
    at[int(last) if last.isdecimal() else last] = value
    return made


def test_a_machine_with_its_defaults_is_valid() -> None:
    filled = with_defaults(machine("one"))
    assert problems(filled) == []
    spec = filled["spec"]["template"]["spec"]
    assert spec["domain"]["devices"]["interfaces"] == [{"name": "default", "masquerade": {}}]
    assert spec["domain"]["devices"]["disks"] == [{"name": "root", "disk": {"bus": "virtio"}}]
    assert spec["networks"] == [{"name": "default", "pod": {}}]
    assert spec["terminationGracePeriodSeconds"] == 30
    assert with_defaults(filled) == filled


@pytest.mark.parametrize(("path", "value", "field", "words"), [
    ("domain.devices.gpus", [{"name": "g"}], f"{SPEC}.domain.devices.gpus", "not implemented"),
    ("domain.devices.disks.0.lun", {}, f"{SPEC}.domain.devices.disks[0].lun", "not implemented"),
    ("accessCredentials", [], f"{SPEC}.accessCredentials", "not implemented"),
    ("domain.machine.type", "s390x", f"{SPEC}.domain.machine.type", "Unsupported"),
    ("domain.memory.guest", "1Mi", f"{SPEC}.domain.memory.guest", "at least"),
    ("domain.memory.guest", "a lot", f"{SPEC}.domain.memory.guest", "quantity"),
    ("domain.firmware", {"uuid": "x"}, f"{SPEC}.domain.firmware.uuid", "UUID"),
    ("domain.devices.autoattachGraphicsDevice", True, f"{SPEC}.domain.devices.autoattachGraphicsDevice", "use q35"),
    ("networks", [], f"{SPEC}.domain.devices.interfaces[0].name", "no network"),
    ("networks.0", {"name": "default", "multus": {}}, f"{SPEC}.networks[0].multus", "not implemented"),
    ("volumes", [], f"{SPEC}.domain.devices.disks[0].name", "no volume"),
    ("volumes.0", {"name": "root"}, f"{SPEC}.volumes[0]", "one source"),
    ("volumes.0", {"name": "root", "dataVolume": {"name": "d"}}, f"{SPEC}.volumes[0].dataVolume", "not implemented"),
    ("volumes.0", {"name": "root", "persistentVolumeClaim": {"claimName": "other/claim"}},
     f"{SPEC}.volumes[0].persistentVolumeClaim.claimName", "RFC 1123"),
    ("volumes.0", {"name": "root", "secret": {"secretName": "../other/secret"}},
     f"{SPEC}.volumes[0].secret.secretName", "RFC 1123"),
    ("volumes.0", {"name": "root", "hostDisk": {"path": "/etc/shadow", "type": "Disk"}},
     f"{SPEC}.volumes[0].hostDisk.path", "no folder"),
    ("volumes.0", {"name": "root", "cloudInitNoCloud": {"userData": "x" * 3000}},
     f"{SPEC}.volumes[0].cloudInitNoCloud.userData", "Too long"),
    ("readinessProbe", {"exec": {"command": ["x"]}}, f"{SPEC}.readinessProbe.exec", "not implemented"),
    ("hostname", "-", f"{SPEC}.hostname", "RFC 1123"),
])  # fmt: skip
def test_what_cannot_work_is_refused_by_name(path: str, value: Any, field: str, words: str) -> None:
    fields = {each.field: each.message for each in problems(changed(path, value))}
    assert field in fields, fields
    assert words in fields[field]


@pytest.mark.parametrize(("path", "allowed"), [
    ("/srv/disks/one.img", True), ("/srv/disks/a/b.img", True), ("/srv/disks", False), ("/srv/disks2/x", False),
    ("/srv/disks/../secret", False), ("srv/disks/x", False), ("/srv/disks/./x", False),
])  # fmt: skip
def test_disks_of_nodes_lie_only_where_the_administrator_says(path: str, *, allowed: bool) -> None:
    made = changed("volumes.0", {"name": "root", "hostDisk": {"path": path, "type": "Disk"}})
    assert (not problems(made, None, Policy(("/srv/disks",)))) == allowed


def test_running_and_run_strategy_exclude_each_other() -> None:
    both = with_defaults(machine("one"))
    both["spec"]["running"] = True
    assert [each.field for each in problems(both)] == ["spec.running"]


def test_an_instance_is_not_changed_while_it_runs_but_for_its_grace() -> None:
    old = {
        "kind": "VirtualMachineInstance",
        "metadata": {},
        "spec": with_defaults(machine("a"))["spec"]["template"]["spec"],
    }
    shorter = {**old, "spec": {**old["spec"], "terminationGracePeriodSeconds": 1}}
    other = {**old, "spec": {**old["spec"], "hostname": "other"}}
    assert problems(shorter, old) == []
    assert [each.field for each in problems(other, old)] == ["spec"]


def test_migrations_are_refused_with_the_reason() -> None:
    asked = {"kind": "VirtualMachineInstanceMigration", "metadata": {}, "spec": {"vmiName": "one"}}
    assert "live migration is not implemented" in problems(asked)[0].message


def test_fields_that_change_nothing_are_told() -> None:
    warned = warnings(VM, changed("domain.features", {"acpi": {}})["spec"])
    assert warned == [f"{SPEC}.domain.features changes nothing: features are those of the machine type"]


def review(obj: JsonObject, old: JsonObject | None = None) -> JsonObject:
    """Return an AdmissionReview."""
    request = {"uid": "u", "object": obj, "oldObject": old, "namespace": "default", "name": "x"}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def test_the_patch_of_a_review_makes_the_defaults() -> None:
    obj = machine("one")
    answer = webhooks.mutated(review(obj))["response"]
    steps = json.loads(base64.b64decode(answer["patch"]))
    assert all(each["op"] == "add" for each in steps)
    assert json_patch(obj, steps) == with_defaults(obj)


@pytest.mark.parametrize("spec", [None, 5, [], {"template": 5}, {"template": {"spec": {"domain": 5}}},
                                  {"template": {"spec": {"domain": {}, "volumes": 7}}}])  # fmt: skip
def test_what_is_malformed_is_left_to_the_schema(spec: Any) -> None:
    answer = webhooks.mutated(review({"kind": "VirtualMachine", "metadata": {"name": "x"}, "spec": spec}))
    assert answer["response"]["allowed"]


def test_defaults_never_replace_what_is_there() -> None:
    assert patch({"a": 1}, {"a": 1, "b/c": 2}) == [{"op": "add", "path": "/b~1c", "value": 2}]


def test_the_definitions_are_served_with_every_kind() -> None:
    for kind, definition in zip(KINDS, definitions(), strict=True):
        assert definition["metadata"]["name"] == kind.resource
        assert definition["spec"]["names"]["kind"] == kind.kind
    assert set(table()) == {kind.kind for kind in KINDS}


def test_what_is_installed_is_yaml_and_names_its_server() -> None:
    made = installation.objects(["192.0.2.1"], 6452, b"PEM")
    assert list(yaml.safe_load_all(yaml.safe_dump_all(made))) == made
    hooks = [each for each in made if "WebhookConfiguration" in each["kind"]]
    assert {hook["clientConfig"]["service"]["name"] for each in hooks for hook in each["webhooks"]} == {"virt-api"}
    names = [(each["kind"], each["metadata"]["name"]) for each in made]
    assert len(names) == len(set(names))


# --- what is believed ------------------------------------------------------------------------------------------------

ROOT = "/apis/subresources.kubevirt.io/v1/namespaces/shop"


@pytest.mark.parametrize(("path", "right"), [
    (f"{ROOT}/virtualmachineinstances/one/console", "console"),
    (f"{ROOT}/virtualmachineinstances/one/vnc", "vnc"),
    (f"{ROOT}/virtualmachineinstances/one/vnc/screenshot", "vnc/screenshot"),
    (f"{ROOT}/virtualmachineinstances/one/portforward/22/tcp", "portforward"),
])  # fmt: skip
def test_a_path_names_the_right_that_it_needs(path: str, right: str) -> None:
    target = target_of(path)
    assert target is not None
    assert (target.namespace, target.name, target.right) == ("shop", "one", right)


@pytest.mark.parametrize("path", ["/apis", f"{ROOT}/pods/one/console", f"{ROOT}/virtualmachines/one",
                                  "/apis/other/v1/namespaces/a/virtualmachines/b/start"])  # fmt: skip
def test_other_paths_name_nothing(path: str) -> None:
    assert target_of(path) is None


@pytest.mark.parametrize("head", [
    b"GET / HTTP/1.0\r\n\r\n", b"GET /\r\n\r\n", b"GET / HTTP/1.1\r\nno header\r\n\r\n",
    b"GET / HTTP/1.1\r\nX-Remote-User : a\r\n\r\n", b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
])  # fmt: skip
def test_a_head_that_can_be_read_in_two_ways_is_refused(head: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse(head)


def test_the_caller_is_one_user() -> None:
    head = b"GET / HTTP/1.1\r\nX-Remote-User: a\r\nX-Remote-Group: g\r\nX-Remote-Group: h\r\n"
    head += b"X-Remote-Extra-K%2Fx: v\r\n\r\n"
    caller = caller_of(parse(head))
    assert (caller.name, caller.groups, dict(caller.extra)) == ("a", ("g", "h"), {"k/x": ["v"]})
    for wrong in (b"", b"X-Remote-User: a\r\nX-Remote-User: b\r\n", b"X-Remote-User:\r\n"):
        with pytest.raises(Exception, match="X-Remote-User"):
            caller_of(parse(b"GET / HTTP/1.1\r\n" + wrong + b"\r\n"))


def test_what_no_launcher_can_run_is_refused_by_its_field() -> None:
    answer = webhooks.validated(review(changed("domain.cpu.cores", 100)), Policy())["response"]
    assert not answer["allowed"]
    assert answer["status"]["message"].startswith(f"{SPEC}.domain.cpu: 100 CPUs")


DAEMON, COLLECTOR = "system:minik8s:virtual-machines", "system:kube-controller-manager"


def launcher(image: str = "launcher:1", init: str = "setup:1", **meta: Any) -> JsonObject:
    labels = {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": "uid-1", "vm.kubevirt.io/name": "one"}
    return {
        "metadata": {"name": "p", "labels": labels, "ownerReferences": [{"uid": "uid-1"}], **meta},
        "spec": {
            "containers": [{"name": "compute", "image": image}],
            "initContainers": [{"name": "guest-setup", "image": init}],
        },
    }


def without_init(pod: JsonObject) -> JsonObject:
    return {**pod, "spec": {"containers": pod["spec"]["containers"]}}


@pytest.mark.parametrize(("user", "new", "allowed"), [
    ("somebody", launcher(annotations={"a": "b"}), True),
    ("somebody", launcher("trap:1"), False),
    ("somebody", launcher(init="trap:1"), False),
    ("somebody", without_init(launcher()), False),
    ("somebody", launcher(ownerReferences=[]), False),
    (COLLECTOR, launcher(ownerReferences=[]), True),
    (COLLECTOR, launcher("trap:1"), False),
    (DAEMON, launcher("other:1"), True),
])  # fmt: skip
def test_a_launcher_keeps_its_marks_and_images(user: str, new: JsonObject, allowed: bool) -> None:  # noqa: FBT001
    (policy,) = compiled(installation.policies()[:1], installation.policies()[1:])
    request = {"operation": "UPDATE", "userInfo": {"username": user}}
    found = evaluate(policy, {"object": new, "oldObject": launcher(), "request": request, "namespaceObject": None})
    assert [denial.reason for denial in found.denials] == ([] if allowed else ["Forbidden"])


def test_a_launcher_without_containers_that_set_it_up_keeps_its_image() -> None:
    (policy,) = compiled(installation.policies()[:1], installation.policies()[1:])
    request = {"operation": "UPDATE", "userInfo": {"username": "somebody"}}
    old = without_init(launcher())
    for new, denied in ((old, 0), (without_init(launcher("trap:1")), 1)):
        found = evaluate(policy, {"object": new, "oldObject": old, "request": request, "namespaceObject": None})
        assert len(found.denials) == denied
