"""What a RollingUpdate has written down decides which Pods are deleted, and what is made of them: its own write it.

The attack: whoever could write its status could say that sidecars have acknowledged what they have not, have Pods
withheld, and have the controllers make Pods of whatever spec. And a pilot, whose token lies on each machine of the
control plane, could do more with updates than say who has acknowledged.
"""

from __future__ import annotations

import pytest

from minik8s_modules.api.objects import JsonObject
from tests.attacks.people import editor_of
from tests.integration.apiserver.conftest import Namespace, pod
from tests.support.pki import Certificate

MERGE = {"Content-Type": "application/merge-patch+json"}
PILOT = "system:minik8s:pilot"
TOLD: JsonObject = {
    "phase": "Running",
    "withheld": ["web"],
    "acknowledged": ["web"],
    "pods": [{"name": "web", "spec": {"containers": [{"name": "a", "image": "a"}]}}],
}


def update(namespace: Namespace, **more: object) -> JsonObject:
    spec = {"serviceRef": "web", "port": 80, "newPodSpec": pod("x")["spec"]}
    return {"metadata": {"name": "to-2", "namespace": namespace.name}, "spec": spec, **more}


def path(namespace: Namespace, below: str = "") -> str:
    return f"{namespace.path('rollingupdates', 'to-2')}{below}"


@pytest.fixture
def editor(namespace: Namespace) -> Certificate:
    made = editor_of(namespace)
    answer = namespace.server.request(
        "POST", namespace.path("rollingupdates"), update(namespace, status=TOLD), client=made
    )
    assert answer.code == 201, answer.body
    return made


def status(namespace: Namespace) -> JsonObject:
    found: JsonObject = namespace.server.request("GET", path(namespace)).json["status"]
    return found


@pytest.mark.parametrize("below", ["", "/status"])
def test_who_may_write_updates_writes_no_status(namespace: Namespace, editor: Certificate, below: str):
    assert status(namespace) == {"phase": "Pending"}, "it came with the creation"
    body = {"status": TOLD}
    answer = namespace.server.request("PATCH", path(namespace, below), body, client=editor, headers=MERGE)
    assert answer.code == (403 if below else 200), answer.body
    assert status(namespace) == {"phase": "Pending"}


def test_the_pilot_says_who_has_acknowledged_and_asks_for_nothing(namespace: Namespace, editor: Certificate):
    assert editor
    server, pilot = namespace.server, namespace.server.identity(PILOT)
    stored = server.request("GET", path(namespace), client=pilot)
    assert stored.code == 200, stored.body
    fields = {**stored.json, "status": {"phase": "Pending", "acknowledged": ["a"]}}
    assert server.request("PUT", path(namespace, "/status"), fields, client=pilot).code == 200
    changed = {"spec": {"state": "Undone"}}
    for method, where, body in (
        ("PATCH", path(namespace), changed),
        ("DELETE", path(namespace), None),
        ("POST", namespace.path("rollingupdates"), {**update(namespace), "metadata": {"name": "other"}}),
        ("POST", namespace.path("pods"), pod("web")),
        ("DELETE", namespace.path("pods", "web"), None),
    ):
        headers = MERGE if method == "PATCH" else None
        answer = server.request(method, where, body, client=pilot, headers=headers)
        assert answer.code == 403, (method, where, answer.body)
