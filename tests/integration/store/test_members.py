"""Three etcd members made from one snapshot; one of them is killed amid writes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from minik8s_modules.store import main, snapshots
from minik8s_modules.store.errors import KeyExists, StoreUnavailable
from minik8s_modules.store.etcd import EtcdStore
from tests.support.etcd import EtcdServer
from tests.support.watching import Recorder, stored

PODS = "/registry/core/pods/default/"


@pytest.fixture
def members(own_etcd: EtcdServer, tmp_path: Path) -> Iterator[list[EtcdServer]]:
    """Three running members whose data come from an adjusted snapshot that holds one pod."""
    store = EtcdStore([own_etcd.endpoint])
    store.create(PODS + "kept", stored("kept"))
    store.close()
    snapshots.save([own_etcd.endpoint], None, tmp_path / "snapshot")
    adjusted = str(tmp_path / "adjusted")
    assert main.main(["snapshot", "adjust", str(tmp_path / "snapshot"), adjusted]) == 0
    servers = [EtcdServer(tmp_path / f"m{number}") for number in range(3)]
    cluster = ",".join(f"m{number}={server.peer}" for number, server in enumerate(servers))
    for number, server in enumerate(servers):
        argv = ["snapshot", "restore", "--adjusted", adjusted, "--data-dir", str(server.data_dir)]
        argv += ["--name", f"m{number}", "--initial-advertise-peer-urls", server.peer]
        assert main.main([*argv, "--initial-cluster", cluster]) == 0
        server.arguments += ["--name", f"m{number}", "--initial-cluster", cluster]
        # on a busy machine the short times of a lone member would make elections without end
        server.arguments += ["--heartbeat-interval", "100", "--election-timeout", "1000"]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(EtcdServer.start, servers))
    yield servers
    for server in servers:
        server.stop()


def test_killing_one_of_three_members_loses_and_doubles_nothing(members):
    store = EtcdStore([server.endpoint for server in members], timeout_s=2)
    assert store.revision() > snapshots.BUMP
    assert store.get(PODS + "kept")
    recorder = Recorder(store.watch(PODS, store.revision()))
    names = itertools.count()

    def write(count: int) -> None:
        for name in itertools.islice(names, count):
            deadline = time.monotonic() + 60
            while True:
                try:
                    store.create(f"{PODS}{name:04}", stored("web"))
                except KeyExists:  # the write whose answer was lost
                    break
                except StoreUnavailable:
                    assert time.monotonic() < deadline, "two of three members must be enough"
                    time.sleep(0.05)
                    continue
                break

    write(50)
    for member in members:
        member.kill9()
        write(50)
        member.start()
    truth = sorted((entry.revision, entry.key) for entry in store.range(PODS).entries)[1:]
    assert len(truth) == 200
    assert [(change.revision, change.key) for change in recorder.wait(200)] == truth
    recorder.stop()
    store.close()
