"""securityContext on real Docker: what a container may do is what was declared, seen from inside."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.pods import security
from tests.integration.library.test_pod_parts_docker import start
from tests.support.node import TestNode, command

NO_CAPABILITIES = "0000000000000000"


def status(node: TestNode, container: str) -> dict[str, str]:
    """Return /proc/self/status of a program in the container."""
    text = node.execute(container, "cat", "/proc/self/status")
    return {name: value.strip() for name, value in re.findall(r"^(\w+):(.*)$", text, re.MULTILINE)}


def run(node: TestNode, **changes: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Start a pod with one container; return its id and both entries."""
    pod = node.pod(7)
    container = node.container(pod, **changes)
    ids = start(node, [pod], [container])
    return next(iter(ids.values())), pod, container


def test_a_restricted_container_has_nothing_it_was_not_given(node: TestNode) -> None:
    asked = {
        "cap_drop": ["ALL"],
        "cap_add": ["NET_BIND_SERVICE"],
        "no_new_privileges": True,
        "read_only_root": True,
        "groups": [3000, 4000],
        "non_root": True,
    }
    found, _, container = run(node, user="1000:2000", security=asked)
    seen = status(node, found)
    assert int(seen["CapBnd"], 16) == 1 << 10  # CAP_NET_BIND_SERVICE alone
    assert seen["NoNewPrivs"] == "1"
    assert seen["Seccomp"] == "2"
    assert node.execute(found, "id").startswith("uid=1000 gid=2000 groups=2000,3000,4000")
    with pytest.raises(AssertionError, match="Read-only file system"):
        node.execute(found, "touch", "/x")
    key = f"{container['pod']['uid']}/app"
    assert not node.run("containers", {key: container})["changed"]
    changed = node.run("containers", {key: {**container, "security": {**asked, "read_only_root": False}}}, check=True)
    assert [step["action"] for step in changed["steps"]] == ["remove", "create", "start"]


def test_profiles_are_dockers_none_or_the_nodes_own(node: TestNode) -> None:
    profiles = Path(node.state_dir) / "seccomp" / "team"
    profiles.mkdir(parents=True)
    rule = {"names": ["chmod", "fchmodat", "fchmod", "fchmodat2"], "action": "SCMP_ACT_ERRNO"}
    (profiles / "no-chmod.json").write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule]}))
    pod = node.pod(7)
    containers = [
        node.container(pod, "free", security={"seccomp": "unconfined", "apparmor": "unconfined"}),
        node.container(pod, "own", security={"seccomp": "localhost/team/no-chmod.json"}),
        node.container(pod, "labelled", security={"selinux": ["type:container_t", "level:s0:c1,c2"]}),
    ]
    free, own, _ = start(node, [pod], containers).values()
    assert status(node, free)["Seccomp"] == "0"
    with pytest.raises(AssertionError, match="Operation not permitted"):
        node.execute(own, "chmod", "700", "/tmp")
    lost = node.container(pod, "lost", security={"seccomp": "localhost/team/lost.json"})
    result = node.run("containers", {f"{pod['pod']['uid']}/lost": lost})
    error = result["errors"][f"{pod['pod']['uid']}/lost"]
    assert error["reason"] == "CreateContainerConfigError"
    assert "seccomp/team/lost.json" in error["message"]


def test_an_apparmor_profile_is_refused_where_the_kernel_has_none(
    node: TestNode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(security, "APPARMOR", str(tmp_path / "enabled"))
    pod = node.pod(7)
    key = f"{pod['pod']['uid']}/app"
    node.run("network", node.network())
    node.run("sandboxes", {pod["pod"]["uid"]: pod})
    result = node.run("containers", {key: node.container(pod, security={"apparmor": "team-profile"})})
    assert result["errors"][key]["reason"] == "CreateContainerConfigError"
    assert "AppArmor is not enabled" in result["errors"][key]["message"]


def test_proc_is_masked_unless_it_is_asked_for_whole(node: TestNode) -> None:
    pod = node.pod(7)
    containers = [node.container(pod, "masked"), node.container(pod, "whole", security={"unmasked_proc": True})]
    masked, whole = start(node, [pod], containers).values()
    assert " on /proc/timer_list " in node.execute(masked, "mount")
    assert "/proc/" not in node.execute(whole, "mount")


def test_the_user_of_the_image_counts_where_root_is_refused(node: TestNode) -> None:
    for tag, user in (("number", "USER 1000"), ("name", "USER nobody")):
        command("sh", "-c", f"printf 'FROM minik8s/busybox:1\n{user}\n' "
                f"| DOCKER_BUILDKIT=0 docker build -q -t {node.name}:{tag} - >/dev/null")  # fmt: skip
    try:
        pod = node.pod(7)
        uid = pod["pod"]["uid"]
        asked = {"non_root": True}
        start(node, [pod], [node.container(pod, "number", image=f"{node.name}:number", security=asked)])
        entries = {
            f"{uid}/{name}": node.container(pod, name, image=image, security=asked)
            for name, image in (("root", "minik8s/busybox:1"), ("name", f"{node.name}:name"))
        }
        errors = node.run("containers", entries)["errors"]
        assert {error["reason"] for error in errors.values()} == {"CreateContainerConfigError"}
        where = f'(pod: "pod-7_default({uid})", container: '
        assert errors[f"{uid}/root"]["message"] == (
            f"container has runAsNonRoot and image will run as root {where}root)"
        )
        assert errors[f"{uid}/name"]["message"] == (
            "container has runAsNonRoot and image has non-numeric user (nobody), cannot verify user is non-root "
            f"{where}name)"
        )
    finally:
        for each in node.ids():
            node.docker.remove(each)
        command("docker", "rmi", "-f", f"{node.name}:number", f"{node.name}:name")


def test_a_group_alone_goes_with_the_user_of_the_image(node: TestNode) -> None:
    found, _, container = run(node, security={"group": 3000})
    assert node.execute(found, "id").startswith("uid=0(root) gid=3000")
    assert not node.run("containers", {f"{container['pod']['uid']}/app": container})["changed"]


def test_an_oom_score_is_as_low_as_this_machine_can_give(node: TestNode) -> None:
    found, _, container = run(node, oom_score_adj=-997)
    score = int(node.execute(found, "cat", "/proc/self/oom_score_adj"))
    assert score == max(-997, security.least_oom_score())
    assert not node.run("containers", {f"{container['pod']['uid']}/app": container})["changed"]


def test_standard_input_closes_after_its_first_user(node: TestNode) -> None:
    found, _, container = run(node, stdin=True, stdin_once=True)
    inspect = node.docker.inspect(found)
    assert inspect
    assert inspect["Config"]["StdinOnce"]
    assert not node.run("containers", {f"{container['pod']['uid']}/app": container})["changed"]
