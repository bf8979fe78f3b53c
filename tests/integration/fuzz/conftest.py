"""A server for the fuzzers, with one object of every kind in the namespace ``fuzz``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api.kinds import KINDS, Kind
from tests.support.apiserver import Answer, ApiServerProcess
from tests.support.etcd import EtcdServer
from tests.unit.api import samples

NAMESPACE = "fuzz"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}


def collection(kind: Kind, namespace: str = NAMESPACE) -> str:
    """Return the path of a kind's objects."""
    root = f"{'/apis/' if kind.group else '/api/'}{kind.api_version}"
    return f"{root}/namespaces/{namespace}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"


def stored() -> list[Kind]:
    """Return the kinds whose objects are made by clients and kept."""
    return [kind for kind in KINDS.all() if kind.stored and "create" in kind.verbs]


def seed(server: ApiServerProcess, namespace: str = NAMESPACE) -> dict[str, Any]:
    """Create the namespace and one object of every kind; returns the objects by path of their collection."""
    server.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    found = {}
    for kind in stored():
        sample = json.loads(json.dumps(samples.sample(kind)).replace('"default"', json.dumps(namespace)))
        for webhook in sample.get("webhooks", ()):  # nobody answers there, and what follows must go on
            webhook["failurePolicy"] = "Ignore"
        answer = server.request("POST", collection(kind, namespace), sample)
        assert answer.code in {201, 409}, answer.body
        found[collection(kind, namespace)] = sample
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    """A running API server on an etcd of its own."""
    etcd = EtcdServer(tmp_path_factory.mktemp("etcd")).start()
    api = ApiServerProcess(tmp_path_factory.mktemp("api"), etcd.endpoint)
    try:
        yield api.start()
    finally:
        code = api.stop()
        etcd.stop()
    assert code == 0


class Client:
    """Sends requests over one connection, which costs half of what a connection each does."""

    def __init__(self, server: ApiServerProcess) -> None:
        self._connection = server.connection()

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def request(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        """Return the answer to a request; a body that is not bytes goes as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if data is not None else {}
        self._connection.request(method, path, data, {**sent, **(headers or {})})
        response = self._connection.getresponse()
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())


def refusal_faults(code: int, body: Any) -> list[str]:
    """Return what a refusal lacks of a v1 Status that helps: code, reason, message, and where, for an Invalid."""
    if not isinstance(body, dict) or body.get("kind") != "Status":
        return [f"the body of a {code} is no Status"]
    faults = [f"no {field}" for field in ("reason", "message") if not body.get(field)]
    if body.get("code") != code or body.get("status") != "Failure":
        faults.append("code or status is another than the answer's")
    if code == 422:
        causes = (body.get("details") or {}).get("causes") or []
        faults += [] if causes else ["no causes"]
        faults += ["a cause without field" for cause in causes if not cause.get("field")]
        faults += [
            "a field that the message does not name" for c in causes if c.get("field", "") not in body["message"]
        ]
    return faults
