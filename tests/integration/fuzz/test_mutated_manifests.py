"""Manifests that are almost right: never a 500, nothing stored by a refused write, every refusal says what and where.

``MINIK8S_FUZZ_MANIFESTS`` is their number (1,000 in ``make test``), ``MINIK8S_FUZZ_FIRST`` the number to begin with.
"""

from __future__ import annotations

import json
import os
import random
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from minik8s_modules.api.kinds import KINDS, POD_ADDRESS, POD_CIDR, SERVICE, Kind
from minik8s_modules.store.compaction import TURN_KEY
from minik8s_modules.store.etcd import EtcdStore
from tests.integration.fuzz import mutations
from tests.integration.fuzz.conftest import TABLE, Client, collection, refusal_faults, stored
from tests.support.apiserver import Answer, ApiServerProcess
from tests.unit.api import samples

COUNT = int(os.environ.get("MINIK8S_FUZZ_MANIFESTS", "1000"))
FIRST = int(os.environ.get("MINIK8S_FUZZ_FIRST", "1"))
CHUNK = 100
ROOT = Path(__file__).resolve().parents[3]
MANIFESTS = [
    *(ROOT / "tests" / "cases" / "original_manifests").glob("*.y*ml"),
    *(ROOT / "examples").rglob("*.y*ml"),
]
# (method, media type, query) of each way to write
WAYS = [
    ("POST", "application/json", "?fieldValidation=Strict"),
    ("POST", "application/yaml", ""),
    ("PUT", "application/json", ""),
    ("PATCH", "application/merge-patch+json", ""),
    ("PATCH", "application/strategic-merge-patch+json", ""),
    ("PATCH", "application/apply-patch+yaml", "?fieldManager=fuzz&force=true"),
]


class Base(NamedTuple):
    """A valid manifest to begin with."""

    kind: Kind
    obj: dict[str, Any]


@cache
def bases() -> list[Base]:
    """Return a sample of each kind that is stored, and every manifest that the repository shows.

    Not of definitions and APIServices, whose status the server writes by itself, so that a write back may meet another
    version, and whose names are given; nor of webhooks and policies, which would have a say in all that follows. Their
    mutations are unit tests' (tests/unit/api/test_robustness.py).
    """
    apart = {"apiextensions.k8s.io", "apiregistration.k8s.io", "admissionregistration.k8s.io"}
    found = [Base(kind, samples.sample(kind)) for kind in stored() if kind.group not in apart]
    for path in sorted(MANIFESTS):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            kind = isinstance(document, dict) and KINDS.by_api_version(
                document.get("apiVersion") or "v1", document.get("kind", "")
            )
            if kind and kind.stored and kind.group not in apart:
                found.append(Base(kind, document))
    return found


def numbered(base: Base, number: int) -> tuple[str, Base]:
    """Return a namespace of the number's own, and the manifest with a name of its own there."""
    namespace, name = f"fuzz-{number}", base.obj["metadata"]["name"]
    own = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}" if base.kind is POD_ADDRESS else f"{name}-{number}"
    text = json.dumps(base.obj, default=str).replace('"default"', json.dumps(namespace))
    if base.kind is POD_CIDR:
        own = f"10.{number >> 8 & 255}.{number & 255}.0-24"
        text = text.replace(json.dumps(name.replace("-", "/")), json.dumps(own.replace("-", "/")))
    obj = json.loads(text.replace(json.dumps(name), json.dumps(own)))
    return namespace, base._replace(obj=obj)


PRESENCE = "/registry/coordination.k8s.io/leases/kube-system/apiserver-"  # the server renews its own lease


class Store:
    """All that etcd holds for the server, to see whether a request changed anything."""

    def __init__(self, endpoint: str) -> None:
        self._store = EtcdStore([endpoint])

    def close(self) -> None:
        """End the connection."""
        self._store.close()

    def revision(self) -> int:
        """Return the revision of the last change."""
        return self._store.revision()

    def changed_since(self, revision: int) -> list[str]:
        """Return the keys that are not as they were at ``revision``, less those that the server writes by itself."""
        if self.revision() == revision:
            return []
        changed = self._keys() ^ self._keys(revision)
        return sorted(key for key in {key for key, _ in changed} if key != TURN_KEY and not key.startswith(PRESENCE))

    def _keys(self, revision: int = 0) -> set[tuple[str, int]]:
        pages = [self._store.range(prefix, revision=revision) for prefix in ("/registry/", "/minik8s/")]
        return {(entry.key, entry.revision) for page in pages for entry in page.entries}


