"""The sections' plans as data: tests/cases/plan_*/<sentence>.yml, and a crash after each step of a plan."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.module_utils.minik8s.core import labels
from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.core.section import Context, Plan, Request, Scope, context_for
from minik8s_modules.module_utils.minik8s.entries.containers import ContainerEntry
from minik8s_modules.module_utils.minik8s.network import attachment, interception, netfilter, network_bridge, sidecars
from minik8s_modules.module_utils.minik8s.network import network as net
from minik8s_modules.module_utils.minik8s.network.netlink import Address, Link
from minik8s_modules.module_utils.minik8s.pods import sandbox_plan, sandboxes
from minik8s_modules.module_utils.minik8s.pods.container_plan import ContainerInputs, Sandbox, plan_container
from minik8s_modules.module_utils.minik8s.pods.container_spec import Mount, body_of, normalized
from minik8s_modules.module_utils.minik8s.volumes import persistent, secrets, volumes
from minik8s_modules.module_utils.minik8s.volumes.volume_files import File, Tree, links_for

CASES = Path(__file__).parents[2] / "cases"
UID = "4ab1c2d3-0000-4000-8000-000000000001"
POD = {"uid": UID, "name": "web", "namespace": "default"}
KEY = f"{UID}/app"
NOW = 1_000_000.0
MOUNT = Mount("/state/pods/data", "/data", read_only=True, root="/state/pods/data")
IMAGE = {"Env": ["PATH=/bin"], "Cmd": ["from-image"], "WorkingDir": "/w"}


def cases(function: str) -> list[Any]:
    """Return the cases of a function; the file name is the sentence."""
    found = sorted((CASES / function).glob("*.yml"))
    assert found
    return [pytest.param(yaml.safe_load(path.read_text()), id=path.stem) for path in found]


def context(**changes: Any) -> Context:
    """Return a context nothing is done with."""
    return context_for(Request("n1", state_dir="/state", run_dir="/run"), **changes)


def check(plan: Plan, case: dict[str, Any]) -> None:
    """Compare a plan with what its case expects."""
    assert [step.action for step in plan.all_steps()] == case["steps"]
    assert [step.action for step in plan.opening] == case.get("opening", [step.action for step in plan.opening])
    assert [[due.after_s, due.reason] for due in plan.due] == case.get("due", [])
    listed = [(fault.reason, str(fault)) for fault in plan.errors.values()]
    expected = case.get("error")
    assert bool(listed) == bool(expected), listed
    assert not expected or expected in listed[0]
    touched = {step.key for step in plan.steps}
    assert touched <= set(plan.before) | set(plan.after), "every step shows in the diff"


def container_entry(case: dict[str, Any]) -> ContainerEntry:
    """Return the case's normalized entry."""
    mount = {"volume": "data", "kind": "emptyDir", "target": "/data", "read_only": True}
    entry = {
        "pod": POD,
        "name": "app",
        "type": "app",
        "attempt": 0,
        "sandbox_attempt": 0,
        "state": "running",
        "image": "busybox:1",
        "env": [["A", "right"]],
        "user": "1000",
        "cpu_shares": 100,
        "memory_bytes": 1 << 26,
        "mounts": [mount],
        **case.get("entry", {}),
    }
    return normalized(KEY, entry)


def as_docker_shows(entry: ContainerEntry, found: dict[str, Any]) -> dict[str, Any]:
    """Return the inspection Docker gives of a container made from ``entry``, with the case's differences."""
    made = body_of("n1", entry | {"attempt": found["attempt"]}, "pause", [MOUNT], {}, b"")
    host = made.pop("HostConfig")
    host = {**host, "CpuQuota": found.get("cpu_quota", 0), "Memory": found.get("memory", host["Memory"])}
    config = {**IMAGE, **made, "Env": [*IMAGE["Env"], *found.get("env", made["Env"])]}
    config["Image"] = found.get("image", config["Image"])
    config["User"] = found.get("user", config["User"])
    config["Cmd"] = found.get("cmd", config["Cmd"])
    config["Labels"] = {**config["Labels"], **found.get("labels", {})}
    bind = {"Type": "bind", "Source": MOUNT.source, "Destination": "/data", "RW": found.get("writable", False)}
    host["NetworkMode"] = found.get("network", host["NetworkMode"])
    host["CpuShares"] = found.get("cpu_shares", host["CpuShares"])
    return {
        "Id": f"id{found['attempt']}",
        "Name": f"/mk8s_app_{found['attempt']}",
        "Image": "sha256:1",
        "Config": config,
        "HostConfig": host,
        "Mounts": found.get("mounts", [bind]),
        "State": {
            "Status": found["state"],
            "Error": found.get("error", ""),
            "ExitCode": found.get("exit_code", 0),
            "StartedAt": "2026-01-01T00:00:00Z",
        },
    }


