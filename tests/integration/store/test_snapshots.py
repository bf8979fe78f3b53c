"""Snapshots saved from a running etcd, restored, and served again."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from minik8s_modules.store import bolt, main, snapshots, tools
from minik8s_modules.store.cache import WatchCache
from minik8s_modules.store.errors import Compacted, StoreError
from minik8s_modules.store.etcd import EtcdStore
from minik8s_modules.store.memory import MemoryStore
from tests.support.etcd import EtcdServer, free_port
from tests.support.watching import Events, Recorder, stored

PODS = "/registry/core/pods/default/"


@pytest.fixture
def store(own_etcd: EtcdServer) -> Iterator[EtcdStore]:
    made = EtcdStore([own_etcd.endpoint], timeout_s=2)
    yield made
    made.close()


@pytest.fixture
def config(own_etcd: EtcdServer, tmp_path: Path) -> Path:
    path = tmp_path / "apiserver.yml"
    path.write_text(f"etcd:\n  endpoints: ['http://127.0.0.1:{free_port()}', '{own_etcd.endpoint}']\n")
    return path


def fill(store: EtcdStore, count: int, value: bytes = b"x" * 300) -> None:
    """Write objects in several versions, some deleted again, so that the database has branches and tombstones."""
    for number in range(count):
        revision = store.create(f"{PODS}{number:04}", stored("web"))
        revision = store.update(f"{PODS}{number:04}", orjson.dumps({"metadata": {}, "v": value.decode()}), revision)
        if number % 3 == 0:
            store.delete(f"{PODS}{number:04}", revision)


# 0: the keys' bucket is inline; 40: one leaf; 400: branches
@pytest.mark.parametrize("count", [0, 40, 400])
def test_a_restored_store_has_the_objects_a_later_revision_and_a_later_epoch(
    own_etcd, store, config, tmp_path, capsys, count
):
    store.create(snapshots.EPOCH_KEY, orjson.dumps({"metadata": {}, "data": {"epoch": "5", "other": "kept"}}))
    fill(store, count)
    before = {entry.key: entry for entry in store.range("/registry/").entries}
    file, data_dir = tmp_path / "snapshot", tmp_path / "restored"
    assert main.main(["snapshot", "save", str(file), "--config", str(config)]) == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lost = store.create(PODS + "lost", stored("lost"))
    own_etcd.kill9()
    assert main.main(["snapshot", "restore", str(file), "--data-dir", str(data_dir)]) == 0
    said = capsys.readouterr().out
    assert "next: start etcd" in said
    assert "cluster epoch: 5 in the snapshot, now " in said

    restored = EtcdServer(tmp_path / "second", data_dir=data_dir).start()
    try:
        again = EtcdStore([restored.endpoint])
        assert again.revision() > lost + 900_000_000
        after = {entry.key: entry for entry in again.range("/registry/").entries}
        cluster = orjson.loads(after.pop(snapshots.EPOCH_KEY).value)
        before.pop(snapshots.EPOCH_KEY)
        assert after == before
        assert abs(int(cluster["data"]["epoch"]) - time.time()) < 60
        assert cluster["data"]["other"] == "kept"
        ended = Recorder(again.watch(PODS, lost))
        ended.until_error()
        assert isinstance(ended.error, Compacted)
        entry = next(iter(after.values()), None)
        if entry:
            assert again.update(entry.key, b"{}", entry.revision) > lost
        again.create(PODS + "new", stored("new"))
        again.close()
        restored.kill9()
        restored.start()
        again = EtcdStore([restored.endpoint])
        assert again.get(PODS + "new")
        again.close()
    finally:
        restored.stop()


def test_a_running_cache_follows_a_restoration(own_etcd, store, config, tmp_path):
    store.create(PODS + "kept", stored("kept"))
    main.main(["snapshot", "save", str(tmp_path / "snapshot"), "--config", str(config)])
    store.create(PODS + "lost", stored("lost"))
    cache, events = WatchCache(store), Events()
    cache.start()
    assert cache.wait_ready(60)
    cache.subscribe(PODS, cache.revision, events)
    own_etcd.kill9()
    own_etcd.data_dir.rename(tmp_path / "before")
    assert main.main(["snapshot", "restore", str(tmp_path / "snapshot"), "--data-dir", str(own_etcd.data_dir)]) == 0
    own_etcd.start()
    seen = events.wait(1)
    assert [(event.type, event.key) for event in seen] == [("DELETED", PODS + "lost")]
    assert seen[0].revision > snapshots.BUMP
    cache.stop()


def test_a_snapshot_is_adjusted_twice_in_a_row(store, config, tmp_path):
    fill(store, 3)
    main.main(["snapshot", "save", str(tmp_path / "one"), "--config", str(config)])
    first = snapshots.adjust(tmp_path / "one", tmp_path / "two")
    second = snapshots.adjust(tmp_path / "two", tmp_path / "three", epoch_at_least=first.epoch + 1000)
    assert second.revision > first.revision + 900_000_000
    assert (second.epoch_before, second.epoch) == (first.epoch, first.epoch + 1000)
    assert (
        main.main(["snapshot", "restore", "--adjusted", str(tmp_path / "three"), "--data-dir", str(tmp_path / "d")])
        == 0
    )


def test_a_snapshot_is_saved_over_tls(tls_etcd, tmp_path, capsys):
    ca, cert, key = tls_etcd.tls
    store = EtcdStore([tls_etcd.server.endpoint], tls_etcd.tls)
    revision = store.create(PODS + "a", stored("a"))
    store.close()
    config = tmp_path / "tls.yml"
    config.write_text(f"etcd: {{endpoints: ['{tls_etcd.server.endpoint}'], ca: '{ca}', cert: '{cert}', key: '{key}'}}")
    assert main.main(["snapshot", "save", str(tmp_path / "snapshot"), "--config", str(config)]) == 0
    assert main.main(["snapshot", "status", str(tmp_path / "snapshot")]) == 0
    assert f"snapshot: revision {revision}," in capsys.readouterr().out


def test_a_clock_that_runs_behind_still_raises_the_epoch():
    store = MemoryStore()
    assert snapshots.raise_epoch(store, 100) == (0, 100)
    assert snapshots.raise_epoch(store, 50) == (100, 101)


def test_a_cut_off_snapshot_is_refused(store, config, tmp_path, capsys):
    fill(store, 20)
    file = tmp_path / "snapshot"
    main.main(["snapshot", "save", str(file), "--config", str(config)])
    data = bytearray(file.read_bytes())
    data[20_000] ^= 1
    file.write_bytes(data)
    assert main.main(["snapshot", "restore", str(file), "--data-dir", str(tmp_path / "d")]) == 1
    assert "snapshot restore failed" in capsys.readouterr().err
    file.write_bytes(data[:9000])
    assert main.main(["snapshot", "restore", str(file), "--data-dir", str(tmp_path / "d")]) == 1
    assert not (tmp_path / "d").exists()
    assert not list(tmp_path.glob(".minik8s-*"))


def test_a_data_directory_in_use_is_left_alone(tmp_path, capsys):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "member").write_text("precious")
    assert main.main(["snapshot", "restore", str(tmp_path / "none"), "--data-dir", str(tmp_path / "d")]) == 1
    assert "is not empty; stop etcd and move it away first" in capsys.readouterr().err
    assert (tmp_path / "d" / "member").read_text() == "precious"


def test_the_data_directory_belongs_to_the_user_that_is_named_or_owned_it(store, config, tmp_path, capsys):
    file = tmp_path / "snapshot"
    main.main(["snapshot", "save", str(file), "--config", str(config)])
    (tmp_path / "empty").mkdir()
    os.chown(tmp_path / "empty", 1, 1)
    for name, owner, user_id in (("named", ["--owner", "nobody"], 65534), ("empty", [], 1)):
        argv = ["snapshot", "restore", str(file), "--data-dir", str(tmp_path / name), *owner]
        assert main.main(argv) == 0
        found = (tmp_path / name / "member" / "snap" / "db").stat()
        assert found.st_uid == user_id
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700
    argv = ["snapshot", "restore", str(file), "--data-dir", str(tmp_path / "d"), "--owner", "no-such-user"]
    assert main.main(argv) == 1
    assert "no user no-such-user" in capsys.readouterr().err


def test_what_is_missing_is_named(tmp_path, capsys):
    assert main.main(["snapshot", "restore", str(tmp_path / "none"), "--data-dir", str(tmp_path / "d")]) == 1
    assert f"there is no snapshot {tmp_path}/none" in capsys.readouterr().err
    assert main.main(["snapshot", "save", str(tmp_path / "f"), "--config", str(tmp_path / "none.yml")]) == 1
    assert "none.yml" in capsys.readouterr().err
    (tmp_path / "a.yml").write_text(f"etcd: {{endpoints: ['http://127.0.0.1:{free_port()}']}}")
    assert main.main(["snapshot", "save", str(tmp_path / "f"), "--config", str(tmp_path / "a.yml")]) == 1
    assert "127.0.0.1" in capsys.readouterr().err
    assert not list(tmp_path.glob(".minik8s-*"))


def test_a_file_that_is_no_database_is_not_changed(tmp_path):
    file = tmp_path / "db"
    for before in (os.urandom(16384), bytes(16384), b"short" * 30):
        file.write_bytes(before)
        with pytest.raises(StoreError, match="not a bolt database"):
            bolt.raise_last_revision(file, 10, b"/key")
        assert file.read_bytes() == before


def test_a_newer_etcds_own_bump_is_used(tmp_path, monkeypatch):
    program = tmp_path / "etcdutl"
    program.write_text(
        '#!/bin/sh\necho "$*" >> "$0.calls"\n[ "$3" = --help ] && echo "  --bump-revision uint64"\nexit 0\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert tools.can_bump()
    tools.restore(tmp_path / "file", tmp_path / "data", tools.Member(name="m1"), bump=7)
    last = (tmp_path / "etcdutl.calls").read_text().splitlines()[-1]
    assert last == (
        f"snapshot restore {tmp_path}/file --data-dir {tmp_path}/data --name m1 --bump-revision 7 --mark-compacted"
    )
