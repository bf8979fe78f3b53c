"""A bridge of ours, by the kernel: a port that comes is told of at once, and not once more after 15 s.

Whoever watches the node's links would look at it for that.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from minik8s_modules.module_utils.minik8s.network.netlink import Netlink
from tests.support.node import TestNode


def delay(bridge: str) -> int:
    """Return the forward delay that the kernel tells, in hundredths of a second."""
    return int(Path(f"/sys/class/net/{bridge}/bridge/forward_delay").read_text(encoding="ascii"))


def set_bridge(bridge: str, *words: str) -> None:
    """Change the bridge as somebody else."""
    subprocess.run(["ip", "link", "set", bridge, *words], check=True)


def test_a_bridge_is_made_without_a_delay_and_one_that_has_it_loses_it(tmp_path: Path) -> None:
    node = TestNode(tmp_path)
    try:
        node.run("network", node.network())
        assert delay(node.bridge) == 0
        set_bridge(node.bridge, "type", "bridge", "forward_delay", "1500")
        with Netlink() as netlink:
            link = netlink.link(node.bridge)
            assert link is not None
            assert link.delay == delay(node.bridge) == 1500
        planned = node.run("network", node.network(), check=True)
        assert "delay 15 s" in planned["diff"]["before"]
        assert node.run("network", node.network())["changed"]
        assert delay(node.bridge) == 0
        assert not node.run("network", node.network())["changed"]
    finally:
        node.close()


def test_a_bridge_keeps_the_delay_of_its_spanning_tree_and_is_mended_all_the_same(tmp_path: Path) -> None:
    node = TestNode(tmp_path)
    try:
        node.run("network", node.network())
        set_bridge(node.bridge, "type", "bridge", "stp_state", "1")
        assert delay(node.bridge) > 0
        assert not node.run("network", node.network())["changed"]
        set_bridge(node.bridge, "mtu", "1300")
        node.run("network", node.network())
        assert not node.run("network", node.network())["changed"]
        assert delay(node.bridge) > 0
    finally:
        node.close()
