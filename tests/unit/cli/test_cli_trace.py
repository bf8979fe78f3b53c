"""``trace`` and ``describe service``: the way of a request, and why a pod is not among a service's endpoints."""

from __future__ import annotations

from typing import Any, cast

import pytest

from minik8s_modules.api.kinds import DNS, ENDPOINT_SLICE, INGRESS, NODE, POD, SERVICE
from minik8s_modules.cli.main import parse
from minik8s_modules.cli.reading import describe, why
from minik8s_modules.cli.trace import trace
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.fake import FakeApi

JsonObject = dict[str, Any]
META = {"namespace": "default"}


def pod(name: str, status: JsonObject, **metadata: Any) -> JsonObject:
    """Return a pod of app web."""
    named = {"name": name, "labels": {"app": "web"}, "uid": name, **META, **metadata}
    return {"metadata": named, "spec": {"nodeName": "n1", "containers": [{"name": "c"}]}, "status": status}


@pytest.fixture
def api() -> FakeApi:
    made = FakeApi()
    ports = [{"port": 80, "targetPort": "http"}]
    spec = {"selector": {"app": "web"}, "clusterIP": "100.0.0.7", "ports": ports}
    made.create(SERVICE, {"metadata": {"name": "web", **META}, "spec": spec})
    return made


def run(api: FakeApi, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Run a command; return its code and what it printed."""
    options = parse(list(words))
    done = {"trace": trace, "describe": describe, "why": why}[words[0]]
    return done(cast("ApiClient", api), options), capsys.readouterr().out


def with_endpoint(api: FakeApi) -> None:
    """Put a ready endpoint behind the service."""
    endpoint = {"addresses": ["10.244.0.7"], "conditions": {"ready": True}, "targetRef": {"kind": "Pod", "name": "a"}}
    labels = {"kubernetes.io/service-name": "web"}
    body = {"metadata": {"name": "s", "labels": labels, **META}, "endpoints": [endpoint], "ports": [{"port": 8080}]}
    api.create(ENDPOINT_SLICE, body)


def test_a_way_is_shown_from_the_name_to_the_endpoints(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    with_endpoint(api)
    paths = [{"path": "/web", "backend": {"service": {"name": "web", "port": 80}}}]
    api.create(DNS, {"metadata": {"name": "shop", **META}, "spec": {"rules": [{"host": "shop.test", "paths": paths}]}})
    code, told = run(api, capsys, "trace", "http://shop.test:80/web/x?y=1")
    assert code == 0, told
    for part in ("cluster DNS", "DNS default/shop", "default/web:80 → 100.0.0.7", "10.244.0.7:8080 (pod a, ready)"):
        assert part in told
    code, told = run(api, capsys, "trace", "web.default")
    assert (code, "10.244.0.7:8080" in told) == (0, True)


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("nobody.test/", "no Ingress or DNS object declares nobody.test"),
        ("shop.test/other", "has no path for /other: nginx answers 404 (paths: /gone, /web)"),
        ("shop.test/gone", "there is no Service default/gone: nginx answers 503"),
        ("shop.test/web", "no pod of namespace default has the labels app=web"),
    ],
)
def test_where_a_way_ends_is_said(api: FakeApi, capsys: pytest.CaptureFixture[str], place: str, told: str) -> None:
    paths = [
        {"path": f"/{name}", "pathType": "Prefix", "backend": {"service": {"name": name, "port": {"number": 80}}}}
        for name in ("web", "gone")
    ]
    rules = [{"host": "shop.test", "http": {"paths": paths}}]
    api.create(INGRESS, {"metadata": {"name": "shop", **META}, "spec": {"rules": rules}})
    code, shown = run(api, capsys, "trace", place)
    assert code == 1
    assert told in shown


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({"phase": "Succeeded"}, "it is over (Succeeded)"),
        ({"phase": "Pending"}, "it has no address yet"),
        ({"phase": "Running", "podIP": "10.244.0.9"}, "it is not ready"),
        (
            {"phase": "Running", "podIP": "10.244.0.9", "conditions": [{"type": "Ready", "status": "True"}]},
            "no container of it has a port named http",
        ),
    ],
)
def test_a_pod_that_is_no_endpoint_is_told_with_the_reason(
    api: FakeApi, capsys: pytest.CaptureFixture[str], status: JsonObject, told: str
) -> None:
    with_endpoint(api)
    node = {"metadata": {"name": "n1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    api.create(NODE, node)
    api.create(POD, pod("late", status))
    _, shown = run(api, capsys, "describe", "service", "web", "-n", "default")
    assert "10.244.0.7:8080 (pod a, ready)" in shown
    assert f"pod late: {told}" in shown


def test_why_a_service_leads_nowhere_is_one_line(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    _, shown = run(api, capsys, "why", "service", "web", "-n", "default")
    assert "no pod of namespace default has the labels app=web" in shown
    with_endpoint(api)
    _, shown = run(api, capsys, "why", "service", "web", "-n", "default")
    assert "as it should be" in shown
