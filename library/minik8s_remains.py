#!/usr/bin/python
# Copyright: the minik8s authors
# Apache License 2.0 (see LICENSE)
"""Ansible module: removes what a node keeps of minik8s when its daemons are gone."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_remains
short_description: Removes what minik8s leaves on a node once its daemons are gone
description:
  - Ends our processes; removes containers and images with our labels, devices C(mk8s-*), addresses labelled
    C(mk8s-announced), nftables tables C(minik8s*),
    mounts below our directories, and mounts that CSI drivers were asked for.
  - Turns back the kernel's switches of IPv6 that a node turned for its pods.
  - Of what was mounted nothing is deleted.
  - Containers and images of others are not touched. An image that is in use stays.
options:
  node:
    description: Containers whose label C(minik8s.io/node) has this value are removed.
    type: str
    required: true
  docker_socket:
    description: Socket of the Docker daemon. Where it does not answer, there are no containers to remove.
    type: path
    default: /var/run/docker.sock
  directories:
    description: Mounts at or below these are removed.
    type: list
    elements: path
    default: [/run/minik8s, /var/lib/minik8s]
  state_dir:
    description: Where it is noted what CSI drivers have mounted, and what switches of the kernel were.
    type: path
    default: /var/lib/minik8s
attributes:
  check_mode: {description: Says what would be removed., support: full}
  diff_mode: {description: Lists what is removed., support: full}
  idempotent: {description: Nothing is left for a second run., support: full}
author: the minik8s authors
"""

EXAMPLES = r"""
- name: Nothing is left of the pods
  minik8s_remains:
    node: node1
"""

RETURN = r"""
removed:
  description: What was removed (in check mode, would be).
  returned: always
  type: list
  elements: dict
  sample: [{kind: container, id: 0123456789ab, detail: mk8s_app_web_default}]
"""

import contextlib
import json
import os
import shutil
import signal
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.minik8s.core.docker import Docker, DockerError
from ansible.module_utils.minik8s.install.images import LABEL
from ansible.module_utils.minik8s.install.remains import (
    Remain,
    addresses,
    cgroups,
    driver_mounts,
    links,
    mounts,
    plan_removal,
    processes,
    remove_all,
    slices,
    tables,
    take_driver_mount,
)
from ansible.module_utils.minik8s.network import ipv6_switches, netfilter
from ansible.module_utils.minik8s.pods import pod_cgroup
from ansible.module_utils.minik8s.volumes.mounts import unmount

RECORDS = "/run/minik8s/daemons"
SOCKETS = "/run/minik8s-warm-"
PATIENCE_S = 5.0
TRIES = 20
PAUSE_S = 0.5


def docker_remains(docker: Docker, node: str) -> list[Remain]:
    """Return our containers and images; none when Docker does not answer."""
    with contextlib.suppress(DockerError):
        containers = docker.containers({"minik8s.io/node": node})
        images = docker.call("GET", "/images/json", query={"filters": json.dumps({"label": [LABEL]})}) or []
        return [
            *(Remain("container", item["Id"][:12], ", ".join(item["Names"] or [])) for item in containers),
            *(Remain("image", tag) for item in images for tag in item["RepoTags"] or []),
        ]
    return []


def rules(node: str) -> list[Remain]:
    """Return the rules that let the node's pods pass Docker's FORWARD policy."""
    kinds = {"rule": netfilter.IPV4, "rule of IPv6": netfilter.IPV6}
    found = {kind: netfilter.forwards(node, family) or {} for kind, family in kinds.items()}
    return [
        Remain(kind, rule, bridge)
        for kind, bridges in found.items()
        for bridge, passing in bridges.items()
        for rule in passing
    ]


def switches(state_dir: str) -> list[Remain]:
    """Return what is to be turned back of IPv6."""
    known = ipv6_switches.recorded(state_dir)
    return [Remain("switch", "net.ipv6", ipv6_switches.shown(known))] if known else []


def observe(module: AnsibleModule, docker: Docker) -> list[Remain]:
    """Return everything that is left."""
    listing = ""
    if shutil.which("nft"):
        _code, listing, _error = module.run_command(["nft", "list", "tables"])
    table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    return [
        *processes(RECORDS, SOCKETS),
        *docker_remains(docker, module.params["node"]),
        *cgroups(module.params["node"]),
        *slices(module.params["node"]),
        *links(),
        *addresses(),
        *tables(listing),
        *rules(module.params["node"]),
        *switches(module.params["state_dir"]),
        *mounts(table, module.params["directories"]),
        *driver_mounts(table, module.params["state_dir"]),
    ]


def end_process(pid: int) -> None:
    """Send SIGTERM, and SIGKILL after five seconds."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            os.kill(pid, 0)
            time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)


def remove(module: AnsibleModule, docker: Docker, item: Remain) -> None:
    """Remove one thing; one that is gone already, or an image in use, is fine."""
    commands = {
        "slice": ["systemctl", "stop", item.id],
        "link": ["ip", "link", "delete", item.id],
        "address": ["ip", "address", "delete", *" dev ".join(item.id.split()).split()],
        "table": ["nft", "delete", "table", *item.id.split()],
    }
    if item.kind == "process":
        end_process(int(item.id))
    elif item.kind == "container":
        docker.remove(item.id)
    elif item.kind == "cgroup":
        pod_cgroup.remove(module.params["node"], item.id)
    elif item.kind == "mount" and item.detail:
        take_driver_mount(item.id)
    elif item.kind == "mount":
        unmount(item.id)  # by the system call: umount asks the file system first, and an NFS server may be away
    elif item.kind == "rule":
        netfilter.set_forwards([item.id], [])
    elif item.kind == "rule of IPv6":
        netfilter.set_forwards([item.id], [], netfilter.IPV6)
    elif item.kind == "switch":
        ipv6_switches.give_back(module.params["state_dir"])
    elif item.kind == "image":
        with contextlib.suppress(DockerError):
            docker.call("DELETE", f"/images/{item.id}")
    else:
        module.run_command(commands[item.kind])


def main() -> None:
    """Observe, plan, apply, report."""
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "directories": {"type": "list", "elements": "path", "default": ["/run/minik8s", "/var/lib/minik8s"]},
            "state_dir": {"type": "path", "default": "/var/lib/minik8s"},
        },
        supports_check_mode=True,
    )
    docker = Docker(module.params["docker_socket"])
    steps = plan_removal(observe(module, docker))
    if not module.check_mode:
        left = remove_all(steps, lambda step: remove(module, docker, step), lambda: time.sleep(PAUSE_S), TRIES)
        if left:
            module.fail_json(msg=f"cannot remove everything; run this again when the cause is gone: {'; '.join(left)}")
    lines = "".join(f"{step.kind} {step.id} {step.detail}".rstrip() + "\n" for step in steps)
    removed = [step._asdict() for step in steps]
    module.exit_json(changed=bool(steps), removed=removed, diff={"before": lines, "after": ""})


if __name__ == "__main__":
    main()
