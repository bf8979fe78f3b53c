"""The server of plans, which the API server alone may ask, and what is no question."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.planning.planserver import CALLER, PlanFiles, PlanServer
from minik8s_modules.reconcile.planning.questions import Question, parse_question
from tests.support.pki import Authority


@pytest.mark.parametrize("admission", [[], {"pods": []}, {"pods": {}}, {"pods": {}, "quotas": {}}])
def test_an_admission_of_another_form_is_no_question(admission: Any):
    with pytest.raises(ValueError, match="admission"):
        parse_question({"objects": [], "admission": admission})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "a plan is"),
        ({"objects": [{"operation": "apply", "object": {}}]}, "must be create, update or delete"),
        ({"objects": [{"operation": "create", "object": []}]}, "must be an object with metadata"),
        ({"objects": [], "nodes": [1]}, "must be a list of names"),
        ({"objects": [], "others": "n1"}, "others must be a list of names"),
    ],
)
def test_a_question_that_is_none_is_refused(body: Any, message: str):
    with pytest.raises(ValueError, match=message):
        parse_question(body)


class Listener:
    """A plan server with its authority."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder, "cluster")
        serving = self.authority.issue("serving", "reconciler")
        self.leads = True
        self.asked: list[Question] = []
        self.server = PlanServer(
            "127.0.0.1", 0, PlanFiles(serving.cert, serving.key, self.authority.ca), self.answer, {"n1": "a 1\n"}.get
        )
        self.server.start()

    def answer(self, question: Question) -> JsonObject | None:
        """Answer, while it leads."""
        self.asked.append(question)
        return {"nodes": {}, "messages": []} if self.leads else None

    def post(self, body: bytes, caller: str | None = CALLER, path: str = "/plan") -> tuple[int, JsonObject]:
        """Ask as ``caller``."""
        status, answer = self.request("POST", path, body, caller)
        return status, json.loads(answer)

    def request(
        self, method: str, path: str, body: bytes | None = None, caller: str | None = CALLER
    ) -> tuple[int, bytes]:
        """Send one request as ``caller``."""
        context = ssl.create_default_context(cafile=str(self.authority.ca))
        if caller is not None:
            context.load_cert_chain(*self.authority.issue("caller", caller))
        connection = http.client.HTTPSConnection("127.0.0.1", self.server.port, context=context, timeout=60)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


@pytest.fixture
def listener(tmp_path: Path):
    made = Listener(tmp_path)
    yield made
    made.server.stop()


def test_the_api_server_is_answered(listener: Listener):
    assert listener.post(b'{"objects": []}') == (200, {"nodes": {}, "messages": []})


def test_other_callers_are_refused(listener: Listener):
    status, body = listener.post(b'{"objects": []}', caller="minik8s-admin")
    assert status == 403
    assert "minik8s-admin" in body["message"]
    assert listener.asked == []


def test_callers_without_a_certificate_get_no_connection(listener: Listener):
    with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
        listener.post(b'{"objects": []}', caller=None)


@pytest.mark.parametrize(("body", "status"), [(b"{", 400), (b"[]", 400), (b'{"objects": [{}]}', 400)])
def test_malformed_questions_get_a_clear_error(listener: Listener, body: bytes, status: int):
    assert listener.post(body)[0] == status


def test_who_does_not_lead_says_so(listener: Listener):
    listener.leads = False
    assert listener.post(b'{"objects": []}')[0] == 503


def test_there_are_no_other_paths(listener: Listener):
    assert listener.post(b"{}", path="/")[0] == 404
    assert listener.request("GET", "/plan")[0] == 404


def test_what_was_counted_of_a_node_is_told_the_api_server_alone(listener: Listener):
    assert listener.request("GET", "/metrics/n1") == (200, b"a 1\n")
    assert listener.request("GET", "/metrics/n2")[0] == 404
    status, body = listener.request("GET", "/metrics/n1", caller="minik8s-admin")
    assert (status, b"a 1" in body) == (403, False)