def seen_of(case: dict[str, Any], entry: ContainerEntry, found: list[dict[str, Any]]) -> ContainerInputs:
    """Return what the plan of a container looks at."""
    sandbox = case.get("sandbox", {"attempt": 0, "running": True})
    ago = {f"id{each['attempt']}": each["signalled_s_ago"] for each in found if "signalled_s_ago" in each}
    return ContainerInputs(
        [as_docker_shows(entry, each) for each in found],
        Sandbox("pause", **sandbox) if sandbox else None,
        KeyFault("CreateContainerConfigError", "no") if case.get("mount_fault") else [MOUNT],
        {"sha256:1": IMAGE} if case.get("image_known", True) else {},
        {container: NOW - seconds for container, seconds in ago.items()},
        NOW,
        b"",
        bool(case.get("unattended")),
        frozenset(f"id{each['attempt']}" for each in found if each.get("mountless")),
        unmade=case.get("unmade", ""),
    )


@pytest.mark.parametrize("case", cases("plan_containers"))
def test_plan_container(case: dict[str, Any]) -> None:
    entry, plan = container_entry(case), Plan()
    found = case.get("containers", [])
    plan_container(plan, KEY, entry, seen_of(case, entry, found))
    check(plan, case)


def after_step(action: str, step: Any, found: list[dict[str, Any]], entry: ContainerEntry) -> None:
    """Do to the case's containers what one step does to Docker's."""
    here = {f"id{each['attempt']}": each for each in found}
    target = step.data if isinstance(step.data, str) else step.data[0] if step.data else None
    if action == "remove":
        found.remove(here[str(target)])
    elif action == "create":
        found.append({"attempt": entry["attempt"], "state": "created"})
    elif action == "start":
        next(each for each in found if each["attempt"] == entry["attempt"])["state"] = "running"
    elif action == "kill":
        here[str(target)]["state"] = "exited"
    elif action == "unpause":
        here[str(target)]["state"] = "running"
    elif action == "signal":
        here[str(target)]["signalled_s_ago"] = 0
    else:
        for name in ("memory", "cpu_shares", "cpu_quota"):
            here[str(target)].pop(name, None)


@pytest.mark.parametrize("case", cases("plan_containers"))
def test_a_crash_after_any_step_leads_to_the_remaining_ones(case: dict[str, Any]) -> None:
    entry, found = container_entry(case), [dict(each) for each in case.get("containers", [])]
    for remaining in range(len(case["steps"]), 0, -1):
        plan = Plan()
        plan_container(plan, KEY, entry, seen_of(case, entry, found))
        assert [step.action for step in plan.steps] == case["steps"][-remaining:]
        after_step(plan.steps[0].action, plan.steps[0], found, entry)


def sandbox_entry(case: dict[str, Any]) -> dict[str, Any]:
    """Return the case's sandbox entry."""
    return {
        "pod": POD,
        "attempt": 0,
        "image": "pause:1",
        "hostname": "web",
        "host_network": False,
        "ip": "10.1.0.7",
        "prefix_length": 24,
        "gateway": "10.1.0.1",
        "bridge": "mk8s-br0",
        "mtu": 1500,
        "dns": {"nameservers": [], "searches": [], "options": []},
        **case.get("entry", {}),
    }


@pytest.mark.parametrize("case", cases("plan_sandboxes"))
def test_plan_sandbox(case: dict[str, Any]) -> None:
    entry = sandbox_entry(case)
    right = attachment.declared_attachment(UID, sandbox_entry({}))
    containers, attachments = [], {}
    for found in case.get("containers", []):
        number = f"id{found['attempt']}"
        marks = {labels.ATTEMPT: str(found["attempt"]), labels.POD_UID: UID}
        network = {"NetworkMode": found.get("network", "none")}
        config = {"Labels": marks, "Image": "pause:1"}
        containers.append(
            {
                "Id": number,
                "Name": f"/{number}",
                "Config": config,
                "HostConfig": network,
                "State": {"Status": found["state"]},
            }
        )
        if found["state"] == "running":
            attachments[number] = right._replace(**{name: found[name] for name in right._fields if name in found})
    stray = Link(9, "mk8s-4ab1c2d3", "veth", 0, True, 1500, "")  # noqa: FBT003  (a record as the kernel gives it)
    observed = sandbox_plan.ObservedSandboxes(
        {UID: containers} if containers else {}, attachments, {UID: [stray]} if case.get("stray") else {}
    )
    entries = {UID: entry} if case.get("declared", True) else {}
    unattended = bool(case.get("unattended"))
    check(sandboxes.Sandboxes().plan(context(unattended=unattended), entries, observed, Scope()), case)


