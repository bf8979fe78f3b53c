"""plan's text: what would happen on which node."""

from __future__ import annotations

import argparse
import io
import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from minik8s_modules.cli.commands import build_parser
from minik8s_modules.cli.output import Paint, progress
from minik8s_modules.cli.plans.plan_markdown import markdown
from minik8s_modules.cli.plans.planning import ORDER, UNKNOWN, brief, fields, has_changes, render, summary
from tests.support.waiting import until

PLAIN = Paint(io.StringIO())
CHANGED: dict[str, Any] = {
    "nodes": {
        "n1": {
            "steps": [{"section": "containers", "action": "create", "key": "u/app", "detail": "minik8s/busybox:1"}],
            "diff": {"containers": {"before": "", "after": "u/app:\n  image: minik8s/busybox:1\n"}},
        },
        "n2": {"steps": [], "diff": {}},
    },
    "messages": ["shard b did not answer"],
}


def test_steps_diff_and_messages_are_shown_for_changed_nodes_only():
    text = render(CHANGED, PLAIN)
    assert "! shard b did not answer" in text
    assert "+ containers: create u/app  minik8s/busybox:1" in text
    assert "+  image: minik8s/busybox:1" in text
    assert "node n2" not in text
    assert text.endswith("1 step on 1 of 2 nodes")


def test_nothing_to_do_is_said():
    assert render({"nodes": {"n1": {"steps": []}}}, PLAIN) == "no changes"
    assert not has_changes({"nodes": {"n1": {"steps": []}}})
    assert has_changes(CHANGED)


def test_a_plan_that_no_node_answered_is_not_called_free_of_changes():
    text = render({"nodes": {}, "messages": ["no reconciler is running"]}, PLAIN)
    assert "no reconciler is running" in text
    assert "nothing is known" in text
    assert "no changes" not in text


def test_what_one_may_not_read_is_counted():
    nodes = {"n1": {**CHANGED["nodes"]["n1"], "hidden": 2}, "n2": {"steps": [], "diff": {}, "hidden": 1}}
    text = render({"nodes": nodes, "messages": [], "hidden": {"messages": 3, "order": 1}}, PLAIN)
    assert "! messages about objects you may not read: 3" in text
    assert "  2 changes to objects you may not read" in text
    assert "node n2\n  1 change to objects you may not read" in text
    assert text.endswith("4 steps on 2 of 2 nodes")
    assert has_changes({"nodes": {"n2": nodes["n2"]}})


def ref(kind: str, name: str) -> dict[str, str]:
    return {"apiVersion": "v1", "kind": kind, "namespace": "shop", "name": name}


def row(action: str, kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"action": action, **ref(kind, name), **more}


def deployment(replicas: int, image: str) -> dict[str, Any]:
    return {"spec": {"replicas": replicas, "containers": [{"name": "app", "image": image}]}}


PLANNED: dict[str, Any] = {
    "objects": [
        row("create", "ConfigMap", "settings", after={"data": {"a": "1"}}),
        row("update", "Deployment", "web", before=deployment(2, "web:1"), after=deployment(3, "web:2")),
        row("delete", "Service", "old", before={"spec": {}}),
        row("delete", "EndpointSlice", "old-1", because="Service/old", before={}),
        row("refuse", "Pod", "bad", message="spec.containers[0].image:\n Required value"),
    ],
    "order": [
        {"action": "create", "pod": "shop/web-5d9f-aaaaa", "node": "n1", "owner": "ReplicaSet/web-5d9f", "turn": 1}
        | {"nameUnknown": True, "about": []},
        {"action": "delete", "pod": "shop/web-77aa-kkkkk", "node": "n2", "owner": "ReplicaSet/web-77aa", "turn": 2}
        | {"about": []},
    ],
    "nodes": {
        "n1": {
            "steps": [
                {"section": "sandboxes", "action": "create", "key": "u", "about": [ref("Pod", "web-5d9f-aaaaa")]},
                {"section": "containers", "action": "create", "key": "u/a", "about": [ref("Pod", "web-5d9f-aaaaa")]},
                {"section": "containers", "action": "start", "key": "u/a", "about": [ref("Pod", "web-5d9f-aaaaa")]},
                {"section": "services", "action": "set", "key": "shop/web:80", "about": [ref("Service", "web")]},
            ],
            "diff": {"services": {"before": "a\n", "after": "b ```\n"}},
        },
        "n2": {"steps": [], "diff": {}},
    },
    "messages": [],
}
TOTAL = "objects: 1 to create, 1 to change, 2 to delete, 1 refused"
NOTHING: dict[str, Any] = {"nodes": {"n1": {"steps": [], "diff": {}}}, "messages": []}


def test_a_plan_in_brief_has_a_line_an_object_a_pod_and_a_subject():
    assert brief(PLANNED, PLAIN).splitlines() == [
        "objects",
        "  + ConfigMap shop/settings",
        "  ~ Deployment shop/web  spec.replicas: 2 → 3; spec.containers[app].image: web:1 → web:2",
        "  - Service shop/old",
        "  - EndpointSlice shop/old-1  with Service old",
        "  ! Pod shop/bad  refused: spec.containers[0].image: Required value",
        f"{ORDER}; {UNKNOWN}",
        "    1 + shop/web-5d9f-<1>  on n1  (ReplicaSet/web-5d9f)",
        "    2 - shop/web-77aa-kkkkk  from n2  (ReplicaSet/web-77aa)",
        "node n1",
        "  + Pod shop/web-5d9f-<1>  sandboxes 1, containers 2",
        "  ~ Service shop/web  services 1",
        f"{TOTAL}; pods: 1 to create, 1 to delete; 4 steps on 1 of 2 nodes",
        "every field, step and difference: --full",
    ]


