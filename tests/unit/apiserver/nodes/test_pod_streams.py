"""What a request for a stream asks of the node, from the pod alone; words as Kubernetes'."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from werkzeug.datastructures import MultiDict

from minik8s_modules.api.errors import StatusError
from minik8s_modules.apiserver.nodes import pod_streams

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
Options = dict[str, list[str]]


def pod(*names: str, inits: tuple[str, ...] = (), **status: Any) -> dict[str, Any]:
    spec = {"nodeName": "n1", "containers": [{"name": each} for each in names]}
    if inits:
        spec["initContainers"] = [{"name": each} for each in inits]
    return {"metadata": {"name": "web", "namespace": "default", "uid": "u1"}, "spec": spec, "status": status}


def status_with(state: dict[str, Any], last: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "app", "state": state, "lastState": last or {}, **more}]}


def log_options(obj: dict[str, Any], **arguments: str) -> Options:
    wanted = pod_streams.log_request(obj, MultiDict(arguments), NOW)
    assert wanted is not None
    return MultiDict(wanted.options).to_dict(flat=False)


def refusal(obj: dict[str, Any], **arguments: str) -> str:
    with pytest.raises(StatusError) as caught:
        pod_streams.log_request(obj, MultiDict(arguments), NOW)
    return caught.value.message


RUNNING = status_with({"running": {}}, {"terminated": {"containerID": "docker://old"}}, containerID="docker://now")
CRASHED = status_with(
    {"waiting": {"reason": "CrashLoopBackOff"}}, {"terminated": {"containerID": "docker://dead"}}, containerID="x"
)


def test_the_container_that_runs_and_the_one_before_it() -> None:
    assert log_options(pod("app", **RUNNING))["id"] == ["now"]
    assert log_options(pod("app", **RUNNING), previous="true")["id"] == ["old"]


def test_in_a_back_off_both_are_the_dead_one() -> None:
    assert log_options(pod("app", **CRASHED))["id"] == ["dead"]
    assert log_options(pod("app", **CRASHED), previous="true")["id"] == ["dead"]


@pytest.mark.parametrize(
    ("waiting", "words"),
    [
        ({"reason": "ContainerCreating"}, "is waiting to start: ContainerCreating"),
        ({"reason": "ErrImagePull"}, "is waiting to start: image can't be pulled"),
        ({"reason": "ImagePullBackOff"}, "is waiting to start: trying and failing to pull image"),
        ({}, "is waiting to start - no logs yet"),
    ],
)
def test_a_container_that_waits(waiting: dict[str, str], words: str) -> None:
    assert refusal(pod("app", **status_with({"waiting": waiting}))) == f'container "app" in pod "web" {words}'


def test_a_container_without_a_status_or_an_earlier_life() -> None:
    assert refusal(pod("app")) == 'container "app" in pod "web" is not available'
    words = 'previous terminated container "app" in pod "web" not found'
    assert refusal(pod("app", **status_with({"running": {}})), previous="true") == words


def test_which_container() -> None:
    several = pod("a", "b", inits=("i",))
    words = "a container name must be specified for pod web, choose one of: [a b] or one of the init containers: [i]"
    assert refusal(several) == words
    assert refusal(several, container="c") == "container c is not valid for pod web"


def test_a_pod_without_a_node_has_an_empty_log_and_no_exec() -> None:
    unbound = pod("app")
    del unbound["spec"]["nodeName"]
    assert pod_streams.log_request(unbound, MultiDict(), NOW) is None
    with pytest.raises(StatusError, match="pod web does not have a host assigned"):
        pod_streams.command_request(unbound, "exec", MultiDict([("command", "x"), ("stdout", "true")]))


def test_since_is_a_moment() -> None:
    assert log_options(pod("app", **RUNNING), sinceSeconds="5")["since"] == [f"{NOW.timestamp() - 5:.9f}"]
    assert log_options(pod("app", **RUNNING), sinceTime="2026-01-02T03:04:05Z")["since"] == [f"{NOW.timestamp():.9f}"]


def test_flags_are_read_as_apimachinery_reads_them() -> None:
    assert "follow" in log_options(pod("app", **RUNNING), follow="")
    assert "follow" not in log_options(pod("app", **RUNNING), follow="False")


def test_exec_needs_a_command_and_a_stream() -> None:
    for arguments, words in (
        ([("command", "x")], "at least 1 of stdin"),
        ([("command", "x"), ("tty", "1")], "at least 1"),
        ([("stdout", "1")], "at least one command"),
    ):
        with pytest.raises(StatusError, match=words):
            pod_streams.command_request(pod("app"), "exec", MultiDict(arguments))
    wanted = pod_streams.command_request(
        pod("app"), "exec", MultiDict([("command", "a"), ("command", ""), ("stdin", "1")])
    )
    assert wanted.options == (
        ("namespace", "default"),
        ("pod", "web"),
        ("container", "app"),
        ("stdin", "true"),
        ("command", "a"),
        ("command", ""),
    )


@pytest.mark.parametrize("ports", ["x", "0", "65536", "80,", "-1"])
def test_ports_must_be_ports(ports: str) -> None:
    with pytest.raises(StatusError, match="must be a number from 1 to 65535"):
        pod_streams.forward_request(pod("app"), MultiDict({"ports": ports}))
