"""drift's text and its exit status: an alarm rings when somebody changed something, and only then."""

from __future__ import annotations

import argparse
import io
from typing import Any

import pytest

from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import DEPLOYMENT, EVENT, NODE, PLAN, SERVICE, Kind
from minik8s_modules.api.network.gateway_api import GATEWAY_KINDS
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.main import parse
from minik8s_modules.cli.output import Paint
from minik8s_modules.cli.plans.drifting import differs, drift, history, render
from tests.unit.controllers.network.test_gateways import OURS, gateway, made

PLAIN = Paint(io.StringIO())
POD = [{"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web"}]
FAULT: dict[str, Any] = {
    "section": "volumes", "key": "u/data", "reason": "HostPathMissing", "message": "/data is not there", "about": POD,
}  # fmt: skip
STEP = {"section": "services", "action": "set", "key": "shop/web:80", "detail": ""}


def status(**part: Any) -> JsonObject:
    return {"nodes": {"n1": {"steps": [], "diff": {}, **part}}, "messages": []}


class Client:
    """Answers every plan the same, and keeps no objects but Events."""

    def __init__(self, answer: JsonObject, events: list[JsonObject] | None = None) -> None:
        self.answer, self.events, self.patched = answer, events or [], list[str]()
        self.gateways: list[JsonObject] = []

    def get(self, kind: Kind, name: str, _namespace: str = "") -> JsonObject:
        """Return the Node."""
        assert kind is NODE
        return {"metadata": {"name": name}}

    def create(self, kind: Kind, body: JsonObject) -> JsonObject:
        """Answer the plan."""
        assert kind is PLAN
        return {**body, "status": self.answer}

    def list(self, kind: Kind, *, field_selector: str = "") -> Any:
        """Return the Events of the reason asked for; no Gateways, whose kind is not served."""
        if kind == GATEWAY_KINDS.gateways:
            return argparse.Namespace(items=self.gateways)
        assert kind is EVENT
        found = [one for one in self.events if f"reason={one['reason']}" in field_selector]
        return argparse.Namespace(items=found)

    def patch(self, kind: Kind, name: str, namespace: str, body: JsonObject) -> None:
        """Note the Node."""
        assert (kind, namespace) == (NODE, "")
        assert "minik8s.io/observe" in body["metadata"]["annotations"]
        self.patched.append(name)


class Edited(Client):
    """Has a Gateway of ours, whose Deployment has another image, and whose Service is gone."""

    def __init__(self, answer: JsonObject) -> None:
        super().__init__(answer)
        one = gateway()
        self.gateways = [one]
        self._parts: dict[Kind, JsonObject | None] = {**made(one), GATEWAY_KINDS.classes: OURS}
        (self._parts[DEPLOYMENT] or {})["spec"]["template"]["spec"]["containers"][0]["image"] = "evil:1"
        del self._parts[SERVICE]

    def get(self, kind: Kind, name: str, _namespace: str = "") -> JsonObject:
        """Return a part of the Gateway."""
        found = self._parts.get(kind)
        if found is None:
            raise NotFound(kind, name)
        return found


def test_what_a_gateway_runs_as_and_nobody_has_reverted_is_drift(capsys):
    assert run(Edited(status())) == 2
    told = capsys.readouterr().out
    assert "changed by hand in the cluster:" in told
    assert "Gateway shop/edge: Deployment minik8s-gateway-edge differs from what the Gateway declares" in told
    assert "Service" not in told  # what is not there is not made yet


def run(client: Client, *words: str, **options: bool) -> int:
    given = {"full": False, "heal": False, "history": False, "detailed_exitcode": True, **options}
    return drift(client, argparse.Namespace(words=[*words], **given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("part", "code"),
    [({}, 0), ({"steps": [STEP]}, 2), ({"faults": [FAULT]}, 0), ({"faults": [{**FAULT, "drifted": True}]}, 2)],
)
def test_the_exit_status_is_an_alarm(part, code, capsys):
    assert run(Client(status(**part))) == code
    assert differs(status(**part)) is (code == 2)
    assert capsys.readouterr().out


def test_what_was_never_realized_stands_below_and_names_its_object():
    text = render(status(faults=[FAULT]), PLAIN, full=False)
    assert text.splitlines() == [
        "no changes",
        "not realized, which is no drift:",
        "  ! node n1: Pod/shop/web: volumes u/data: HostPathMissing: /data is not there",
    ]
    assert "changed by hand and cannot be corrected:" in render(
        status(faults=[{**FAULT, "drifted": True}]), PLAIN, full=True
    )


def test_the_short_form_has_a_line_an_object_and_says_what_is_only_reported():
    steps = [{**STEP, "about": POD}, {**STEP, "section": "containers", "about": POD, "policy": "report"}]
    diff = {"containers": {"before": "a: 1\n", "after": "a: 2\n"}}
    assert render(status(steps=steps, diff=diff), PLAIN, full=False).splitlines() == [
        "node n1",
        "  ~ Pod shop/web  services 1, containers 1  (1 reported only)",
        "2 steps on 1 of 1 nodes",
        "every field, step and difference: --full",
        "reported only (minik8s.io/drift), until drift --heal: 1 step",
    ]
    text = render(status(steps=steps, diff=diff), PLAIN, full=True)
    assert "~ containers: set shop/web:80  (reported only)" in text
    assert "+a: 2" in text


def test_heal_asks_for_the_nodes_named(capsys):
    client = Client(status(steps=[STEP]))
    assert run(client, "n1", heal=True) == 2
    assert client.patched == ["n1"]
    assert "node n1 is being healed" in capsys.readouterr().out


def event(node: str, at: str, reason: str = "DriftHealed") -> JsonObject:
    return {
        "involvedObject": {"kind": "Node", "name": node},
        "lastTimestamp": at,
        "reason": reason,
        "message": "dns: x",
    }


def test_the_history_is_in_order_and_of_the_nodes_asked_for(capsys):
    events = [event("n1", "2026-01-01T00:00:02Z"), event("n2", "2026-01-01T00:00:01Z", "DriftFound")]
    assert [line.split()[1] for line in history(iter(events), []).splitlines()] == ["NODE", "n2", "n1"]
    assert run(Client({}, events), "n2", history=True, detailed_exitcode=False) == 0
    shown = capsys.readouterr().out
    assert "DriftFound" in shown
    assert "n1" not in shown
    assert run(Client({}), history=True, detailed_exitcode=False) == 0
    assert "no drift was found" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--heal", "--full", "--detailed-exitcode"])
def test_the_history_takes_no_option_about_what_differs_now(option, capsys):
    with pytest.raises(SystemExit) as end:
        drift(Client({}), parse(["drift", "--history", option]))  # type: ignore[arg-type]
    assert end.value.code == 2
    assert f"{option}: --history shows" in capsys.readouterr().err
