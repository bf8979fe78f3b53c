"""``init``: a folder to install a cluster from, where minik8s came by pip and there is no checkout.

The folder looks like a checkout: playbooks, roles and modules are links to what pip has installed (base/release.py), so
that every command of the documentation works there, and a new version is a ``pip install --upgrade``. Two files are the
user's own, and are never written over: the inventory, and what is written beside it.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from minik8s_modules import __version__
from minik8s_modules.base import release
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.machines import Machine, parse_machine
from minik8s_modules.cli.options import Subparsers, add
from minik8s_modules.cli.settings import check_ranges, parse_variables
from minik8s_modules.client.api import ApiClient

MINE = "inventory/mine"
PROGRAMS = {
    "kubectl_program": "kubectl",
    "coredns_program": "coredns",
    "images_pause_program": "pause",
    "envoy_program": "envoy",
}
"""What a bundle has of programs, by the variable that names each; Envoy is in some."""
HEADER = """---
# Written by `minik8s init`, once; it is yours. inventory/sample tells what else can stand here;
# `ansible-doc -t role -r roles minik8s` describes the variables.
"""


def declare(commands: Subparsers) -> None:
    """Declare the command."""
    parser = add(
        commands, "init", run, "write a folder to install a cluster from: an inventory, playbooks, roles",
        usage="init [FOLDER] [--control-plane NAME=[USER@]HOST ...] [--node NAME=[USER@]HOST ...] ...",
        examples="""
        minik8s init cluster                       this machine becomes the whole cluster
        minik8s init cluster --control-plane control1=admin@192.0.2.10 --node worker1=admin@192.0.2.21
        minik8s init cluster --set minik8s_network_driver=vxlan --set minik8s_mesh=true
        minik8s init cluster --bundle minik8s-bundle-0.1.0-x86_64 --control-plane control1=root@192.0.2.10
        minik8s init cluster                       again, after `pip install --upgrade`: the inventory stays""",
        connects=False,
    )  # fmt: skip
    parser.add_argument("folder", nargs="?", default=".", metavar="FOLDER", help="default: this folder")
    parser.add_argument(
        "--control-plane", action="append", default=[], metavar="NAME=[USER@]HOST",
        help="a machine of the control plane (repeatable: one or three); default: this machine alone",
    )  # fmt: skip
    parser.add_argument(
        "--node", action="append", default=[], metavar="NAME=[USER@]HOST",
        help="a machine that Pods run on (repeatable); default: those of the control plane",
    )  # fmt: skip
    parser.add_argument(
        "--set", dest="variables", action="append", default=[], metavar="VARIABLE=VALUE",
        help="a role variable for all machines (repeatable)",
    )  # fmt: skip
    parser.add_argument(
        "--bundle",
        default="",
        metavar="FOLDER",
        help="install without Internet access, from an unpacked bundle (make bundle)",
    )


def run(_client: ApiClient, options: argparse.Namespace) -> int:
    """Write the folder; print what to run next."""
    folder = Path(options.folder).resolve()
    control, nodes = machines_of("--control-plane", options.control_plane), machines_of("--node", options.node)
    inventory = MINE if control or nodes else release.LOCAL
    bundled = variables_of(Path(options.bundle).resolve()) if options.bundle else {}
    given = bundled | parse_variables(options.variables)
    check_ranges(_common(control, nodes) | given, len(nodes or control) or 1)
    text = inventory_text(control, nodes, given)
    try:
        release.lay_out(folder)
        kept = not write_once(folder / inventory / "hosts.yml", text)
    except OSError as error:
        raise UsageError(f"{folder} cannot be a folder of a cluster: {error}") from error
    print(told(folder, inventory, kept=kept, remote=bool(control or nodes)))
    return 0


def machines_of(option: str, given: Sequence[str]) -> list[Machine]:
    """Return the machines that an option names.

    Raises:
        UsageError: one is not NAME=[USER@]HOST, or two have one name.
    """
    found = []
    for each in given:
        name, equals, host = each.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {each}: write NAME=[USER@]HOST, such as worker1=admin@192.0.2.21")
        found.append(parse_machine(host, name, 22, ""))
    names = [machine.name for machine in found]
    if double := {name for name in names if names.count(name) > 1}:
        raise UsageError(f"{option} names {min(double)} twice")
    return found


def variables_of(bundle: Path) -> dict[str, Any]:
    """Return the variables by which roles find what is in a bundle.

    Raises:
        UsageError: it is none of this version, or not one for this machine's architecture.
    """
    try:
        about = json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))
        version, architecture = str(about["version"]), str(about["architecture"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"--bundle {bundle} is not an unpacked bundle of `make bundle`: {error}") from error
    if version != __version__:
        raise UsageError(
            f"--bundle {bundle} is of minik8s {version}, and this is {__version__}: install the bundle's own"
        )
    if architecture != platform.machine():
        raise UsageError(f"--bundle {bundle} is for {architecture}, and this machine is {platform.machine()}")
    programs = {name: bundle / "programs" / file for name, file in PROGRAMS.items()}
    return {
        "minik8s_offline": True,
        "application_wheels": str(bundle / "wheels"),
        "packages_archives": str(bundle / "debs"),
        **{name: str(path) for name, path in programs.items() if path.is_file()},
    }


def inventory_text(control: Sequence[Machine], nodes: Sequence[Machine], variables: Mapping[str, Any]) -> str:
    """Return the inventory of these machines; of none: this machine is the whole cluster.

    Raises:
        UsageError: the machines are no cluster.
    """
    if control or nodes:
        tree = _tree(control, nodes)
    else:
        tree = yaml.safe_load((release.root() / release.LOCAL / "hosts.yml").read_text(encoding="utf-8"))
    if own := {**_common(control, nodes), **variables}:
        tree["all"] = {"vars": own, **tree["all"]}
    return HEADER + yaml.safe_dump(tree, sort_keys=False)


def _common(control: Sequence[Machine], nodes: Sequence[Machine]) -> dict[str, Any]:
    """Return the variables that these machines get unless the user says otherwise."""
    found = {"ansible_python_interpreter": "/usr/bin/python3"} if control or nodes else {}
    if len({machine.name for machine in (*control, *nodes)}) > 1:
        found["minik8s_network_driver"] = "vxlan"  # as inventory/sample has it
    return found


def _tree(control: Sequence[Machine], nodes: Sequence[Machine]) -> dict[str, Any]:
    """Return the groups; a machine that is in both is described in the first."""
    if not control:
        raise UsageError("--node needs --control-plane, too: the machine that the API server runs on")
    described = {machine.name: machine for machine in (*control, *nodes)}
    differ = [one.name for one in (*control, *nodes) if one != described[one.name]]
    if differ:
        raise UsageError(f"{differ[0]} is two machines: --control-plane and --node give it different addresses")
    hosts = {name: _ways(machine) for name, machine in described.items()}
    groups = {
        "control_plane": {"hosts": {one.name: hosts[one.name] for one in control}},
        "nodes": {"hosts": {one.name: {} if one in control else hosts[one.name] for one in nodes or control}},
    }
    return {"all": {"children": groups}}


def _ways(machine: Machine) -> dict[str, str]:
    return {"ansible_host": machine.host, **({"ansible_user": machine.user} if machine.user else {})}


def write_once(path: Path, text: str) -> bool:
    """Write a file that is the user's from then on; return False where there was another one, which stays."""
    if path.exists():
        return path.read_text(encoding="utf-8") == text
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return True


def told(folder: Path, inventory: str, *, kept: bool, remote: bool) -> str:
    """Return what to run next."""
    program = Path(sys.executable).with_name("ansible-playbook")
    name = shutil.which("ansible-playbook") == str(program)
    play = "ansible-playbook" if name else str(program)
    lines = [f"{folder / inventory}/hosts.yml stays as it is; remove it to have it written again."] if kept else []
    lines += [f"Install the cluster{' (-K: sudo asks for a password)' if remote else ', as root'}:", ""]
    return "\n".join([*lines, f"  cd {folder}", f"  {play} -i {inventory} playbooks/site.yml"])
