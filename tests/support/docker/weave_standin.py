#!/usr/bin/env python3
"""Stands in for the command ``weave`` where none can run: the documented words, effects and answers, for tests.

State lies in the folder ``WEAVE_STATE`` of the environment: ``targets``, and ``addresses`` by container. An address is
the next of 10.32.0.0/12; the pod's end is ``ethwe``, the machine's the bridge ``weave``. ``WEAVE_STATE/broken`` has
every command fail with its text, as an absent router does. ``WEAVE_STATE/machine`` has it stand in for more than the
command: ``{"range": "10.32.1.", "address": "192.0.2.21"}`` says which addresses are this machine's to give (real ones
agree on that among each other) and by which it is reached; ``connect`` then makes what Weave calls its fast datapath, a
VXLAN to port 6784 of the others with Weave's mtu of 1376.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

STATE = Path(os.environ.get("WEAVE_STATE", "."))
RANGE, LENGTH, WHOLE = "10.32.0.", 12, "10.32.0.0/12"
TUNNEL, PORT, MTU = "vxlan-6784", "6784", "1376"
ANYWHERE = "00:00:00:00:00:00"


def run(*argv: str) -> str:
    """Run a command that must succeed."""
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def load(name: str) -> dict[str, str]:
    """Return a kept table."""
    path = STATE / name
    return dict(json.loads(path.read_text())) if path.exists() else {}


def keep(name: str, table: dict[str, str]) -> None:
    """Keep a table."""
    (STATE / name).write_text(json.dumps(table))


def give(whose: str) -> str:
    """Return the address of a container, a new one if it has none."""
    table = load("addresses")
    if whose not in table:
        ours = load("machine").get("range", RANGE)
        table[whose] = next(ip for ip in (f"{ours}{n}" for n in range(1, 255)) if ip not in table.values())
        keep("addresses", table)
    return table[whose]


def bridge() -> None:
    """Make the machine's bridge."""
    subprocess.run(["ip", "link", "add", "weave", "type", "bridge"], capture_output=True, check=False)
    run("ip", "link", "set", "weave", "up")


def expose() -> str:
    """Give the machine an address, and what enters or leaves Weave's network its machine's, as Weave's script does."""
    ip = give("weave:expose")
    bridge()
    run("ip", "addr", "replace", f"{ip}/{LENGTH}", "dev", "weave")
    if load("machine"):
        subprocess.run(["iptables", "-w", "-t", "nat", "-N", "WEAVE"], capture_output=True, check=False)
        rule("POSTROUTING", "-j", "WEAVE")
        rule("WEAVE", "-d", WHOLE, "!", "-s", WHOLE, "-j", "MASQUERADE")
        rule("WEAVE", "-s", WHOLE, "!", "-d", WHOLE, "-j", "MASQUERADE")
    return ip


def rule(chain: str, *words: str) -> None:
    """Have a rule in a chain of iptables' table nat."""
    if subprocess.run(
        ["iptables", "-w", "-t", "nat", "-C", chain, *words], capture_output=True, check=False
    ).returncode:
        run("iptables", "-w", "-t", "nat", "-A", chain, *words)


def lead(action: str, *peers: str) -> None:
    """Lead to other machines, or (``del``) no more."""
    address = load("machine").get("address")
    if not address:
        return
    if not Path("/sys/class/net", TUNNEL).exists():
        bridge()
        run("ip", "link", "add", TUNNEL, "mtu", MTU, "type", "vxlan", "id", "1", "local", address, "dstport", PORT)
        run("ip", "link", "set", TUNNEL, "master", "weave", "up")
    for peer in peers:
        run("bridge", "fdb", action, ANYWHERE, "dev", TUNNEL, "dst", peer)


def attach(container: str) -> str:
    """Plug a container in."""
    pid = run("docker", "inspect", "-f", "{{.State.Pid}}", container)
    ip, outer = give(container), f"vethwl{pid}"
    inside = ("nsenter", f"--net=/proc/{pid}/ns/net", "ip")
    found = subprocess.run([*inside, "link", "show", "ethwe"], capture_output=True, check=False)
    if found.returncode:
        run("ip", "link", "add", outer, "type", "veth", "peer", "name", "ethwe", "netns", f"/proc/{pid}/ns/net")
        run("ip", "link", "set", outer, "master", "weave", "up")
    run(*inside, "link", "set", "ethwe", *(["mtu", MTU] if load("machine") else []), "up")
    run(*inside, "addr", "replace", f"{ip}/{LENGTH}", "dev", "ethwe")
    return ip


def detach(container: str) -> str:
    """Unplug it; nothing is printed when it was not plugged in."""
    pid = run("docker", "inspect", "-f", "{{.State.Pid}}", container)
    table = load("addresses")
    ip = table.pop(container, "")
    keep("addresses", table)
    if pid != "0":
        inside = ("nsenter", f"--net=/proc/{pid}/ns/net", "ip")
        subprocess.run([*inside, "link", "del", "ethwe"], capture_output=True, check=False)
    return ip


def main() -> int:
    """Do what the words say."""
    with (STATE / "calls").open("a") as calls:
        fcntl.flock(calls, fcntl.LOCK_EX)  # the tables are read and written as a whole
        calls.write(" ".join(sys.argv[1:]) + "\n")
        return obey(*sys.argv[1:])


def obey(command: str = "", *words: str) -> int:
    """Carry out one command."""
    if (STATE / "broken").exists():
        sys.stderr.write((STATE / "broken").read_text())
        return 1
    targets = load("targets")
    if command == "connect":
        lead("append", *(word for word in words if word not in targets))
        keep("targets", targets | dict.fromkeys(words, ""))
    elif command == "forget":
        lead("del", *(word for word in words if word in targets))
        keep("targets", {name: "" for name in targets if name not in words})
    elif [command, *words] == ["status", "targets"]:
        print("\n".join(targets))
    elif command == "expose" and not words:
        print(expose())
    elif command in {"attach", "detach"} and len(words) == 1:
        print({"attach": attach, "detach": detach}[command](words[0]))
    else:
        sys.stderr.write("Usage: weave attach|detach|connect|forget|expose|status targets\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
