"""Counted devices of a node: what its setting may say, and which of them a container gets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.core.section import Scope
from minik8s_modules.module_utils.minik8s.pods.container_plan import Sandbox
from minik8s_modules.module_utils.minik8s.pods.container_spec import normalized
from minik8s_modules.module_utils.minik8s.pods.containers import Containers, ObservedContainers
from minik8s_modules.module_utils.minik8s.pods.devices import Device, Held, Pool, held, parse, problems

KVM = {"resource": "devices.kubevirt.io/kvm", "path": "/dev/kvm", "count": 110}
GPUS = {"resource": "nvidia.com/gpu", "paths": ["/dev/nvidia0", "/dev/nvidia1"], "beside": ["/dev/nvidiactl"]}


def test_a_setting_is_read_and_told_again() -> None:
    found = parse([KVM, GPUS], "minik8s_devices")
    assert found[0] == Device("devices.kubevirt.io/kvm", ("/dev/kvm",), 110, shared=True)
    assert (found[1].amount, found[1].shared, found[1].permissions) == (2, False, "rw")
    assert parse([one.as_json() for one in found], "again") == found


def test_what_ansible_fills_in_is_taken_for_left_out() -> None:
    assert parse([{**GPUS, "path": None, "count": None}], "x") == parse([GPUS], "x")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"resource": "gpu"}, r"minik8s_devices\[0\]\.resource must be like example.com/dongle"),
        ({"resource": "kubernetes.io/batteries"}, "are Kubernetes' own"),
        ({"resource": "requests.example.com/x"}, "are Kubernetes' own"),
        ({"resource": None}, "resource must be like"),
        ({"path": "/etc/shadow"}, "must be of paths below /dev, not '/etc/shadow'"),
        ({"path": "/dev/../etc/shadow"}, r"without \. and \.\."),
        ({"path": "/dev/a b"}, "must be of paths below /dev"),
        ({"path": "/dev/a\nb"}, "must be of paths below /dev"),
        ({"path": "/dev/a\0"}, "must be of paths below /dev"),
        ({"paths": ["/dev/x"]}, "either path, .* or paths"),
        ({"path": None}, "either path, .* or paths"),
        ({"count": 0}, "must be a number from 1 to 10000, not 0"),
        ({"count": True}, "must be a number"),
        ({"count": "2"}, "must be a number"),
        ({"permissions": "wr"}, "of r, w and m"),
        ({"permissions": "rwx"}, "of r, w and m"),
        ({"beside": "/dev/x"}, "must be a list of paths"),
        ({"beside": ["/dev/kvm"]}, "beside names /dev/kvm, which is counted"),
        ({"mode": "0666"}, "mode is not known"),
    ],
)
def test_what_cannot_be_used_is_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse([{**KVM, **changes}], "minik8s_devices")
    assert len(problems([{**KVM, **changes}])) == 1


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({}, "must be a list of devices"),
        (["/dev/kvm"], "must have resource"),
        ([KVM, KVM], "resource devices.kubevirt.io/kvm is there twice"),
        ([KVM, {**KVM, "resource": "a.b/c"}], "path /dev/kvm is there twice"),
        ([{**GPUS, "paths": []}], "paths is empty"),
        ([{**GPUS, "paths": ["/dev/a", "/dev/a"]}], "path /dev/a is there twice"),
        ([{**GPUS, "count": 2}], "count goes with path"),
    ],
)
def test_lists_that_cannot_be_used_are_named(setting: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse(setting, "minik8s_devices")


def test_what_is_there_is_counted() -> None:
    kvm, gpus = parse([KVM, GPUS], "x")
    assert (kvm.left(["/dev/kvm"]), kvm.left([])) == (110, 0)
    assert gpus.left(["/dev/nvidia1", "/dev/nvidiactl"]) == 1
    assert gpus.left(["/dev/nvidia0", "/dev/nvidia1"]) == 0, "without what comes along there is none"


# Who has which


def wanted(count: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "devices": [
            {
                "resource": "e.com/d",
                "count": count,
                "paths": ["/dev/a", "/dev/b", "/dev/c"],
                "shared": False,
                "beside": [],
                "permissions": "rw",
                **changes,
            }
        ]
    }


def pool(*known: Held, there: str = "abc") -> Pool:
    return Pool(known, {f"/dev/{name}": True for name in there})


def given(made: Pool, key: str, entry: Any) -> list[str]:
    return list(made.give(key, entry)["devices"][0]["paths"])


def has(key: str, *names: str, alive: bool = True) -> Held:
    return Held(key, frozenset(f"/dev/{name}" for name in names), alive)


def test_no_two_containers_of_a_pass_get_one_device() -> None:
    made = pool()
    assert [given(made, f"{number}/app", wanted()) for number in range(3)] == [["/dev/a"], ["/dev/b"], ["/dev/c"]]
    with pytest.raises(KeyFault, match="3 of 3 are taken, 1 wanted") as refused:
        made.give("4/app", wanted())  # type: ignore[arg-type]
    assert refused.value.reason == "DeviceMissing"


def test_who_runs_keeps_what_it_has_whatever_the_order() -> None:
    made = pool(has("2/app", "a"))
    assert given(made, "1/app", wanted()) == ["/dev/b"]
    assert given(made, "2/app", wanted()) == ["/dev/a"]


def test_a_later_attempt_gets_what_the_one_before_had() -> None:
    assert given(pool(has("2/app", "b", alive=False)), "2/app", wanted()) == ["/dev/b"]


def test_what_an_ended_container_had_is_given_last() -> None:
    made = pool(has("1/app", "a", alive=False))
    assert [given(made, f"{number}/x", wanted()) for number in (2, 3, 4)] == [["/dev/b"], ["/dev/c"], ["/dev/a"]]


def test_an_init_container_hands_on() -> None:
    assert given(pool(has("1/init", "b", alive=False)), "1/app", wanted()) == ["/dev/b"]


def test_one_that_is_no_device_is_not_given() -> None:
    made = pool(there="c")
    assert given(made, "1/app", wanted()) == ["/dev/c"]
    with pytest.raises(KeyFault, match="1 of 1 are taken"):
        made.give("2/app", wanted())  # type: ignore[arg-type]


def test_several_are_given_together_or_not_at_all() -> None:
    made = pool(has("1/app", "b"))
    assert given(made, "2/app", wanted(2)) == ["/dev/a", "/dev/c"]
    with pytest.raises(KeyFault, match="3 of 3 are taken, 2 wanted"):
        made.give("3/app", wanted(2))  # type: ignore[arg-type]


def test_all_share_what_is_shared_if_it_is_there() -> None:
    shared = wanted(paths=["/dev/a"], shared=True)
    made = pool(there="a")
    assert [given(made, f"{number}/app", shared) for number in range(3)] == [["/dev/a"]] * 3
    with pytest.raises(KeyFault, match="/dev/a is no device of this node"):
        pool(there="").give("1/app", shared)  # type: ignore[arg-type]


def test_what_comes_along_must_be_there() -> None:
    with pytest.raises(KeyFault, match="needs /dev/ctl, which is no device"):
        pool().give("1/app", wanted(beside=["/dev/ctl"]))  # type: ignore[arg-type]


def test_a_container_that_wants_none_is_left_as_it_is() -> None:
    entry: Any = {"devices": []}
    assert pool().give("1/app", entry) is entry


def test_labels_tell_who_has_what() -> None:
    marks = {"minik8s.io/pod-uid": "u1", "minik8s.io/container": "app", "minik8s.io/devices": "/dev/a /dev/b"}
    listed = [{"Labels": marks, "State": "exited"}, {"Labels": {}, "State": "running"}]
    assert held(listed) == [Held("u1/app", frozenset({"/dev/a", "/dev/b"}), alive=False)]


@pytest.mark.parametrize(
    ("holder", "errors", "due"),
    [
        (has("u0/app", "a"), [], ["u1/app"]),
        (has("u0/app", "a", alive=False), [], []),
        (has("u2/app", "a"), ["u1/app"], []),
    ],
)
def test_a_device_is_given_once_its_holder_is_gone(holder: Held, errors: list[str], due: list[str]) -> None:
    """``u0/app`` is removed by this very pass, beside which others are made; ``u2/app`` is outside of it."""
    uid = "u1"
    entry: Any = {
        "pod": {"uid": uid, "name": "web", "namespace": "default"}, "name": "app", "type": "app", "attempt": 0,
        "sandbox_attempt": 0, "state": "running", "image": "i:1", **wanted(paths=["/dev/a"]),
    }  # fmt: skip
    key = f"{uid}/app"
    full = normalized(key, entry)
    observed = ObservedContainers(
        {key: full}, {}, {uid: [Sandbox("pause", 0, running=True)]}, {}, {key: []}, {}, 0.0, b"", {}, frozenset(), {},
        [holder], {"/dev/a": True},
    )  # fmt: skip
    context: Any = SimpleNamespace(check=False, unattended=False)
    plan = Containers().plan(context, {key: entry}, observed, Scope(frozenset({"u0/app", key})))
    assert ([*plan.errors], [one.key for one in plan.due]) == (errors, due)
    assert [step.action for step in plan.steps] == ([] if errors or due else ["create", "start"])
