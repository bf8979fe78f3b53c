"""NetworkPolicies know Pods by their addresses: a Pod that has no capabilities cannot send with another's.

With NET_RAW, which Docker gives by default, a Pod can forge what it sends; Pod Security's level ``restricted`` takes it
away (docs/how-to/network-policies.md says so).
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.integration.policies.policed import ADDRESSES, Policed, entries, labelled, policy
from tests.integration.services.machines import namespace

PYTHON = "/usr/bin/python3"  # that any user may run
NOBODY = "setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all --inh-caps=-all --ambient-caps=-all"
ATTEMPTS = {
    "a forged source of UDP": """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_IP, 15, 1)  # IP_FREEBIND
s.bind(("{friend}", 0)); s.settimeout(3); s.sendto(b"?", ("{server}", 8080)); print(s.recv(100))
""",
    "a forged source of TCP": """
import socket
s = socket.socket(); s.setsockopt(socket.SOL_IP, 15, 1)
s.bind(("{friend}", 0)); s.settimeout(3); s.connect(("{server}", 8080)); print(s.recv(100))
""",
    "a transparent socket": "import socket; socket.socket().setsockopt(socket.SOL_IP, 19, 1)",
    "a raw socket": "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)",
    "frames of its own": "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "an address more": """
import subprocess, sys
sys.exit(subprocess.call(["ip", "addr", "add", "{friend}/24", "dev", "eth0"]))
""",
    "a connection as itself": "import socket; print(socket.create_connection(('{server}', 8080), 30).recv(100))",
}


@pytest.fixture(scope="module")
def machine() -> Iterator[Policed]:
    with namespace("nftables") as made:
        made.__class__ = Policed
        assert isinstance(made, Policed)
        some = {name: ADDRESSES[name] for name in ("x-a", "x-b", "y-b")}
        made.call("pods", bridge="mk8s-br0", gateway="10.32.0.1", pods=some)
        rules = [{"from": [{"podSelector": labelled(pod="b")}]}]
        made.converge(entries=entries([policy("x", select=labelled(pod="a"), ingress=rules)]))
        yield made


def attempt(machine: Policed, pod: str, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a Pod as nobody, without capabilities."""
    inside = f"nsenter --net=/proc/$(cat {machine.folder}/pods/{pod})/ns/net {NOBODY} {PYTHON} -"
    text = program.format(friend=ADDRESSES["x-b"], server=ADDRESSES["x-a"])
    return subprocess.run(["sh", "-c", inside], input=text, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("program", ATTEMPTS.values(), ids=ATTEMPTS)
def test_a_pod_without_capabilities_sends_as_nobody_else(machine: Policed, program: str) -> None:
    done = attempt(machine, "y-b", program)
    assert done.returncode != 0, done.stdout
    assert "b'x-a" not in done.stdout


def test_whom_the_policy_allows_is_answered(machine: Policed) -> None:
    assert "b'x-a" in attempt(machine, "x-b", ATTEMPTS["a connection as itself"]).stdout
