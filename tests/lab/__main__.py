"""The lab's command line, which Make's lab targets call; see ``--help``."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from tests.lab import selftest
from tests.lab.errors import LabError, LabUsage
from tests.lab.lab import Lab
from tests.lab.parts import image, kernels
from tests.lab.places import DEFAULT_LAB
from tests.lab.records import DEFAULT_RELEASE, KINDS, RELEASES, NodeSpec

DESCRIPTION = """Throw-away machines on this host, joined by a private network, reached over SSH.

  uml     its own Linux kernel (User-Mode Linux): IPVS, dummy devices, NFS, its own clock
  native  systemd in namespaces on the host's kernel: host speed, what that kernel offers

Folders: ~/.cache/minik8s-lab (image, kernels), /var/lib/minik8s-lab (running labs).
Environment: MINIK8S_LAB_CACHE, MINIK8S_LAB_STATE (other folders), MINIK8S_LAB_KERNEL (archive, folder, debian, build).
"""


def up(lab: Lab, arguments: argparse.Namespace) -> None:
    """Start nodes."""
    begin = time.monotonic()
    lab.up(_specs(arguments), subnet=arguments.subnet, kernel=arguments.kernel, timeout_s=arguments.timeout)
    inventory = lab.places.inventory(lab.name) or lab.inventory
    print(f"lab: {lab.name} is up after {time.monotonic() - begin:.1f} s: ansible -i {inventory} all -m ping")


def _specs(arguments: argparse.Namespace) -> list[NodeSpec]:
    if arguments.platforms:
        return platforms(arguments.platforms)
    if arguments.count < 1:
        raise LabUsage(f"a lab has one node or more, not {arguments.count}")
    return [
        NodeSpec(f"node{i}", arguments.kind, arguments.memory, arguments.release) for i in range(1, arguments.count + 1)
    ]


def platforms(text: str) -> list[NodeSpec]:
    """Return the nodes of molecule's platforms, a JSON list: ``name``, ``kind``, ``memory_mib``, ``release``.

    Raises:
        LabUsage: It is no such list, or a platform has another key.
    """
    try:
        found = json.loads(text)
        # molecule itself adds nothing; groups are its own matter
        wanted = [{key: value for key, value in entry.items() if key not in {"groups", "children"}} for entry in found]
        return [NodeSpec(**entry) for entry in wanted]
    except (TypeError, ValueError, AttributeError) as error:
        raise LabUsage(f"platforms are a list of name, kind, memory_mib and release: {error}") from error


def down(lab: Lab, _arguments: argparse.Namespace) -> None:
    """Remove the lab and all of it."""
    lab.down()


def status(lab: Lab, _arguments: argparse.Namespace) -> None:
    """Print one line a node."""
    rows = lab.status()
    for row in rows:
        print(f"{row.name:<15} {row.address:<15} {row.kind:<7} {row.state:<8} {row.pid or '-'}")
    if not rows:
        print(f"lab: {lab.name} is not up")


def ssh(lab: Lab, arguments: argparse.Namespace) -> None:
    """Become ssh, logged in to a node."""
    command = [*lab.ssh(arguments.node), *arguments.command]
    os.execvp(command[0], command)


def log(lab: Lab, arguments: argparse.Namespace) -> None:
    """Print the end of a node's console."""
    print(lab.machine(arguments.node).console(arguments.lines))


def test(lab: Lab, arguments: argparse.Namespace) -> None:
    """Start a lab of its own for each kind, print what its nodes can do, and remove it."""
    failed = 0
    for kind in [arguments.kind] if arguments.kind else KINDS:
        name = f"{lab.name[:6]}{os.getpid() % 1000}"
        with Lab(name, places=lab.places) as own:
            own.up(2, kind, kernel=arguments.kernel)
            failed += selftest.run(own, kind, print)
    if failed:
        raise LabError(f"{failed} abilities failed")


def build(lab: Lab, arguments: argparse.Namespace) -> None:
    """Make image and kernel ready."""
    print(image.get(lab.host, lab.places, arguments.release))
    print(kernels.find(lab.host, lab.places, arguments.kernel).folder)


def on_node(action: str) -> Callable[[Lab, argparse.Namespace], None]:
    """Return the command that calls the lab's method of this name for a node."""

    def act(lab: Lab, arguments: argparse.Namespace) -> None:
        getattr(lab, action)(arguments.node, *([arguments.value] if "value" in arguments else []))

    act.__doc__ = (getattr(Lab, action).__doc__ or "").strip().partition("\n")[0]
    return act


def parser() -> argparse.ArgumentParser:
    """Return the command line's grammar."""
    top = argparse.ArgumentParser(
        "python -m tests.lab", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--lab", default=DEFAULT_LAB, metavar="NAME", help="labs of different names run side by side")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: Callable[[Lab, argparse.Namespace], None]) -> argparse.ArgumentParser:
        text = (function.__doc__ or "").partition("\n")[0]
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(function=function)
        return added

    def kernel(added: argparse.ArgumentParser) -> None:
        text = "archive, folder, debian or build; else the first there is"
        added.add_argument("--kernel", default="", metavar="KERNEL", help=text)

    made = command("up", up)
    made.add_argument("count", nargs="?", type=int, default=3)
    made.add_argument("--kind", choices=KINDS, default="uml")
    made.add_argument("--memory", type=int, metavar="MIB", help="of each UML node (1024)")
    made.add_argument("--release", choices=RELEASES, default=DEFAULT_RELEASE, help="Debian's, of each node (bookworm)")
    made.add_argument("--platforms", metavar="JSON", help="instead of a count: molecule's platforms")
    made.add_argument("--subnet", help="a /24; else the first free one from 192.168.77.0/24 on")
    kernel(made)
    made.add_argument("--timeout", type=float, default=180, metavar="SECONDS", help="to wait for SSH (180)")
    command("down", down)
    command("status", status)
    entered = command("ssh", ssh)
    entered.add_argument("node")
    entered.add_argument("command", nargs=argparse.REMAINDER)
    shown = command("log", log)
    shown.add_argument("node")
    shown.add_argument("--lines", type=int, default=40)
    tested = command("test", test)
    tested.add_argument("--kind", choices=KINDS)
    kernel(tested)
    built = command("build", build)
    kernel(built)
    built.add_argument("--release", choices=RELEASES, default=DEFAULT_RELEASE, help="Debian's (bookworm)")
    for action in ("start", "power_cut", "reboot", "cut_off", "rejoin", "fast_link", "free_disk"):
        command(action.replace("_", "-"), on_node(action)).add_argument("node")
    for action, kind, unit in (
        ("slow_link", int, "KBIT"),
        ("clock_skew", float, "SECONDS"),
        ("fill_disk", int, "MIB_LEFT"),
    ):
        faulty = command(action.replace("_", "-"), on_node(action))
        faulty.add_argument("node")
        faulty.add_argument("value", type=kind, metavar=unit)
    return top


def main(words: Sequence[str]) -> int:
    """Run a command and return its status: 1 for a failure that was told, 130 for an interrupt."""
    arguments = parser().parse_args(words)
    try:
        arguments.function(Lab(arguments.lab), arguments)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except (subprocess.TimeoutExpired, OSError) as error:
        print(f"lab: {error} (lab-down removes what there is)", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("lab: interrupted; lab-down removes what was started", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
