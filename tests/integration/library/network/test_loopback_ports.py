"""Host ports of the node's loopback lead to pods, and keep the node's own servers there to the node."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_a_port_of_the_loopback_is_a_pods_and_the_nodes_loopback_stays_its_own() -> None:
    argv = ["unshare", "-n", sys.executable, "-m", "tests.support.docker.loopback_ports"]
    done = subprocess.run(argv, cwd=Path(__file__).parents[4], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "whole": True,
        "loopback": "pod",
        "every address": ["pod", "pod"],
        "another address": "",
        "from a pod": "",
        "from a pod without the rule": "node",
        "whole without it": False,
    }
