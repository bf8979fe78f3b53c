"""Makes and removes the lab's network on this host, and says what of it there is; see ``network`` for what that is.

A finished network has a mark in the lab's folder. Without it, whatever is there was left half-made and is made anew.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from tests.lab import network, processes
from tests.lab.errors import LabNodeFailed
from tests.lab.host import Host
from tests.lab.network import NETNS
from tests.lab.records import LabRecord, Names, write

MADE = "network-made"
# In the folder of all labs: we made /run/netns a mount, as `ip netns add` does, and unmake it with the last lab.
NETNS_MADE = "netns-made"
END_TIMEOUT_S = 10


def routes(host: Host) -> list[str]:
    """Return the destinations of this host's IPv4 routes."""
    return [str(route["dst"]) for route in json.loads(host.run(["ip", "-json", "-4", "route", "show", "table", "all"]))]


def exists(names: Names) -> bool:
    """Tell whether any network namespace or device of the lab is there."""
    return (Path(NETNS) / names.network).exists() or Path("/sys/class/net", names.network).exists()


def node_names(names: Names) -> list[str]:
    """Return the nodes that have a network namespace."""
    prefix = names.node_network("")
    return [path.name.removeprefix(prefix) for path in Path(NETNS).glob(f"{prefix}*")]


def up(host: Host, state: Path, lab: LabRecord) -> None:
    """Make the lab's network, if it is not there whole."""
    names, made = Names(lab.name), state / lab.name / MADE
    if made.exists() and exists(names):
        return
    made.unlink(missing_ok=True)
    down(host, state, names)
    if not os.path.ismount(NETNS):
        write(state / NETNS_MADE, "")
    host.ip(network.lab_lines(lab))
    # The interface's own setting: the host forwards nothing that comes from the lab, whatever it forwards else.
    Path(f"/proc/sys/net/ipv4/conf/{names.network}/forwarding").write_text("0", encoding="ascii")
    host.ip(network.bridge_lines(lab), namespace=names.network)
    write(made, "")


def down(host: Host, state: Path, names: Names) -> None:
    """Remove the lab's network, with whatever still runs in it.

    Raises:
        LabNodeFailed: A process in it does not end.
    """
    space = Path(NETNS) / names.network
    strays = processes.in_network_namespace(space) if space.exists() else []
    for stray in strays:
        processes.kill(stray)
    left = processes.wait_ended(strays, END_TIMEOUT_S)
    if left:
        raise LabNodeFailed(f"processes {[one.pid for one in left]} in {space} do not end after SIGKILL")
    if Path("/sys/class/net", names.network).exists():
        host.ip([f"link del {names.network}"])
    if space.exists():
        host.ip([f"netns del {names.network}"])


def tidy(host: Host, state: Path) -> None:
    """With the last lab, make /run/netns what it was before the first."""
    if list(state.glob("*/lab.json")) or not (state / NETNS_MADE).exists():
        return
    with contextlib.suppress(OSError):  # somebody else uses it by now
        if not list(Path(NETNS).iterdir()):
            host.run(["umount", NETNS])
            Path(NETNS).rmdir()
    (state / NETNS_MADE).unlink()
