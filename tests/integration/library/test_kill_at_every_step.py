"""kill -9 before every single effect: the next run converges, the same delta fits again, and no orphan is left.

A child process runs the pass and kills itself before effect k; k grows until the pass gets through. What stands on the
node after the repair is compared with what an undisturbed pass leaves.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core import labels
from minik8s_modules.module_utils.minik8s.core.docker import Docker
from minik8s_modules.module_utils.minik8s.pods import host_ports, pod_cgroup
from tests.integration.library.test_containers_docker import as_blob
from tests.support.node import SOCKET, TestNode

MOST_EFFECTS = 60
SECTIONS = ("network", "secrets", "volumes", "sandboxes", "sidecars", "containers")
SECRET: dict[str, Any] = {"default/database": {"hmac": "a1", "keys": ["password"]}}
CGROUP = {"cpu_shares": 512, "cpu_quota_us": 50_000, "memory_bytes": 64 << 20}
PORT = {"ip": "", "protocol": "TCP", "host_port": 23463, "port": 80}
BLOB = as_blob({"default/database": {"password": "x"}})


class Killer:
    """A checkpoint that kills its own process before effect number ``at``."""

    def __init__(self, at: int) -> None:
        self._left = at

    def __call__(self, _effect: str) -> None:
        """Die, or count one effect."""
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1


def survives(node: TestNode, at: int, section: str, options: dict[str, Any]) -> bool:
    """Run a pass in a child that dies before effect ``at``; return whether it got through."""
    pid = os.fork()
    if pid == 0:
        try:
            context = {"checkpoint": Killer(at), "docker": Docker(SOCKET), "threads": 1}
            result = node.run(section, context=context, **options)
            os._exit(0 if not result["errors"] else 3)
        finally:
            os._exit(4)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, status
    return not os.WIFSIGNALED(status)


def picture(node: TestNode) -> dict[str, Any]:
    """Return everything of the node, without what differs by nature (ids, payload times, salts)."""
    files = {}
    for folder in (node.state_dir, node.run_dir):
        for path in sorted(Path(folder).rglob("*")):
            name = re.sub(r"\.\.\d{4}_[\d_.]+", "..TIME", str(path))
            if path.is_symlink():
                files[name] = "-> " + re.sub(r"\.\.\d{4}_[\d_.]+", "..TIME", str(path.readlink()))
            elif path.is_dir():
                files[name] = f"directory {path.stat().st_mode:o}"
            elif path.name.startswith((".sealed", "secrets.sealed")):
                files[name] = "sealed"
            elif path.parent.name == "stopping":
                files[str(path.parent) + "/ID"] = "marker"
            else:
                files[name] = f"{path.stat().st_mode:o} " + hashlib.sha256(path.read_bytes()).hexdigest()
    listed = node.docker.containers({labels.NODE: node.name})
    traces = node.traces()
    return {
        "files": {name: text for name, text in files.items() if not name.endswith("/stopping/" + name[-64:])},
        "containers": sorted((each["Names"][0], each["State"]) for each in listed),
        **{name: traces[name] for name in ("links", "mounts", "nft", "iptables")},
        "ports": host_ports.observe(node.name),
        "cgroups": pod_cgroup.left_over(node.name, []),
    }


def volumes_of(uid: str, text: str) -> dict[str, Any]:
    """Return one volume of each kind we make."""
    data = base64.b64encode(text.encode()).decode()
    return {
        f"{uid}/data": {"kind": "emptyDir"},
        f"{uid}/fast": {"kind": "emptyDir", "medium": "Memory", "size_bytes": 4096},
        f"{uid}/config": {
            "kind": "configMap",
            "files": {"a": {"data": data, "mode": 420}, text: {"data": data, "mode": 420}},
        },
        f"{uid}/secret": {
            "kind": "secret",
            "secret": "default/database",
            "hmac": "a1",
            "items": {"pw": {"key": "password", "mode": 256}},
        },
    }


def scenario(node: TestNode, name: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Prepare the node; return the section, the options it comes from and those it goes to."""
    pod = node.pod(7, cgroup=CGROUP, host_ports=[PORT], sysctls=[["net.ipv4.tcp_syncookies", "0"]])
    uid = pod["pod"]["uid"]
    app = node.container(pod)
    section, _, change = name.partition(" ")
    if section in {"sandboxes", "sidecars", "containers"}:
        node.run("network", node.network())
    if section in {"sidecars", "containers"}:
        node.run("sandboxes", {uid: pod})
    if section == "volumes":
        node.run("secrets", SECRET, blob=BLOB)
    first: dict[str, Any] = {
        "network": node.network(),
        "secrets": SECRET,
        "volumes": volumes_of(uid, "one"),
        "sandboxes": {uid: pod},
        "sidecars": {uid: {"attempt": 0}},
        "containers": {f"{uid}/app": app},
    }
    (bridge,) = node.network().items()
    second: dict[str, Any] = {
        "network": {bridge[0]: {**bridge[1], "mtu": 1400, "cidr": f"{node.range}.0/25"}},
        "secrets": {"default/database": {"hmac": "a2", "keys": ["token"]}},
        "volumes": volumes_of(uid, "two"),
        "sandboxes": {uid: {**pod, "attempt": 1}},
        "sidecars": {uid: {"attempt": 0, "exclude_inbound_ports": [22]}},
        "containers": {f"{uid}/app": {**app, "cmd": ["7200"], "entrypoint": ["sleep"]}},
    }
    blob = {"blob": BLOB} if section == "secrets" else {}
    full: dict[str, Any] = {"entries": first[section], **blob}
    empty: dict[str, Any] = {"entries": {}}
    if change == "made":
        return section, empty, full
    if change == "removed":
        return section, full, empty
    if change == "stopped":
        return section, full, {"entries": {f"{uid}/app": {**app, "stop": {"grace_s": 1000}}}}
    blob = {"blob": as_blob({"default/database": {"token": "y"}})} if section == "secrets" else {}
    return section, full, {"entries": second[section], **blob}