@pytest.mark.parametrize("case", cases("plan_sidecars"))
def test_plan_sidecars(case: dict[str, Any]) -> None:
    by = case.get("program", interception.IPTABLES)
    pods: dict[str, sidecars.Found | KeyFault] = {}
    if (found := case.get("found")) is not None:
        entry = {"attempt": 0, **found["as"]} if found else {}
        rules = interception.both(interception.rules_of(entry), interception.rules_of_ipv6(entry)) if found else {}
        chains = interception.shown(rules, by)
        pods[UID] = sidecars.Found(
            "sandbox", {name: each for name, each in chains.items() if name not in found.get("without", ())}
        )
    if case.get("fault"):
        pods[UID] = KeyFault("InvalidEntry", case["fault"])
    entries = {UID: {"attempt": 0, **case.get("entry", {})}} if case.get("declared", True) else {}
    observed = sidecars.Observed(by, pods, case.get("ipv6", True))
    check(sidecars.Sidecars().plan(context(check=bool(case.get("check"))), entries, observed, Scope()), case)


@pytest.mark.parametrize("case", cases("plan_secrets"))
def test_plan_secrets(case: dict[str, Any]) -> None:
    entries = {f"default/{name}": {"hmac": each, "keys": ["k"]} for name, each in case["declared"].items()}
    intact = not case.get("harmed", False)
    found = {
        f"default/{name}": secrets.StoredSecret(("k",), each, intact) for name, each in case.get("found", {}).items()
    }
    found |= {f"default/{name}": secrets.StoredSecret((), "", intact=False) for name in case.get("empty", ())}
    mark = secrets.sealed_mark(entries, "mac") if case.get("sealed") else ""
    ready = case.get("ready", True)
    observed = secrets.ObservedSecrets(
        found, ready, case.get("can_go", True), mark, {}, "mac" if case.get("sealed") else "", case.get("hollow", ())
    )
    check(secrets.Secrets().plan(context(), entries, observed, Scope()), case)


@pytest.mark.parametrize("case", cases("plan_volumes"))
def test_plan_volume(case: dict[str, Any]) -> None:
    key, entry = f"{UID}/{case.get('name', 'v')}", case.get("entry")
    path = case.get("place", f"/state/pods/{UID}/volumes/v")
    there = "facets" in case and (entry or {}).get("kind") not in {"hostPath", "local"}
    files = None
    if entry and entry["kind"] == "configMap":
        files = {name: File(base64.b64decode(row["data"]), row["mode"]) for name, row in entry["files"].items()}
    tree = {name: File(text.encode(), mode) for name, (text, mode) in case.get("tree", {}).items()}
    observed = volumes.ObservedVolumes(
        {key: case["facets"]} if "facets" in case else {},
        {key: path} if there else {},
        frozenset({UID} if case.get("running") else ()),
        {key: files},
        {key: Tree(tree, links_for(tree), case.get("leftovers", []))} if there else {},
        tmpfs_ready=True,
        tmpfs_idle=bool(case.get("tmpfs_idle")),
        tmpfs_volumes=frozenset({path} if there and path.startswith("/run/secrets/") else ()),
        answers={key: case.get("answer", "")},
        groups=persistent.groups(case.get("others", {})),
        hollow={UID: case["hollow"]} if "hollow" in case else {},
    )
    asking = context(check=bool(case.get("check")))
    check(volumes.Volumes().plan(asking, {key: entry} if entry else {}, observed, Scope()), case)


@pytest.mark.parametrize("case", cases("plan_network"))
def test_plan_network(case: dict[str, Any]) -> None:
    entry = {"driver": "bridge", "bridge": "br-a", "cidr": "10.1.0.0/24", "gateway": "10.1.0.1"}
    entry_full: dict[str, Any] = {**entry, "cluster_cidr": "10.1.0.0/16", "mtu": 1500}
    found = case.get("found", {})
    observed = network_bridge.ObservedNetwork({}, [], "0", {}, {})
    if found is not None:
        up, alias = found.get("up", True), found.get("alias", network_bridge.alias_of("n1"))
        rules = netfilter.forward_rules("n1", "br-a") * (2 if found.get("doubled") else 1)
        chain = [netfilter.HOOK, netfilter.masquerade_rule("n1", "10.1.0.0/24", "10.1.0.0/16")]
        there = found.get("addresses", ["10.1.0.1/24"])
        mac, delay = found.get("mac", "0a:58:0a:01:00:01"), found.get("delay", 0)
        observed = network_bridge.ObservedNetwork(
            {} if found.get("gone") else {"br-a": Link(5, "br-a", "bridge", 0, up, 1500, alias, mac=mac, delay=delay)},
            [Address(5, each.partition("/")[0], int(each.partition("/")[2])) for each in there],
            found.get("forwarding", "1"),
            found.get("chains", {"br-a": chain}),
            found.get("forwards", {"br-a": rules}),
        )
    entries = {network_bridge.KEY: entry_full} if case.get("declared", True) else {}
    plan = net.Network().plan(context(), entries, observed, Scope())
    names = [step.data[0] if step.action == "mend" else step.action for step in plan.steps]
    assert names == case["steps"]
    assert bool(plan.steps) == bool(plan.before)