@pytest.fixture(scope="module")
def store(server: ApiServerProcess):
    """What the server's etcd holds."""
    config = yaml.safe_load((server.directory / "apiserver.yml").read_text())
    opened = Store(config["etcd"]["endpoints"][0])
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def client(server: ApiServerProcess):
    """A connection to the server."""
    opened = Client(server)
    yield opened
    opened.close()


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, CHUNK))
def test_manifests_that_are_almost_right(client: Client, store: Store, first: int):
    faults: list[str] = []
    for number in range(first, min(first + CHUNK, FIRST + COUNT)):
        faults += [f"{number}: {fault}" for fault in _tried(client, store, number)]
    assert not faults, "\n".join(faults)


def _tried(client: Client, store: Store, number: int) -> list[str]:
    """Return what is wrong with what the server made of the manifest of a number."""
    dice = random.Random(f"way {number}")
    (namespace, base), (method, media, query) = numbered(dice.choice(bases()), number), dice.choice(WAYS)
    wanted = mutations.manifest(base.kind, base.obj, number)
    client.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    for service in samples.services_of(base.obj):
        client.request("POST", collection(SERVICE, namespace), service)
    path = collection(base.kind, namespace)
    if method != "POST":
        made = client.request("POST", path, base.obj)
        assert made.code == 201, made.body
        path += f"/{base.obj['metadata']['name']}"
    revision = store.revision()
    body = yaml.safe_dump(wanted, allow_unicode=True) if media.endswith("yaml") else json.dumps(wanted)
    answer = client.request(method, path + query, body.encode(), headers={"Content-Type": media})
    text = f"{method} {path} as {media}: {json.dumps(wanted)} -> {answer.code} {answer.body[:600]!r}"
    if answer.code >= 400:
        found = refusal_faults(answer.code, _json(answer)) + (["a server error"] if answer.code >= 500 else [])
        found += [f"a refused write stored {key}" for key in store.changed_since(revision)]
    else:
        found = _kept_faults(client, base.kind, _json(answer))
    if base.kind.namespaced:  # node ports are the cluster's: the next one may want the same
        _remove_all(client, collection(base.kind, namespace))
    return [f"{fault}: {text}" for fault in found]


def _remove_all(client: Client, path: str) -> None:
    """Delete a collection, and what finalizers of mutated objects keep of it."""
    answer = client.request("DELETE", path)
    assert answer.code == 200, answer.body
    released, headers = b'{"metadata":{"finalizers":null}}', {"Content-Type": "application/merge-patch+json"}
    for kept in answer.json["items"]:
        if kept["metadata"].get("finalizers"):
            client.request("PATCH", f"{path}/{kept['metadata']['name']}", released, headers=headers)


def _json(answer: Answer) -> Any:
    try:
        return answer.json
    except ValueError:
        return None


def _kept_faults(client: Client, kind: Kind, made: dict[str, Any]) -> list[str]:
    """Return what is wrong with an object that was let in: it must be read, shown and written back."""
    meta = made["metadata"]
    if meta.get("deletionTimestamp"):
        return []  # its last finalizer went, and it with that
    path = f"{collection(kind, meta.get('namespace', ''))}/{meta['name']}"
    found = client.request("GET", path)
    if found.code != 200:
        return [f"what was stored is answered with {found.code}"]
    shown = client.request("GET", path, headers=TABLE)
    again = client.request("PUT", path, found.json)
    faults = [] if shown.code == 200 else [f"as a table it is answered with {shown.code} {shown.body!r}"]
    if again.code != 200:
        faults.append(f"what was stored is refused when it is written back: {again.body!r}")
    elif again.json["metadata"]["resourceVersion"] != found.json["metadata"]["resourceVersion"]:
        faults.append("written back, it becomes another one")
    return faults
