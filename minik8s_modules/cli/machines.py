"""``node``: machines come to the cluster and leave it; runs the playbooks that do it and shows what they say.

    node add USER@HOST --name N     playbooks/node_add.yml, with an inventory of the one machine beside the cluster's
    node remove N                   playbooks/node_remove.yml

The cluster's inventory is what the control plane keeps in /etc/minik8s/machines, or the one given by -i. The playbook
writes the new machine down there, so that later runs know it. On the control plane a new machine gets the settings of
its first machine, and the programs that the installation has left there. Nothing here knows how a node is made.

Whether a command has done what it was asked for is a matter of the cluster's state: of several machines of the control
plane, one may go while a playbook runs, and the machine is a node nevertheless.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound, StatusError
from minik8s_modules.api.kinds import NODE, POD_CIDR
from minik8s_modules.api.objects import condition
from minik8s_modules.api.syntax import dns1123_subdomain
from minik8s_modules.base import release
from minik8s_modules.base.errors import Minik8sError
from minik8s_modules.cli.connection import connect
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.options import Subparsers, add
from minik8s_modules.cli.settings import parse_variables
from minik8s_modules.client.api import ApiClient

MACHINES = Path("/etc/minik8s/machines")
INSTALLED = Path("/opt/minik8s")
PROGRAMS = {
    "coredns_program": INSTALLED / "nodes/coredns",
    "images_pause_program": INSTALLED / "nodes/pause",
    "envoy_program": INSTALLED / "nodes/envoy",
}
"""What the installation leaves on the control plane for nodes, by the variable that names it."""
OWN = {"minik8s_node_address", "minik8s_shard", "minik8s_docker_socket", "minik8s_service_manager", "minik8s_cache_dir"}
"""Variables of one machine, which say nothing about another one."""
_LARGEST_PORT = 65535
_MOST_NAMES = 10
UNREACHABLE = 4
"""The status of ansible-playbook when machines could not be reached, and no task failed."""
NodeState = Literal["", "absent", "NotReady", "Ready"]


class Verdict(NamedTuple):
    """What a command ends with, and what it says then."""

    status: int
    words: str = ""


class Machine(NamedTuple):
    """A machine as Ansible reaches it; empty texts are left to ssh."""

    name: str
    host: str
    user: str = ""
    port: int = 22
    key_file: str = ""


def declare(commands: Subparsers) -> None:
    """Declare the commands."""
    parser = add(
        commands, "node", lambda *_: 0, "add a machine as a node, or remove one", usage="node (add | remove) ..."
    )
    inner = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", prog="minik8s node")
    added = add(
        inner, "add", add_machine, "make a machine that SSH reaches a node of the cluster",
        usage="node add [USER@]HOST [--name NAME] [-i INVENTORY] ...",
        examples="""
        minik8s node add admin@192.0.2.23 --name worker3                  on the control plane, as root
        minik8s node add admin@192.0.2.23 --name worker3 -i inventory/mine     from where the cluster was installed
        minik8s node add root@worker4 --private-key ~/.ssh/id_ed25519 --set minik8s_shard=hall2
        minik8s node add admin@192.0.2.23 --name worker3 --check          what would be done""",
    )  # fmt: skip
    added.set_defaults(offline=True)
    added.add_argument("machine", metavar="[USER@]HOST", help="as for ssh; the user needs sudo, or is root")
    added.add_argument("--name", default="", metavar="NAME", help="name of the node (default: HOST)")
    added.add_argument(
        "--port", type=int, default=22, metavar="N", help="port of its SSH daemon (default: %(default)s)"
    )
    added.add_argument(
        "--set", dest="variables", action="append", default=[], metavar="VARIABLE=VALUE",
        help="a role variable for this machine (repeatable); see ansible-doc -t role -r roles minik8s",
    )  # fmt: skip
    added.add_argument(
        "--accept-host-key", action="store_true", help="trust the host key it shows, if your known_hosts has none"
    )
    _running(added)
    removed = add(
        inner, "remove", remove_machine, "drain a node, clean its machine and forget it",
        usage="node remove NAME [--force] [--timeout SECONDS] [-i INVENTORY] ...",
        examples="""
        minik8s node remove worker3
        minik8s node remove worker3 --timeout 900      evictions wait for disruption budgets that long
        minik8s node remove worker3 --force            its machine does not answer (kubectl get podcidrs)""",
    )  # fmt: skip
    removed.set_defaults(offline=True)
    removed.add_argument("name", metavar="NAME", help="name of the node")
    removed.add_argument(
        "--force", action="store_true",
        help="forget it although its machine does not answer; its pods' addresses stay quarantined",
    )  # fmt: skip
    removed.add_argument(
        "--timeout",
        type=int,
        default=300,
        metavar="SECONDS",
        help="how long to wait for evictions (default: %(default)s)",
    )
    _running(removed)


def _running(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-i", "--inventory", default="", metavar="PATH", help=f"the cluster's inventory; default: {MACHINES}"
    )
    parser.add_argument("--private-key", default="", metavar="FILE", help="private key of your login, as for ssh -i")
    parser.add_argument("--ask-become-pass", "-K", action="store_true", help="ask for the sudo password")
    parser.add_argument("--check", action="store_true", help="only say what would be done")
    parser.add_argument("-v", "--verbose", action="store_true", help="show more of what Ansible does")


def add_machine(_client: ApiClient, options: argparse.Namespace) -> int:
    """Run node_add.yml for one machine; return 0 when it is a node."""
    machine = parse_machine(options.machine, options.name, options.port, options.private_key)
    inventory = inventory_of(options.inventory)
    taken = {} if options.inventory else {**settings_of(inventory), **programs()}
    given = {**taken, **parse_variables(options.variables)}
    tree = inventory_for(machine, given, accept=options.accept_host_key)
    with tempfile.TemporaryDirectory(prefix="minik8s-node-") as folder:
        path = Path(folder) / "machine.yml"
        path.write_text(json.dumps(tree), encoding="utf-8")
        code = _run(playbook("node_add.yml", [inventory, path], {"node": machine.name}, options))
    return _end(verdict_of_adding(machine.name, code, _state(machine.name, options) if code else ""))


def remove_machine(_client: ApiClient, options: argparse.Namespace) -> int:
    """Run node_remove.yml; return 0 when it is a node no longer."""
    if dns1123_subdomain(options.name):
        raise UsageError(f"{options.name!r} is not the name of a node: kubectl get nodes lists them")
    if options.timeout <= 0:
        raise UsageError("--timeout must be a number of seconds above 0")
    inventory = inventory_of(options.inventory)
    if not options.force and (known := _others(options, inventory)):
        raise UsageError(f"there is no node {options.name}: {known}")
    given = {"node": options.name, "force": options.force, "drain_timeout": options.timeout}
    code = _run(playbook("node_remove.yml", [inventory], given, options))
    return _end(verdict_of_removing(options.name, code, _state(options.name, options) if code else ""))


def _others(options: argparse.Namespace, inventory: Path) -> str:
    """Return which nodes there are where nothing has the name of the one to be removed.

    "" where a Node has it, a range of addresses that a former one left, or a machine of the inventory: there is
    something to remove. So it is where the API or the inventory cannot be read, as the playbook asks by itself. Of a
    machine whose adding was interrupted, the daemons' inventory on the control plane may be the only one that knows:
    without its machine, it is removed with --force alone, which does not ask here.
    """
    try:
        with contextlib.closing(connect(options)) as client:
            nodes = sorted(map(objects.name, client.list(NODE).items))
            left = {objects.spec(claim).get("nodeName") for claim in client.list(POD_CIDR).items}
    except (StatusError, Minik8sError):
        return ""
    machines = {options.name} if options.name in left.union(nodes) else _machines(inventory)
    if machines is None or options.name in machines:
        return ""
    more = f" and {len(nodes) - _MOST_NAMES} more" if nodes[_MOST_NAMES:] else ""
    shown = f"{', '.join(nodes[:_MOST_NAMES]) or 'none'}{more}"
    rest = f"{inventory} has no such machine; --force looks at what the daemons keep, too"
    return f"the cluster has {shown} (kubectl get nodes), and {rest}"


def _machines(inventory: Path) -> set[str] | None:
    """Return the names of an inventory's machines, None where Ansible cannot read all of it."""
    argv = [str(_program("ansible-inventory")), "-i", str(inventory), "--list"]
    around = _surroundings()
    around["env"]["ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED"] = "true"  # else it has none of what cannot be read
    done = subprocess.run(argv, capture_output=True, text=True, check=False, **around)
    if done.returncode:
        return None
    return {host for group in json.loads(done.stdout).values() for host in group.get("hosts", ())}


