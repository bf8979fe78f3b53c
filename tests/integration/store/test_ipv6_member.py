"""A member of etcd at an IPv6 address is written to and saved."""

from __future__ import annotations

from pathlib import Path

from minik8s_modules.store import snapshots
from minik8s_modules.store.etcd import EtcdStore
from tests.support.etcd import EtcdServer
from tests.support.watching import stored


def test_a_member_is_reached_and_saved_by_its_ipv6_address(tmp_path: Path):
    server = EtcdServer(tmp_path / "six")
    server.endpoint = f"http://[::1]:{server.port}"
    server.start()
    try:
        store = EtcdStore([server.endpoint])
        store.create("/registry/core/pods/default/web", stored("web"))
        assert store.get("/registry/core/pods/default/web")
        store.close()
        snapshots.save([server.endpoint], None, tmp_path / "snapshot")
        assert b"/registry/core/pods/default/web" in (tmp_path / "snapshot").read_bytes()
    finally:
        server.stop()
