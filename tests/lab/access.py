"""Texts that lead to the nodes: hosts, SSH configuration with the pinned host key, Ansible inventory. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.lab.records import LabRecord, NodeRecord

MARKER = "# Written by lab-up, removed by lab-down."


def hosts(lab: LabRecord, nodes: Sequence[NodeRecord]) -> str:
    """Return the /etc/hosts of every node."""
    return "127.0.0.1 localhost\n" + "".join(f"{lab.node_address(node)} {node.name}\n" for node in nodes)


def known_hosts(lab: LabRecord, nodes: Sequence[NodeRecord], keys: Mapping[str, str]) -> str:
    """Return the pinned host keys; ``keys`` are the public keys by image folder."""
    return "".join(f"{node.name},{lab.node_address(node)} {_key(keys[node.image])}\n" for node in nodes)


def _key(text: str) -> str:
    return " ".join(text.split()[:2])


def ssh_config(lab: LabRecord, nodes: Sequence[NodeRecord], folder: Path, key: Path) -> str:
    """Return the configuration for ``ssh -F``."""
    each = "".join(f"Host {node.name}\n  HostName {lab.node_address(node)}\n" for node in nodes)
    options = {
        "User": "root",
        "IdentityFile": key,
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": folder / "known_hosts",
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "BatchMode": "yes",
        "LogLevel": "ERROR",
        "ConnectTimeout": 10,
    }
    return each + "Host *\n" + "".join(f"  {name} {value}\n" for name, value in options.items())


def inventory(lab: LabRecord, nodes: Sequence[NodeRecord], folder: Path, key: Path) -> str:
    """Return the Ansible inventory: the first node is the control plane, all are nodes."""
    pinned = (
        f"-o UserKnownHostsFile={folder}/known_hosts -o GlobalKnownHostsFile=/dev/null -o StrictHostKeyChecking=yes"
    )
    variables: dict[str, Any] = {
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(key),
        "ansible_ssh_common_args": f"{pinned} -o IdentitiesOnly=yes",
        "ansible_control_path_dir": str(folder / "masters"),
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    named = {node.name: {"ansible_host": lab.node_address(node), "minik8s_lab_kind": node.kind} for node in nodes}
    groups = {"control_plane": {"hosts": dict.fromkeys(list(named)[:1])}, "nodes": {"hosts": named}}
    text = yaml.safe_dump({"all": {"vars": variables, "children": groups}}, sort_keys=False, width=1000)
    return f"---\n{MARKER}\n{text}"


def instances(lab: LabRecord, nodes: Sequence[NodeRecord], key: Path) -> str:
    """Return molecule's instance configuration, as JSON."""
    return json.dumps(
        [
            {
                "instance": node.name,
                "address": lab.node_address(node),
                "user": "root",
                "port": 22,
                "identity_file": str(key),
                "connection": "warm_ssh",
            }
            for node in nodes
        ]
    )
