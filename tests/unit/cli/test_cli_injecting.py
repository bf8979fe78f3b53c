"""``inject``: a sidecar beside the Pods of a file, or the reason why there can be none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api.kinds import KINDS
from minik8s_modules.api.validation import validate_create
from minik8s_modules.cli.main import main
from tests.unit.api import samples

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/mesh.yml"
WEB = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {"containers": [{"name": "a", "image": "b"}]},
}


def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], *objects: dict[str, Any]) -> list[dict[str, Any]]:
    file = tmp_path / "it.yml"
    file.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
    assert main(["inject", "-f", str(file)]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def init_containers(spec: dict[str, Any]) -> list[str]:
    return [each["name"] for each in spec["initContainers"]]


def test_it_prints_what_the_example_says_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    written = list(yaml.safe_load_all(EXAMPLE.read_text(encoding="utf-8")))
    (client,) = (each for each in written if each["metadata"]["name"] == "client")
    without = {**client, "spec": {key: value for key, value in client["spec"].items() if key != "initContainers"}}
    assert run(tmp_path, capsys, without) == [client]


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"])
def test_templates_of_workloads_get_one_and_stay_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str):
    (found,) = (each for each in KINDS.all() if each.kind == kind and each.group in {"apps", "batch"})
    (made,) = run(tmp_path, capsys, samples.sample(found))
    assert validate_create(found, samples.created(made)) == []
    template = made["spec"]["jobTemplate"]["spec"]["template"] if kind == "CronJob" else made["spec"]["template"]
    assert init_containers(template["spec"])[0] == "envoy"


def test_what_makes_no_pods_and_what_has_one_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}
    listed = {"apiVersion": "v1", "kind": "List", "items": [WEB, service]}
    (once,) = run(tmp_path, capsys, listed)
    assert init_containers(once["items"][0]["spec"]) == ["envoy"]
    assert once["items"][1] == service
    assert run(tmp_path, capsys, once) == [once]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"hostNetwork": True}, "hostNetwork"),
        ({"automountServiceAccountToken": False}, "no token"),
        ({"securityContext": {"runAsUser": 1337}}, "containers[0] runs as user 1337"),
        ({"securityContext": {"runAsGroup": 1337}}, "containers[0] runs as group 1337"),
        ({"initContainers": [{"name": "envoy", "image": "other"}]}, "initContainers[0] is called envoy"),
    ],
)
def test_a_pod_that_can_have_none_is_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spec: dict[str, Any], why: str
):
    file = tmp_path / "it.yml"
    file.write_text(yaml.safe_dump({**WEB, "spec": {**WEB["spec"], **spec}}), encoding="utf-8")  # type: ignore[dict-item]
    assert main(["inject", "-f", str(file)]) != 0
    printed = capsys.readouterr().err
    assert "Pod web can have no sidecar" in printed
    assert why in printed


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": "x"},
        {"containers": [1]},
        {"containers": [None]},
        {"containers": [{"name": "c", "securityContext": "x"}]},
        {"securityContext": [1], "containers": [{"name": "c"}]},
        {"initContainers": {"a": 1}, "containers": None},
    ],
)
@pytest.mark.parametrize("metadata", [{"name": "web"}, "web"])
def test_what_cannot_be_read_is_refused_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spec: dict[str, Any], metadata: Any
):
    file = tmp_path / "it.yml"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
    assert main(["inject", "-f", str(file)]) != 0
    assert "document 1: Pod" in capsys.readouterr().err
