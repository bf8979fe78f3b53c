"""Labs come, stay as they are, stand side by side, and leave nothing: after many rounds, and after kill -9."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import leftovers, processes
from tests.lab.errors import LabUsage
from tests.lab.lab import Lab
from tests.lab.places import PROJECT
from tests.lab.records import Kind, NodeSpec

from .conftest import fresh_name


def own_traces(lab: Lab) -> list[str]:
    return leftovers.find(lab.places, lab.name)


def command(lab: Lab, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.lab", "--lab", lab.name, *words],
        cwd=PROJECT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def test_twenty_rounds_leave_nothing(lab: Lab) -> None:
    for _ in range(20):
        lab.up(1, "native")
        assert own_traces(lab)
        lab.down()
        assert own_traces(lab) == []


def test_a_uml_lab_leaves_nothing(lab: Lab) -> None:
    lab.up(1, "uml")
    assert any(line.startswith("process") for line in own_traces(lab))
    lab.down()
    assert own_traces(lab) == []


@pytest.mark.parametrize("kind", ["native", "uml"])
@pytest.mark.parametrize("after_ms", [150, 250, 400, 700])
def test_after_kill_9_in_the_middle_down_leaves_nothing(lab: Lab, kind: str, after_ms: int) -> None:
    starting = command(lab, "up", "2", "--kind", kind)
    time.sleep(after_ms / 1000)
    starting.send_signal(signal.SIGKILL)
    starting.communicate()
    lab.down()
    assert own_traces(lab) == []


def test_after_kill_9_in_the_middle_up_finishes_the_work(lab: Lab) -> None:
    starting = command(lab, "up", "2", "--kind", "native")
    while not (lab.folder / "nodes" / "node1" / "boot.json").exists() and starting.poll() is None:
        time.sleep(0.005)
    starting.send_signal(signal.SIGKILL)
    starting.communicate()
    lab.up(2, "native")
    assert [row.state for row in lab.status()] == ["ready", "ready"]


def test_a_new_node_has_nothing_of_an_earlier_one_that_was_half_removed(lab: Lab) -> None:
    lab.up(1, "native")
    lab.run("node1", ["sh", "-c", "touch /var/earlier; sync"])
    (lab.folder / "nodes" / "node1" / "node.json").unlink()
    lab.up(1, "native")
    assert "earlier" not in lab.run("node1", ["ls", "/var"]).split()


@pytest.mark.parametrize("kind", ["native", "uml"])
def test_a_supervisor_that_somebody_killed_takes_its_node_along(lab: Lab, kind: Kind) -> None:
    lab.up(1, kind)
    supervisor = lab.machine("node1").running()
    assert supervisor
    os.kill(supervisor.pid, signal.SIGKILL)
    assert processes.wait_ended([supervisor], 5) == []
    lab.start("node1")
    assert lab.run("node1", ["hostname"]) == "node1\n"
    lab.down()
    assert own_traces(lab) == []


def test_up_again_changes_nothing_and_up_with_more_adds(lab: Lab) -> None:
    lab.up(1, "native")
    before = lab.status()
    lab.up(1, "native")
    assert lab.status() == before
    lab.up(2, "native")
    assert lab.status()[:1] == before
    assert lab.run("node1", ["ping", "-c1", "-W2", "node2"])


def test_up_switches_on_what_is_off(lab: Lab) -> None:
    lab.up(2, "native")
    lab.power_cut("node2")
    lab.up(2, "native")
    assert [row.state for row in lab.status()] == ["ready", "ready"]


def test_a_lab_with_other_nodes_is_refused_and_untouched(lab: Lab) -> None:
    lab.up(2, "native")
    before = lab.status()
    for specs, message in (
        ([NodeSpec("node1", "native")], "node2, which was not asked for"),
        ([NodeSpec("node1", "native"), NodeSpec("node2", "uml")], "node2 is native"),
    ):
        with pytest.raises(LabUsage, match=message):
            lab.up(specs)
    assert lab.status() == before


def test_two_labs_stand_side_by_side_and_do_not_hear_each_other(lab: Lab) -> None:
    lab.up([NodeSpec("left", "native")])
    with Lab(fresh_name()) as other:
        other.up([NodeSpec("right", "native")])
        target = other.machine("right").address
        assert target.rsplit(".", 1)[0] != lab.machine("left").address.rsplit(".", 1)[0]
        assert lab.run("left", ["sh", "-c", f"ping -c1 -W1 {target} || echo unheard"]).endswith("unheard\n")
        other.down()
        assert leftovers.find(other.places, other.name) == []
    assert lab.status()[0].state == "ready"


def test_a_subnet_in_use_is_refused(lab: Lab) -> None:
    lab.up([NodeSpec("left", "native")])
    taken = lab.machine("left").record.subnet
    other = Lab(fresh_name())
    with pytest.raises(LabUsage, match=re.escape(f"{taken} is taken")):
        other.up([NodeSpec("right", "native")], subnet=taken)
    other.down()
    assert leftovers.find(other.places, other.name) == []


@pytest.fixture
def outside() -> Iterator[str]:
    """A machine beyond the host, which the host reaches and would forward to."""
    name = f"o{os.getpid()}"
    forwarding = Path("/proc/sys/net/ipv4/ip_forward")
    before = forwarding.read_text(encoding="ascii")
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        lines = [
            f"link add {name} type veth peer name out netns {name}",
            f"address add 198.51.100.1/30 dev {name}",
            f"link set {name} up",
        ]
        subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)
        inside = ["address add 198.51.100.2/30 dev out", "link set out up", "route add default via 198.51.100.1"]
        subprocess.run(["ip", "-n", name, "-batch", "-"], input="\n".join(inside), text=True, check=True)
        forwarding.write_text("1", encoding="ascii")
        yield "198.51.100.2"
    finally:
        forwarding.write_text(before, encoding="ascii")
        subprocess.run(["ip", "link", "del", name], check=False)
        subprocess.run(["ip", "netns", "del", name], check=True)


def test_a_node_has_no_way_out_by_its_default_route(lab: Lab, outside: str) -> None:
    lab.up([NodeSpec("inside", "native")])
    host = lab.machine("inside").record.address(1)
    script = f"ping -c1 -W1 {host} >/dev/null; ping -c1 -W1 {outside} || echo unheard"
    assert lab.run("inside", ["sh", "-ec", script]).endswith("unheard\n")


def test_the_host_does_not_forward_what_a_node_sends_it(outside: str, lab: Lab) -> None:
    lab.up([NodeSpec("inside", "native")])
    host = lab.machine("inside").record.address(1)
    script = f"ip route add {outside} via {host}; ping -c1 -W1 {outside} || echo unheard"
    assert lab.run("inside", ["sh", "-ec", script]).endswith("unheard\n")


def test_without_root_it_says_so() -> None:
    program = "import os\nfrom tests.lab.__main__ import main\nos.seteuid(65534)\nraise SystemExit(main(['status']))"
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("lab: a lab needs root")
