"""What a node has of ours beyond the pods of the API, as a picture to compare before and after.

before = picture(cluster); …; assert not added(before, picture(cluster))
"""

from __future__ import annotations

import os
import re
import subprocess
import time

from minik8s_modules.api.kinds import POD
from minik8s_modules.module_utils.minik8s.network.netlink import Netlink
from minik8s_modules.module_utils.minik8s.volumes import mounts
from tests.support.clusters.installed import RUN, STATE, Installed

FDS_SLACK = 24  # pools of connections that fill once, to Docker and to the API
# live things that come and go by design: the run's own files, the time stamp, ids of processes
# and what a node keeps once it has had a Secret, a sub path, or a container to stop: its key, an empty tmpfs or folder
PASSING = re.compile(
    r"^/run/minik8s/(attended|daemons/|runner/|gateway|streams[^/]*\.sock$|secrets(/\.\w+)?$|sub-paths$|stopping$)"
    r"|/\.\.\d{4}_|/lock$|^/var/lib/minik8s/(node\.key|secrets\.sealed)$"
)

SECRETS = str(RUN / "secrets")
PASSING_PARTS = {"play worker", "warm interpreter"}

Picture = dict[str, set[str]]


def picture(cluster: Installed) -> Picture:
    """Return everything of the node by kind, without what belongs to a pod that the API knows."""
    pods = [one["metadata"] for one in cluster.admin.list(POD).items]
    owned = {one["uid"] for one in pods} | {f"/{one['namespace']}" for one in pods}  # secrets lie by namespace
    held = cluster.containers()
    owned |= {identity for name, identity in held.items() if any(uid in name for uid in owned)}
    everything = {
        "containers": set(held),
        "links": _links(cluster.node),
        "mounts": _mounts(),
        "rules": _rules(cluster.node),
        "files": _files(),
        "processes": _processes(cluster),
    }
    return {kind: {one for one in found if not any(uid in one for uid in owned)} for kind, found in everything.items()}


def settled(cluster: Installed) -> Picture:
    """Return the first picture that stays the same for half a second; the last one after 10 s."""
    last = picture(cluster)
    for _ in range(20):
        time.sleep(0.5)
        found = picture(cluster)
        if found == last:
            break
        last = found
    return last


def added(before: Picture, after: Picture) -> Picture:
    """Return what ``after`` has and ``before`` had not."""
    return {kind: found for kind in after if (found := after[kind] - before[kind])}


def lost(before: Picture, after: Picture) -> Picture:
    """Return which rules and processes are gone; the rest of ``before`` may be a pod's that was just ending."""
    return {kind: gone for kind in ("rules", "processes") if (gone := before[kind] - after[kind])}


def descriptors(cluster: Installed) -> dict[str, int]:
    """Return the open file descriptors of each process that stays, by its part and process id."""
    parts = cluster.parts().items()
    return {f"{part} {one.pid}": one.num_fds() for part, found in parts if part not in PASSING_PARTS for one in found}


def leaking(before: dict[str, int], after: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Return the processes of both times that hold clearly more descriptors than before."""
    return {name: (before[name], count) for name, count in after.items() if count > before.get(name, count) + FDS_SLACK}


def _links(node: str) -> set[str]:
    """Return the node's devices, and those that nobody's name stands on."""
    with Netlink() as netlink:
        found = netlink.links().items()
        nobodys = {name for name, link in found if name.startswith("mk8s-") and not link.alias}
        return nobodys | {f"{name} {link.alias}" for name, link in found if node in link.alias.split(" ")}


def _mounts() -> set[str]:
    found = mounts.mounts()
    return {one.point for root in (STATE, RUN) for one in mounts.under(str(root), found) if one.point != SECRETS}


def _rules(node: str) -> set[str]:
    listed = _command("nft", "--stateless", "list", "ruleset") + _command("iptables", "-S")
    return {line.strip() for line in listed.splitlines() if f"minik8s/{node}" in line}


def _files() -> set[str]:
    found: set[str] = set()
    for root in (STATE, RUN):
        for folder, folders, files in os.walk(root):  # unlike rglob it does not mind what goes meanwhile
            found |= {f"{folder}/{name}" for name in folders + files}
    return {path for path in found if not PASSING.search(path)}


def _processes(cluster: Installed) -> set[str]:
    """Return each process of ours as its part and number; workers and the warm interpreter come and go."""
    parts = cluster.parts()
    return {
        f"{part} {number}" for part, found in parts.items() if part not in PASSING_PARTS for number in range(len(found))
    }


def _command(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout
