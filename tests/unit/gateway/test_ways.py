"""Who connects to the gateway is told how commands reach its nodes."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from minik8s_modules.client.fake import FakeApi
from minik8s_modules.gateway.inventory import NodeAddress
from minik8s_modules.gateway.main import Gateway


def test_the_way_to_a_node_is_told_when_a_client_connects_and_with_each_new_list(tmp_path: Path):
    gateway = Gateway(FakeApi(), tmp_path / "s", tmp_path / "d")
    gateway.start()
    try:
        gateway.use([NodeAddress("n", "warm_local", str(tmp_path / "no-docker.sock"), str(tmp_path))])
        with socket.socket(socket.AF_UNIX) as client, client.makefile("rwb") as lines:
            client.settimeout(60)
            client.connect(str(tmp_path / "s"))
            dirs = {"state_dir": "/var/lib/minik8s", "run_dir": str(tmp_path)}
            way = {"op": "way", "node": "n", "argv": [], **dirs}
            while json.loads(lines.readline()) != way:
                continue
            lines.write(b'{"op":"relist","node":"n"}\n')
            lines.flush()
            while json.loads(lines.readline()) != way:
                continue
    finally:
        gateway.stop()
