"""What ``plan`` is given: files and kustomizations; what cannot be read of them is told with where it is written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api.errors import BadRequest, ServiceUnavailable, StatusError
from minik8s_modules.api.kinds import PLAN, Kind
from minik8s_modules.cli import kubectl
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.main import parse
from minik8s_modules.client.fake import FakeApi

UNKNOWN = 'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "dta"'


class Server(FakeApi):
    """Keeps what plans asked, and answers that nothing would change, or with an error."""

    def __init__(self, error: StatusError | None = None) -> None:
        super().__init__()
        self.asked: list[dict[str, Any]] = []
        self._error = error

    def create(self, kind: Kind, obj: Mapping[str, Any], **_options: Any) -> dict[str, Any]:
        """Answer a plan."""
        assert kind is PLAN
        self.asked.append(obj["spec"])
        if self._error is not None:
            raise self._error
        return {"status": {"nodes": {"n1": {"steps": [], "diff": {}}}, "messages": []}}


def planned(server: Server, *words: str) -> int:
    given = parse(["plan", *words])
    given.namespace = given.namespace or "shop"
    return int(given.command(server, given))


def config(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("spec.objects[0]", "a.yml, document 1: ConfigMap shop/one: "),
        ("spec.objects[2]", "b.yml, document 2, item 1: ConfigMap shop/three: "),
        ("spec.deleted[1]", "b.yml, document 1: ConfigMap shop/two: "),
    ],
)
def test_what_cannot_be_read_is_told_with_file_document_and_object(tmp_path: Path, place: str, told: str) -> None:
    (tmp_path / "a.yml").write_text(yaml.safe_dump(config("one")))
    listed = {"apiVersion": "v1", "kind": "List", "items": [config("three")]}
    (tmp_path / "b.yml").write_text(yaml.safe_dump_all([config("two"), listed]))
    words = ["--delete"] if "deleted" in place else []
    with pytest.raises(BadRequest) as refused:
        planned(Server(BadRequest(f"{place}: {UNKNOWN}")), "-f", str(tmp_path), *words)
    assert str(refused.value) == f"{tmp_path}/{told}{UNKNOWN}"


@pytest.mark.parametrize("unreadable", [{"name": 123}, {"name": "one", "namespace": 4}, {"name": ["one"]}])
def test_a_name_that_is_no_text_is_told_as_it_is_written(tmp_path: Path, unreadable: dict[str, Any]) -> None:
    (tmp_path / "a.yml").write_text(yaml.safe_dump({**config("one"), "metadata": unreadable}))
    with pytest.raises(BadRequest) as refused:
        planned(Server(BadRequest("spec.objects[0]: no text")), "-f", str(tmp_path / "a.yml"))
    called = f"{unreadable.get('namespace', 'shop')}/{unreadable['name']}"
    assert str(refused.value) == f"{tmp_path}/a.yml, document 1: ConfigMap {called}: no text"


def test_an_error_of_no_object_is_told_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(yaml.safe_dump(config("one")))
    with pytest.raises(ServiceUnavailable, match=r"^no etcd$"):
        planned(Server(ServiceUnavailable("no etcd")), "-f", str(tmp_path))


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where a program is in kubectl's place, which prints its words and warns, or fails for ``wrong``."""
    found = tmp_path / "kubectl"
    found.write_text(
        "#!/bin/sh\n"
        '[ "$2" = wrong ] && { echo "error: lstat wrong: no such file or directory" >&2; exit 1; }\n'
        "echo '# Warning: commonLabels is deprecated' >&2\n"
        'echo "{apiVersion: v1, kind: ConfigMap, metadata: {name: made}, data: {words: \\"$*\\"}}"\n'
    )
    found.chmod(0o755)
    monkeypatch.setattr(kubectl, "INSTALLED", found)
    return found


@pytest.mark.usefixtures("program")
def test_a_kustomization_is_what_kubectl_makes_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server()
    assert planned(server, "-k", "overlays/test") == 0
    (made,) = server.asked[0]["objects"]
    assert (made["metadata"], made["data"]) == (
        {"name": "made", "namespace": "shop"},
        {"words": "kustomize overlays/test"},
    )
    assert "commonLabels is deprecated" in capsys.readouterr().err
    with pytest.raises(BadRequest, match=r"^kustomization overlays/test, document 1: ConfigMap shop/made: no"):
        planned(Server(BadRequest("spec.objects[0]: no")), "-k", "overlays/test")


@pytest.mark.usefixtures("program")
def test_what_kubectl_says_of_a_kustomization_is_told() -> None:
    with pytest.raises(UsageError, match=r"^lstat wrong: no such file or directory$"):
        planned(Server(), "-k", "wrong")


@pytest.mark.parametrize("words", [["-R"], ["--dialect", "original"]])
@pytest.mark.usefixtures("program")
def test_what_is_for_files_alone_is_refused_for_kustomizations(words: list[str]) -> None:
    with pytest.raises(UsageError, match="leave them out with -k"):
        planned(Server(), "-k", "overlays/test", *words)


@pytest.mark.parametrize("words", [["-f", "a.yml", "-k", "b"], []])
def test_either_files_or_a_kustomization_are_planned(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse(["plan", *words])
    assert end.value.code == 2
    assert "-k/--kustomize" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--yes"], ["--apply", "--detailed-exitcode"]])
def test_options_that_would_mean_nothing_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    server = Server()
    with pytest.raises(SystemExit) as end:
        planned(server, "-f", "a.yml", *words)
    assert (end.value.code, server.asked) == (2, [])
    assert f"{words[-1]}: " in capsys.readouterr().err
