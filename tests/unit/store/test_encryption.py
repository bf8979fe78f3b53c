"""Secrets at rest: what the store beneath holds, rotation, and values that cannot be read."""

from __future__ import annotations

import base64
from pathlib import Path

import orjson
import pytest

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.store.at_rest.encryption import EncryptedStore
from minik8s_modules.store.at_rest.keyring import MARK, KeyRing, dump, key_of, new_key, parse
from minik8s_modules.store.cache import WatchCache
from minik8s_modules.store.errors import Undecryptable
from minik8s_modules.store.main import main
from minik8s_modules.store.memory import MemoryStore

SECRET, OTHER = "/registry/core/secrets/default/a", "/registry/core/configmaps/default/a"
VALUE = orjson.dumps({"metadata": {"name": "a"}, "data": {"a": "canary"}})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    ring = tmp_path / "ring"
    ring.touch(mode=0o600)
    ring.write_bytes(dump([new_key()]))
    return ring


@pytest.fixture
def raw() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def store(raw: MemoryStore, path: Path) -> EncryptedStore:
    return EncryptedStore(raw, KeyRing(path))


def stored(raw: MemoryStore, key: str = SECRET) -> bytes:
    entry = raw.get(key)
    assert entry is not None
    return entry.value


def test_secrets_are_encrypted_and_nothing_else(store: EncryptedStore, raw: MemoryStore):
    store.create(SECRET, VALUE)
    store.create(OTHER, VALUE)
    assert b"canary" not in stored(raw)
    assert stored(raw).startswith(MARK)
    assert stored(raw, OTHER) == VALUE
    found = store.get(SECRET)
    assert found is not None
    assert found.value == VALUE
    assert [entry.value for entry in store.range("/registry/").entries] == [VALUE, VALUE]


def test_equal_values_look_different(store: EncryptedStore, raw: MemoryStore):
    revision = store.create(SECRET, VALUE)
    first = stored(raw)
    store.update(SECRET, VALUE, revision)
    assert stored(raw) != first


def test_plain_values_of_before_are_read(store: EncryptedStore, raw: MemoryStore):
    revision = raw.create(SECRET, VALUE)
    found = store.get(SECRET)
    assert found is not None
    assert found.value == VALUE
    store.update(SECRET, VALUE, revision)
    assert b"canary" not in stored(raw)


def test_changes_come_out_plain(store: EncryptedStore):
    revision = store.create(SECRET, VALUE)
    watch = store.watch("", revision - 1)
    for batch in watch:
        assert batch[0].value == VALUE
        break
    watch.cancel()


def test_a_value_that_was_changed_or_moved_is_not_read(store: EncryptedStore, raw: MemoryStore):
    store.create(SECRET, VALUE)
    good = stored(raw)
    raw.create(f"{SECRET}-moved", good)
    raw.create(f"{SECRET}-changed", good[:-1] + bytes([good[-1] ^ 1]))
    raw.create(f"{SECRET}-cut", good[:40])
    for suffix in ("-moved", "-changed", "-cut"):
        with pytest.raises(Undecryptable, match=f"cannot decrypt {SECRET}{suffix}"):
            store.get(SECRET + suffix)


def test_the_cache_serves_the_others_when_one_cannot_be_read(store: EncryptedStore, raw: MemoryStore):
    store.create(SECRET, VALUE)
    raw.create(f"{SECRET}-b", MARK + b"gone:xxxxxxxxxxxxxxxx")
    cache = WatchCache(store)
    cache.start()
    assert cache.wait_ready(10)
    assert [item.key for item in cache.list("/registry/core/secrets/").items] == [SECRET]
    cache.stop()


def test_keys_rotate_while_running_and_all_is_rewritten(store: EncryptedStore, raw: MemoryStore, path: Path):
    first = KeyRing(path).keys()[0].id
    store.create(SECRET, VALUE)
    assert key_of(stored(raw)) == first
    assert main(["secrets", "add-key", str(path)]) == 0
    second = KeyRing(path).keys()[0].id
    store.create(f"{SECRET}-new", VALUE)
    assert key_of(stored(raw, f"{SECRET}-new")) == second != first
    found = store.get(SECRET)
    assert found is not None
    assert found.value == VALUE
    raw.create(f"{SECRET}-plain", VALUE)
    assert store.rewrite() == 2
    assert store.rewrite() == 0
    assert {key_of(entry.value) for entry in raw.range("/registry/core/secrets/").entries} == {second}
    assert main(["secrets", "drop-keys", str(path)]) == 0
    assert {entry.value for entry in store.range("/registry/core/secrets/").entries} == {VALUE}
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_key_can_be_known_everywhere_before_it_writes(path: Path):
    first = KeyRing(path).keys()[0].id
    assert main(["secrets", "add-key", "--last", str(path)]) == 0
    keys = KeyRing(path).keys()
    assert (keys[0].id, len(keys)) == (first, 2)
    assert main(["secrets", "promote", str(path)]) == 0
    now = KeyRing(path).keys()
    assert [key.id for key in now] == [keys[1].id, first]


def test_a_ring_that_is_spoiled_while_running_leaves_the_former_keys(
    store: EncryptedStore, path: Path, caplog: pytest.LogCaptureFixture
):
    store.create(SECRET, VALUE)
    path.write_bytes(b"{")
    found = store.get(SECRET)
    assert found is not None
    assert found.value == VALUE
    assert "stays as it was" in caplog.text


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{}", "list of keys"),
        (b'{"keys": []}', "at least one"),
        (b'{"keys": [{"id": "A b", "key": ""}]}', "id must be"),
        (b'{"keys": [{"id": "a", "key": "c2hvcnQ="}]}', "32 bytes"),
        (b'{"keys": [{"id": "a", "key": "!"}]}', "32 bytes"),
    ],
)
def test_a_bad_ring_is_told(path: Path, data: bytes, why: str):
    path.write_bytes(data)
    with pytest.raises(ConfigurationError, match=why):
        KeyRing(path)


def test_a_ring_that_others_may_read_is_refused(path: Path):
    path.chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        KeyRing(path)


def test_keys_are_not_shown():
    key = new_key()
    assert base64.b64encode(key.secret).decode() not in repr(key)
    assert repr(key.secret) not in repr(key)
    assert parse(dump([key])) == (key,)
    with pytest.raises(ValueError, match="same id"):
        parse(dump([key, key]))
