"""What is told of objects that an extension keeps, and the way of what the API server asks by itself."""

from __future__ import annotations

from typing import Any, cast

import pytest

from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import (
    API_SERVICE,
    ENDPOINT_SLICE,
    POD,
    SERVICE,
    VALIDATING_WEBHOOK_CONFIGURATION,
    Kind,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli import kubectl
from minik8s_modules.cli.causes.checks import judge
from minik8s_modules.cli.causes.trace import trace
from minik8s_modules.cli.causes.why import why
from minik8s_modules.cli.main import parse
from minik8s_modules.client.api import ApiClient
from tests.unit.cli.causes.logged_api import LoggedApi

NAME = "v1alpha1.wardle.example.com"
PASSED = {"type": "Available", "status": "True", "reason": "Passed", "message": "all checks passed"}
GONE = {"type": "Available", "status": "False", "reason": "ServiceNotFound", "message": "service/api is not present"}
FLUNDER: JsonObject = {
    "apiVersion": "wardle.example.com/v1alpha1",
    "kind": "Flunder",
    "metadata": {"name": "x", "namespace": "shop"},
}
META = {"name": "api", "namespace": "wardle"}


class Shy(LoggedApi):
    """An API that shows nobody its APIServices."""

    def get(self, kind: Kind, name: str, namespace: str = "") -> JsonObject:
        """Return an object."""
        if kind == API_SERVICE:
            raise Forbidden(kind, name, "no")
        return super().get(kind, name, namespace)


def extension(api: LoggedApi, condition: JsonObject, **spec: Any) -> LoggedApi:
    """Make an APIService."""
    declared = {
        "group": "wardle.example.com",
        "version": "v1alpha1",
        "service": {"namespace": "wardle", "name": "api"},
        **spec,
    }
    api.create(API_SERVICE, {"metadata": {"name": NAME}, "spec": declared, "status": {"conditions": [condition]}})
    return api


def service(api: LoggedApi, **endpoint: Any) -> None:
    """Make what leads to a pod of node n1; ``endpoint`` changes its endpoint."""
    spec = {"nodeName": "n1", "containers": [{"name": "c"}]}
    status = {"podIP": "10.244.0.7", "podIPs": [{"ip": "10.244.0.7"}]}
    api.create(POD, {"metadata": {"name": "api-1", "namespace": "wardle"}, "spec": spec, "status": status})
    ports = [{"name": "metrics", "port": 80}, {"name": "https", "port": 443, "targetPort": 8443}]
    api.create(SERVICE, {"metadata": META, "spec": {"ports": ports}})
    target = {"kind": "Pod", "namespace": "wardle", "name": "api-1"}
    found = {"addresses": ["10.244.0.7"], "conditions": {"ready": True}, "targetRef": target, **endpoint}
    labels = {"kubernetes.io/service-name": "api"}
    numbers = [{"name": "metrics", "port": 9090}, {"name": "https", "port": 8443}]
    api.create(ENDPOINT_SLICE, {"metadata": {**META, "labels": labels}, "endpoints": [found], "ports": numbers})


def traced(api: LoggedApi, capsys: pytest.CaptureFixture[str], place: str = f"apiservice/{NAME}") -> tuple[int, str]:
    """Return the code of ``trace``, and what it printed."""
    return trace(cast("ApiClient", api), parse(["trace", place])), capsys.readouterr().out


def test_an_extensions_object_is_not_known_and_who_keeps_it_is_told():
    verdict = judge(FLUNDER, extension(LoggedApi(), PASSED).around())
    assert (verdict.faults, verdict.certain) == ((), False)
    assert verdict.otherwise == (
        f"not known: nothing checks a Flunder: APIService {NAME} answers wardle.example.com/v1alpha1 "
        "through Service wardle/api, which is available (all checks passed)"
    )


def test_that_its_extension_is_away_is_the_cause():
    (fault,) = judge(FLUNDER, extension(LoggedApi(), GONE).around()).faults
    assert f"APIService {NAME} answers wardle.example.com/v1alpha1 through Service wardle/api: requests" in fault.cause
    assert "ServiceNotFound: service/api is not present" in fault.cause
    assert fault.next == f"minik8s why apiservice/{NAME}"


@pytest.mark.parametrize("api", [LoggedApi(), Shy(), extension(LoggedApi(), PASSED, service=None)])
def test_a_kind_that_nobody_else_answers_is_told_as_before(api: LoggedApi):
    around = api.around()
    assert judge(FLUNDER, around).otherwise == "not known: nothing checks a Flunder"
    assert not around.unread


@pytest.mark.parametrize(("condition", "expected"), [(GONE, True), (PASSED, False)])
def test_what_kubectl_cannot_read_may_be_an_extensions(
    condition: JsonObject,
    expected: bool,  # noqa: FBT001 - a case
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    refused = "Error from server (ServiceUnavailable): service unavailable\n"
    monkeypatch.setattr(kubectl, "read", lambda _argv: ([], False, refused))
    assert why(cast("ApiClient", extension(LoggedApi(), condition)), parse(["why", "flunder", "x"])) == 1
    shown = capsys.readouterr().err
    wanted = f"nothing of apiservice/{NAME} (wardle.example.com) can be read: requests for its group get 503"
    assert (wanted in shown, refused in shown) == (expected, True)
    assert ("Next: kubectl -n wardle get services" in shown) == expected


def test_the_way_to_an_extension_leads_through_the_gateway_of_its_node(capsys: pytest.CaptureFixture[str]):
    api = extension(LoggedApi(), PASSED)
    service(api)
    assert traced(api, capsys) == (
        0,
        (
            f"group      /apis/wardle.example.com/v1alpha1 → APIService {NAME}, available\n"
            "service    wardle/api:443, by TLS with a certificate for api.wardle.svc\n"
            "endpoints  10.244.0.7:8443 (pod api-1), directly, or through the gateway of node n1 where the API server "
            "has no route\n"
        ),
    )


@pytest.mark.parametrize(
    "endpoint",
    [{"targetRef": None}, {"addresses": ["10.9.9.9"]}, {"targetRef": {"kind": "Pod", "name": "api-1"}}],
)
def test_an_address_that_is_not_its_pods_has_no_tunnel(endpoint: JsonObject, capsys: pytest.CaptureFixture[str]):
    api = extension(LoggedApi(), PASSED)
    service(api, **endpoint)
    code, printed = traced(api, capsys)
    assert (code, "directly: no pod of its namespace has it" in printed, "node n1" in printed) == (0, True, False)


@pytest.mark.parametrize(
    ("made", "spec", "message"),
    [
        (False, {}, "there is no Service wardle/api"),
        (True, {"service": {**META, "port": 8}}, "Service wardle/api has no port 8"),
    ],
)
def test_where_the_way_ends_is_told(made: bool, spec: JsonObject, message: str, capsys: pytest.CaptureFixture[str]):  # noqa: FBT001 - a case
    api = extension(LoggedApi(), GONE, **spec)
    if made:
        service(api)
    code, shown = traced(api, capsys)
    assert (code, message in shown) == (1, True)
    assert "requests get 503: ServiceNotFound: service/api is not present" in shown


def test_a_service_whose_endpoints_are_not_ready_is_the_end(capsys: pytest.CaptureFixture[str]):
    api = extension(LoggedApi(), PASSED)
    service(api, conditions={"ready": False})
    code, printed = traced(api, capsys, f"apiservices/{NAME}")
    assert (code, "endpoints  none: it has no selector" in printed) == (1, True)


def test_what_the_server_answers_itself_and_what_is_not_there(capsys: pytest.CaptureFixture[str]):
    api = LoggedApi()
    api.create(API_SERVICE, {"metadata": {"name": "v1.apps"}, "spec": {"group": "apps", "version": "v1"}})
    assert traced(api, capsys, "apiservice/v1.apps") == (
        0,
        "group      /apis/apps/v1: the API server answers it itself\n",
    )
    assert traced(api, capsys) == (1, f"name       there is no APIService {NAME}\n")


def test_the_ways_to_webhooks(capsys: pytest.CaptureFixture[str]):
    api = LoggedApi()
    service(api)
    hooks = [
        {"name": "a.example.com", "clientConfig": {"service": META}, "failurePolicy": "Ignore"},
        {"name": "b.example.com", "clientConfig": {"url": "https://hooks.example.com/b"}},
    ]
    api.create(VALIDATING_WEBHOOK_CONFIGURATION, {"metadata": {"name": "hooks"}, "webhooks": hooks})
    code, printed = traced(api, capsys, "validatingwebhookconfiguration/hooks")
    assert code == 0
    assert "webhook    a.example.com, by Ignore if it is not reached\n" in printed
    assert "10.244.0.7:8443 (pod api-1), directly, or through the gateway of node n1" in printed
    assert "webhook    b.example.com → https://hooks.example.com/b, from the API server's machine\n" in printed