def test_objects_alone_are_changes():
    alone = {**NOTHING, "objects": PLANNED["objects"][:1]}
    assert has_changes(alone)
    assert "no changes" not in brief(alone, PLAIN)
    assert not has_changes({**NOTHING, "objects": PLANNED["objects"][-1:]})
    assert "1 refused" in brief({**NOTHING, "objects": PLANNED["objects"][-1:]}, PLAIN)
    assert brief(NOTHING, PLAIN) == "no changes"
    hidden = {**NOTHING, "hidden": {"objects": 2}}
    assert (has_changes(hidden), "and 2 changes to objects you may not read" in brief(hidden, PLAIN)) == (True, True)


def test_the_whole_plan_has_the_objects_as_they_are_and_would_be():
    text = render(PLANNED, PLAIN)
    assert "+++ Deployment shop/web (planned)" in text
    assert "+  replicas: 3" in text
    assert "  + containers: start u/a" in text


def test_fields_that_differ_are_told_by_their_path():
    before = {"a": 1, "l": [{"name": "x", "v": 1}, {"name": "y"}], "n": [1, 2], "gone": "g"}
    after = {"a": 1, "l": [{"name": "y"}, {"name": "x", "v": 2}], "n": [1, 3], "new": "\x1b[31m"}
    assert [str(each) for each in fields(before, after)] == [
        "l[x].v: 1 → 2",
        "n[1]: 2 → 3",
        "gone: g removed",
        'new: "\\u001b[31m" added',
    ]


def test_a_review_reads_what_users_wrote_as_data():
    text = markdown(PLANNED)
    assert text.startswith("### Plan: objects: 1 to create")
    assert "| `~` | `Deployment shop/web` | `spec.replicas: 2 → 3;" in text
    assert "````diff" in text, "a fence is longer than what stands in it"
    assert "web-5d9f-<1>" in text
    wild = '`x` | <script> {{ y }} " \0\nz'
    message = markdown({**NOTHING, "objects": [row("refuse", "Pod", "bad", message=wild)], "messages": [wild]})
    assert '``refused: `x` \\| <script> {{ y }} " z``' in " ".join(message.split())
    assert "\0" not in message
    assert not [line for line in message.splitlines() if line.startswith("z")]


class Answers:
    """An API server that answers each plan with one status."""

    def __init__(self, status: dict[str, Any]) -> None:
        self._status = status

    def create(self, *_what: Any) -> dict[str, Any]:
        """Return the answer."""
        return {"status": self._status}


def run(status: dict[str, Any], tmp_path: Path, *words: str) -> int:
    file = tmp_path / "c.yml"
    file.write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}")
    given: argparse.Namespace = build_parser().parse_args(["plan", "-n", "shop", "-f", str(file), *words])
    return int(given.command(Answers(status), given))


@pytest.mark.parametrize(
    ("status", "code", "detailed"),
    [
        (NOTHING, 0, 0),
        ({**NOTHING, "objects": PLANNED["objects"][:1]}, 0, 2),
        (PLANNED, 1, 1),
        ({"nodes": {}, "messages": []}, 1, 1),
    ],
)
def test_exit_codes_are_those_of_terraform(
    status: dict[str, Any], code: int, detailed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert run(status, tmp_path) == code
    assert run(status, tmp_path, "--detailed-exitcode") == detailed
    printed = capsys.readouterr().err
    assert ("1 of the objects would be refused: Pod shop/bad" in printed) == (status is PLANNED)


def test_the_form_for_programs_is_the_documented_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    schema = json.loads(Path("docs/reference/plan.schema.json").read_text(encoding="utf-8"))
    for status in (PLANNED, NOTHING):
        run(status, tmp_path, "-o", "json")
        printed = json.loads(capsys.readouterr().out)
        jsonschema.validate(printed, schema)
        assert (printed["status"], printed["summary"]) == (status, summary(status))
    run({**NOTHING, "object": []}, tmp_path, "-o", "json")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(capsys.readouterr().out), schema)


class Terminal(io.StringIO):
    """What a person sees."""

    def isatty(self) -> bool:
        """Return that it is one."""
        return True


def test_a_person_is_told_what_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    terminal, pipe = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("nodes are asked"):
        until(lambda: "nodes are asked, 1 s" in terminal.getvalue(), 60)
    assert terminal.getvalue().endswith("\r\x1b[K")
    monkeypatch.setattr(sys, "stderr", pipe)
    with progress("nodes are asked"):
        pass
    assert pipe.getvalue() == ""


def test_a_step_about_all_objects_of_a_kind_is_told_so():
    about = {"apiVersion": "v1", "kind": "Secret", "namespace": "", "name": ""}
    step = {"section": "secrets", "action": "seal", "key": "secrets.sealed", "about": [about]}
    assert "  ~ Secrets  secrets 1" in brief({"nodes": {"n1": {"steps": [step]}}}, PLAIN).splitlines()
