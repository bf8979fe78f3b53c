"""``apply --plan`` writes exactly what was shown, or nothing."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import CONFIG_MAP, PLAN, Kind
from minik8s_modules.api.merging.apply import annotated, difference
from minik8s_modules.api.merging.patch import merge_patch
from minik8s_modules.cli.commands import build_parser
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.plans import applying
from minik8s_modules.client.fake import FakeApi


def config(name: str, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def row(action: str, name: str, **more: Any) -> dict[str, Any]:
    return {"action": action, "apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": name, **more}


class Server(FakeApi):
    """Answers each plan with the next of ``statuses``, the last one again and again; keeps objects."""

    def __init__(self, *statuses: dict[str, Any]) -> None:
        super().__init__()
        self._statuses = list(statuses)
        self.before_writing: Callable[[], object] = lambda: None

    def create(self, kind: Kind, obj: Any, **options: Any) -> dict[str, Any]:
        """Create the object, or answer the plan."""
        if kind is not PLAN:
            return super().create(kind, obj, **options)
        status = self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]
        if len(self._statuses) == 1:
            self.before_writing()
        return {"status": copy.deepcopy(status)}

    def data(self) -> dict[str, Any]:
        """Return what the ConfigMaps hold."""
        return {one["metadata"]["name"]: one["data"] for one in self.list(CONFIG_MAP).items}


def status(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"objects": [*rows], "nodes": {"n1": {"steps": [], "diff": {}}}, "messages": [], **more}


def run(server: Server, tmp_path: Path, *manifests: dict[str, Any], words: tuple[str, ...] = ("--yes",)) -> int:
    file = tmp_path / "c.yml"
    file.write_text(yaml.safe_dump_all(manifests))
    given: argparse.Namespace = build_parser().parse_args(["plan", "--apply", "-n", "shop", "-f", str(file), *words])
    return int(given.command(server, given))


def standing(server: Server) -> str:
    """Make a ConfigMap as apply makes it, and return its resourceVersion."""
    return str(server.create(CONFIG_MAP, annotated(config("old", a="1", b="1")))["metadata"]["resourceVersion"])


def test_what_was_shown_is_applied(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    server = Server(status())
    version = standing(server)
    server._statuses = [status(row("create", "new"), row("update", "old", resourceVersion=version))]
    assert run(server, tmp_path, config("new", x="1"), config("old", a="2")) == 0
    assert server.data() == {"new": {"x": "1"}, "old": {"a": "2"}}
    printed = capsys.readouterr().out
    assert printed.endswith("ConfigMap shop/new created\nConfigMap shop/old configured\n")


def test_what_was_applied_is_no_change_for_the_next_apply(tmp_path: Path):
    server = Server(status(row("create", "new")))
    assert run(server, tmp_path, config("new", x="1", y="1")) == 0
    live = server.get(CONFIG_MAP, "new", "shop")
    server._statuses = [status(row("update", "new", resourceVersion=live["metadata"]["resourceVersion"]))]
    assert run(server, tmp_path, config("new", x="1")) == 0
    assert server.data() == {"new": {"x": "1"}}, "what the manifest has no more is taken out"


def test_where_the_plan_is_another_by_now_nothing_is_applied(tmp_path: Path):
    server = Server(status(row("create", "new")), status(row("create", "new"), messages=["node n2 is down"]))
    with pytest.raises(UsageError, match="the cluster has changed since this plan was made"):
        run(server, tmp_path, config("new"))
    assert server.data() == {}


def test_an_object_that_changes_in_the_last_moment_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    server = Server(status())
    version = standing(server)
    same = status(row("update", "old", resourceVersion=version), row("create", "new"))
    server._statuses = [same, same]
    server.before_writing = lambda: server.patch(CONFIG_MAP, "old", "shop", {"data": {"c": "3"}})
    assert run(server, tmp_path, config("old", a="2"), config("new")) == 1
    assert server.data() == {"old": {"a": "1", "b": "1", "c": "3"}}
    printed = capsys.readouterr().err
    assert "the object has been modified" in printed
    assert "not applied: ConfigMap shop/old, ConfigMap shop/new" in printed


def test_what_somebody_has_made_in_the_last_moment_is_left_alone(tmp_path: Path):
    server = Server(status(row("create", "old")))
    standing(server)
    assert run(server, tmp_path, config("old", a="2")) == 1
    assert server.data() == {"old": {"a": "1", "b": "1"}}


@pytest.mark.parametrize(
    ("planned", "code"),
    [
        (status(row("create", "new"), row("refuse", "bad", message="no")), 1),
        ({"objects": [row("create", "new")], "nodes": {}, "messages": []}, 1),
        (status(), 0),
    ],
)
def test_a_plan_that_is_not_whole_is_not_applied(
    planned: dict[str, Any], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    server = Server(planned)
    assert run(server, tmp_path, config("new")) == code
    assert server.data() == {}
    assert capsys.readouterr().err.count("would be refused") == sum(
        one["action"] == "refuse" for one in planned["objects"]
    )


def test_what_was_not_shown_is_not_applied(tmp_path: Path):
    server = Server(status(row("create", "new"), hidden={"objects": 1}))
    with pytest.raises(UsageError, match="objects that you may not read"):
        run(server, tmp_path, config("new"))
    assert server.data() == {}


@pytest.mark.parametrize(("answer", "written"), [(True, {"new": {}}), (False, {})])
def test_the_person_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bool, written: dict[str, Any]):  # noqa: FBT001
    monkeypatch.setattr(applying, "_confirmed", lambda: answer)
    server = Server(status(row("create", "new")))
    assert run(server, tmp_path, config("new"), words=()) == (0 if answer else 1)
    assert server.data() == written


def test_a_deletion_is_not_applied(tmp_path: Path):
    with pytest.raises(UsageError, match="delete with"):
        run(Server(status()), tmp_path, config("new"), words=("--delete",))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"a": 1}, {"a": 1}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}}),
        ({"a": [1, 2]}, {"a": [2], "b": {"c": {}}}),
        ({"a": {"b": 1}}, {"a": 5}),
    ],
)
def test_a_difference_leads_from_one_object_to_the_other(old: dict[str, Any], new: dict[str, Any]):
    assert merge_patch(old, difference(old, new)) == new
    assert difference(old, old) == {}


def test_a_refusal_of_the_server_ends_it(tmp_path: Path):
    server = Server(status(row("update", "gone", resourceVersion="1")))
    assert run(server, tmp_path, config("gone")) == 1
    with pytest.raises(StatusError):
        server.get(CONFIG_MAP, "gone", "shop")