def verdict_of_adding(name: str, code: int, state: NodeState) -> Verdict:
    """Return what has come of adding a machine, from the playbook's status and the state of its node after that."""
    if not code:
        return Verdict(0)
    if state != "Ready":
        return Verdict(1, f"{name} was not added; run the same command again when the cause is gone")
    if code == UNREACHABLE:
        return Verdict(
            0, f"{name} is a node and Ready; run the same command again when the unreachable machine answers"
        )
    return Verdict(1, f"{name} is Ready, but a task failed; run the same command again when the cause is gone")


def verdict_of_removing(name: str, code: int, state: NodeState) -> Verdict:
    """Return what has come of removing a node, from the playbook's status and the state of the node after that."""
    if not code:
        return Verdict(0)
    if state != "absent":
        return Verdict(1, f"{name} was not removed; the same command goes on where this one stopped")
    if code == UNREACHABLE:
        return Verdict(0, f"{name} is removed; run the same command again when the unreachable machine answers")
    return Verdict(1, f"there is no node {name}, but a task failed; the same command goes on where this one stopped")


def parse_machine(text: str, name: str, port: int, key_file: str) -> Machine:
    """Return the machine that ``[USER@]HOST`` and the options name.

    Raises:
        UsageError: one of them cannot be used.
    """
    user, at, host = text.rpartition("@")
    if not host or (at and not user) or host.startswith("-") or user.startswith("-") or re.search(r"\s|[{}%]", text):
        raise UsageError(f"{text!r} is not a machine: write USER@HOST, as for ssh")
    wrong = dns1123_subdomain(name or host)
    if wrong:
        raise UsageError(f"--name {name or host}: {wrong[0]}")
    if not 0 < port <= _LARGEST_PORT:
        raise UsageError(f"--port must be from 1 to {_LARGEST_PORT}, not {port}")
    if key_file and not Path(key_file).is_file():
        raise UsageError(f"--private-key {key_file}: no such file")
    return Machine(name or host, host, user, port, str(Path(key_file).resolve()) if key_file else "")


