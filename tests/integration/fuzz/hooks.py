"""What schemathesis checks of every answer (it imports this file, in its own virtual environment)."""

from __future__ import annotations

import schemathesis  # type: ignore[import-not-found]


@schemathesis.check
def failures_are_statuses(_context, response, _case) -> None:
    """A refusal is a v1 Status with reason, message and, where the object is invalid, fields; no answer is a defect's.

    503 is said of parts that do not run here (usage of nodes is a gateway's to tell).
    """
    if response.status_code < 400:
        return
    assert response.status_code < 500 or response.status_code == 503, response.text
    body = response.json()
    assert body["kind"] == "Status", body
    assert body["code"] == response.status_code, body
    assert body["reason"], body
    assert body["message"], body
    if response.status_code == 422:
        assert all(cause["field"] for cause in body["details"]["causes"]), body
