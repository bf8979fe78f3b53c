"""etcd holds no secret's value in the clear, also after keys rotated under a running server."""

from __future__ import annotations

import base64
import subprocess
import sys

from minik8s_modules.store.at_rest.keyring import key_of
from minik8s_modules.store.etcd import EtcdStore
from tests.integration.apiserver.conftest import Namespace
from tests.support.apiserver import ROOT, ApiServerProcess
from tests.support.etcd import EtcdServer

SECRETS = "/registry/core/secrets/"
CANARY = "canary-at-rest"


def store_command(*arguments: str) -> str:
    argv = [sys.executable, "-m", "minik8s_modules.store.main", "secrets", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_etcd_holds_no_canary_and_keys_rotate(server: ApiServerProcess, etcd: EtcdServer, namespace: Namespace):
    space = f"--namespace={namespace.name}"
    server.kubectl("create", "secret", "generic", "s", f"--from-literal=a={CANARY}", space)
    server.kubectl("annotate", "secret", "s", f"note={CANARY}", space)
    store = EtcdStore([etcd.endpoint])

    def values() -> list[bytes]:
        return [entry.value for entry in store.range(f"{SECRETS}{namespace.name}/").entries]

    encoded = base64.b64encode(CANARY.encode())
    everything = b"".join(entry.value for entry in store.range("/").entries)
    assert CANARY.encode() not in everything
    assert encoded not in everything
    before = {key_of(value) for value in values()}
    store_command("add-key", str(server.key_ring))
    assert namespace.get("s", "secrets").json["data"]["a"] == encoded.decode()
    assert "written with key" in store_command("rewrite", "--config", str(server.directory / "apiserver.yml"))
    assert {key_of(value) for value in values()}.isdisjoint(before)
    store_command("drop-keys", str(server.key_ring))
    assert namespace.get("s", "secrets").json["data"]["a"] == encoded.decode()
    listed = server.request("GET", f"{namespace.path('secrets')}?limit=1")
    assert listed.json["items"][0]["data"]["a"] == encoded.decode()
    store.close()


def test_no_file_of_etcd_holds_the_canary(server: ApiServerProcess, etcd: EtcdServer, namespace: Namespace):
    text = f"{CANARY}-{namespace.name}"
    server.request("POST", namespace.path("secrets"), {"metadata": {"name": "s"}, "stringData": {"a": text}})
    server.request("POST", namespace.path("configmaps"), {"metadata": {"name": "c"}, "data": {"a": f"plain-{text}"}})
    encoded = base64.b64encode(text.encode())
    files = [path.read_bytes() for path in etcd.data_dir.rglob("*") if path.is_file()]
    assert any(f"plain-{text}".encode() in data for data in files), "this looks where etcd writes"
    assert not any(encoded in data for data in files)