def settings_of(inventory: Path) -> dict[str, Any]:
    """Return the variables of roles that the first machine of the control plane has, without what is its own.

    An inventory of a user says by itself what its machines have in common; the one that is kept on the control plane
    has every machine's variables side by side.
    """
    tree = yaml.safe_load((inventory / "hosts.yml").read_text(encoding="utf-8"))
    hosts: dict[str, dict[str, Any] | None] = tree["all"]["children"]["control_plane"]["hosts"]
    first = next(iter(hosts.values())) or {}
    return {name: value for name, value in first.items() if name not in OWN and not name.startswith("ansible_")}


def programs() -> dict[str, str]:
    """Return the variables that name the programs of nodes which the control plane keeps."""
    return {name: str(path) for name, path in PROGRAMS.items() if path.is_file()}


def inventory_for(machine: Machine, variables: Mapping[str, Any], *, accept: bool) -> dict[str, Any]:
    """Return an inventory whose group ``nodes`` has the machine; Ansible joins it with the cluster's."""
    ways = {
        "ansible_host": machine.host,
        "ansible_port": machine.port,
        "ansible_user": machine.user,
        "ansible_ssh_private_key_file": machine.key_file,
        "ansible_ssh_common_args": "-o StrictHostKeyChecking=accept-new" if accept else "",
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    access = {name: value for name, value in ways.items() if value}
    return {"all": {"children": {"nodes": {"hosts": {machine.name: {**access, **variables}}}}}}


def inventory_of(given: str) -> Path:
    """Return the cluster's inventory.

    Raises:
        UsageError: there is none.
    """
    path = Path(given) if given else MACHINES
    try:
        found = path.exists() and (not path.is_dir() or any(path.iterdir()))
        found = found and os.access(path / "hosts.yml" if (path / "hosts.yml").exists() else path, os.R_OK)
    except PermissionError:
        found = False
    if found:
        return path.resolve()
    if given:
        raise UsageError(f"-i {given}: there is no such inventory, or it cannot be read")
    raise UsageError(
        f"there is no inventory in {MACHINES} that can be read: run this on a machine of the control plane as root, "
        "or name the inventory that the cluster was installed from by -i PATH"
    )


def playbook(
    name: str, inventories: Sequence[Path], variables: Mapping[str, Any], options: argparse.Namespace
) -> list[str]:
    """Return the command that runs a playbook.

    Raises:
        UsageError: there is no Ansible, or no playbook, here.
    """
    argv = [str(_program("ansible-playbook"))]
    for each in inventories:
        argv += ["-i", str(each)]
    argv += [str(repository() / "playbooks" / name), "-e", json.dumps(dict(variables))]
    if options.private_key:
        argv += ["--private-key", options.private_key]
    flags = {"--ask-become-pass": options.ask_become_pass, "--check": options.check, "-v": options.verbose}
    return [*argv, *(flag for flag, wanted in flags.items() if wanted)]


def _program(name: str) -> Path:
    program = Path(sys.executable).with_name(name)
    if not program.exists():
        raise UsageError(f"there is no {program}: install minik8s with its requirements (make cluster, or pip)")
    return program


def repository() -> Path:
    """Return where playbooks and roles are: this checkout, or what is installed.

    Raises:
        UsageError: they are nowhere.
    """
    found = release.project()
    if found is None:
        raise UsageError(
            "there are no playbooks and roles beside this program: install minik8s by its wheel or playbooks"
        )
    return found


def _state(name: str, options: argparse.Namespace) -> NodeState:
    """Return the state of a node; "" where the API cannot be asked, or nothing was to be done."""
    if options.check:
        return ""
    try:
        with contextlib.closing(connect(options)) as client:
            ready = condition(client.get(NODE, name), "Ready")
    except NotFound:
        return "absent"
    except (StatusError, Minik8sError):
        return ""
    return "Ready" if ready and ready["status"] == "True" else "NotReady"


def _end(verdict: Verdict) -> int:
    if verdict.words:
        sys.stderr.write(f"minik8s: {verdict.words}\n")
    return verdict.status


def _run(argv: Sequence[str]) -> int:
    return subprocess.run(argv, check=False, **_surroundings()).returncode


def _surroundings() -> dict[str, Any]:
    """Return in which environment and folder programs of Ansible run."""
    environment = {**os.environ, "ANSIBLE_CONFIG": str(repository() / "ansible.cfg")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return {"env": environment, "cwd": repository()}