@pytest.mark.parametrize(
    "name",
    [
        *(f"{section} made" for section in SECTIONS),
        *(f"{section} changed" for section in SECTIONS),
        *(f"{section} removed" for section in SECTIONS),
        "containers stopped",
    ],
)
def test_a_module_killed_at_any_step_leaves_nothing_the_next_run_does_not_repair(node: TestNode, name: str) -> None:
    section, before, after = scenario(node, name)
    node.run(section, **before)
    node.run(section, token=[1, 1], **after)
    wanted = picture(node)
    for at in range(MOST_EFFECTS):
        reset(node, section, before)
        through = survives(node, at, section, {"token": [1, at + 2], **after})
        repaired = node.run(section, **after)
        assert not repaired["errors"], (at, repaired["errors"])
        assert not node.run(section, **after)["changed"], at
        found = picture(node)
        for each in (found, wanted):
            each["files"].pop(f"{node.state_dir}/token.json", None)
        assert found == wanted, at
        if through:
            assert at >= 2, "the pass had no effects to be killed at"
            return
    pytest.fail(f"more than {MOST_EFFECTS} effects")


def reset(node: TestNode, section: str, before: dict[str, Any]) -> None:
    """Bring the section back to where the scenario starts."""
    if before["entries"] and section in {"containers"}:
        node.run(section, {})
    assert not node.run(section, **before)["errors"]


def test_a_killed_delta_fits_again(node: TestNode) -> None:
    uid = node.pod(7)["pod"]["uid"]
    base = node.run("volumes", {})["digest"]
    delta = {"mode": "delta", "base": base, "upsert": {f"{uid}/data": {"kind": "emptyDir"}}}
    for at in range(2):
        assert not survives(node, at, "volumes", delta)
        assert not node.run("volumes", **delta, check=True)["base_mismatch"]
    assert node.run("volumes", **delta)["status"] == {f"{uid}/data": {"state": "present"}}


def test_a_killed_holder_of_the_lock_does_not_block_the_next_run(node: TestNode) -> None:
    assert not survives(node, 0, "volumes", {"entries": {}, "token": [1, 1]})
    assert not node.run("volumes", {}, token=[1, 1])["fenced"]


@pytest.mark.parametrize("way", ["secrets made", "secrets removed", "volumes made"])
def test_nothing_stays_of_what_a_killed_pass_made_or_removed_beside_others(node: TestNode, way: str) -> None:
    section, _, full = scenario(node, way.replace("removed", "made"))
    kept: dict[str, Any] = {"other/kept": {"hmac": "b1", "keys": ["k"]}} if section == "secrets" else {}
    values = {"default/database": {"password": "x"}, "other/kept": {"k": "y"}}
    blob: dict[str, Any] = {"blob": as_blob(values)} if section == "secrets" else {}
    both = kept | full["entries"]
    for entries in (both, kept):  # the folders that all share stay
        node.run(section, entries, **blob)
    wanted = picture(node)
    for at in range(MOST_EFFECTS):
        node.run(section, both if way.endswith("removed") else kept, **blob)
        asked = kept if way.endswith("removed") else both
        through = survives(node, at, section, {"entries": asked, "token": [1, at + 2], **blob})
        assert not node.run(section, kept)["errors"], at
        found = picture(node)
        found["files"].pop(f"{node.state_dir}/token.json", None)
        assert found == wanted, at
        assert not node.run(section, kept)["changed"], at
        if through:
            return
    pytest.fail(f"more than {MOST_EFFECTS} effects")


def test_a_delta_that_was_killed_while_it_removed_removes_the_rest_when_it_is_sent_again(node: TestNode) -> None:
    declared = volumes_of(node.pod(7)["pod"]["uid"], "one")
    node.run("secrets", SECRET, blob=BLOB)
    for entries in (declared, {}):
        node.run("volumes", entries)
    wanted = picture(node)
    for at in range(MOST_EFFECTS):
        delta = {"mode": "delta", "base": node.run("volumes", declared)["digest"], "delete": [*declared]}
        if survives(node, at, "volumes", delta):
            return
        assert not node.run("volumes", **delta)["errors"], at
        assert picture(node) == wanted, at
    pytest.fail(f"more than {MOST_EFFECTS} effects")
