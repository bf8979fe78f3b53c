"""``why connect``: which policy decides about a connection, in both directions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from minik8s_modules.api.kinds import EVENT, NAMESPACE, NETWORK_POLICY, NODE, POD, SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.causes.why import why
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.main import parse
from minik8s_modules.client.fake import FakeApi

if TYPE_CHECKING:
    from minik8s_modules.client.api import ApiClient

SELECTED = "held back: isolated by NetworkPolicy shop/wall, and no rule allows it"


@pytest.fixture
def api() -> FakeApi:
    made = FakeApi()
    made.create(NAMESPACE, {"metadata": {"name": "shop", "labels": {"team": "a"}}})
    for number, name in enumerate(("n1", "n2")):
        addresses = [{"type": "InternalIP", "address": f"192.0.2.{number + 1}"}]
        made.create(NODE, {"metadata": {"name": name}, "status": {"addresses": addresses}})
    pod(made, "db", "10.244.0.2", "n1")
    pod(made, "web", "10.244.1.2", "n2")
    pod(made, "agent", "192.0.2.1", "n1", hostNetwork=True)
    ports = [{"name": "sql", "port": 5432, "targetPort": "sql", "protocol": "TCP"}]
    body = {"metadata": {"name": "db", "namespace": "shop"}, "spec": {"selector": {"app": "db"}, "ports": ports}}
    made.create(SERVICE, body)
    return made


def pod(api: FakeApi, name: str, address: str, node: str, **spec: Any) -> None:
    ports = [{"name": "sql", "containerPort": 5432, "protocol": "TCP"}]
    body = {"nodeName": node, "containers": [{"name": "c", "ports": ports}], **spec}
    metadata = {"name": name, "namespace": "shop", "labels": {"app": name}}
    api.create(POD, {"metadata": metadata, "spec": body, "status": {"phase": "Running", "podIP": address}})


def wall(api: FakeApi, *rules: JsonObject) -> None:
    spec = {"podSelector": {"matchLabels": {"app": "db"}}, "policyTypes": ["Ingress"], "ingress": [*rules]}
    api.create(NETWORK_POLICY, {"metadata": {"name": "wall", "namespace": "shop"}, "spec": spec})


def asked_why(api: FakeApi, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str], str]:
    code = why(cast("ApiClient", api), parse(["why", "-n", "shop", "connect", *words]))
    said = capsys.readouterr()
    return code, [" ".join(line.split()) for line in said.out.splitlines() if line], said.err


def test_without_policies_everything_is_open(api: FakeApi, capsys: pytest.CaptureFixture[str]):
    code, lines, _ = asked_why(api, capsys, "web", "db:5432")
    open_ = "open: no NetworkPolicy selects it"
    assert lines[1:] == [
        f"egress to Pod shop/db TCP 5432 Pod shop/web {open_}",
        f"ingress from Pod shop/web TCP 5432 Pod shop/db {open_}",
        "allowed",
    ]
    assert code == 0


@pytest.mark.parametrize("target", ["db:5432", "shop/db:sql", "10.244.0.2:5432", "svc/db:5432", "svc/db.shop:sql/tcp"])
def test_the_policy_that_holds_a_connection_back_is_named(
    api: FakeApi, capsys: pytest.CaptureFixture[str], target: str
):
    wall(api)
    code, lines, _ = asked_why(api, capsys, "web", target)
    assert lines[2].endswith(SELECTED)
    assert (code, lines[-1]) == (1, "held back")


def test_the_policy_that_lets_it_through_is_named(api: FakeApi, capsys: pytest.CaptureFixture[str]):
    wall(api, {"from": [{"podSelector": {"matchLabels": {"app": "web"}}}], "ports": [{"port": "sql"}]})
    code, lines, _ = asked_why(api, capsys, "web", "db:5432")
    assert lines[2].endswith("open: NetworkPolicy shop/wall allows it")
    assert (code, asked_why(api, capsys, "web", "db:80")[0]) == (0, 1)


def test_a_node_reaches_its_own_pods_and_others_by_its_address(api: FakeApi, capsys: pytest.CaptureFixture[str]):
    wall(api)
    assert asked_why(api, capsys, "agent", "db:5432")[0] == 0
    pod(api, "far", "192.0.2.2", "n2", hostNetwork=True)
    code, lines, _ = asked_why(api, capsys, "far", "db:5432")
    assert lines[2].endswith("(known by the address 192.0.2.2)")
    assert code == 1


@pytest.mark.parametrize(("target", "address"), [("[FD00:96::7]:5432", "fd00::2"), ("100.0.0.7:5432", "10.244.0.2")])
def test_the_address_of_a_service_leads_to_its_pods_of_that_family(
    api: FakeApi, capsys: pytest.CaptureFixture[str], target: str, address: str
):
    wall(api, {"from": [{"ipBlock": {"cidr": "fd00::/64"}}]})
    service = api.get(SERVICE, "db", "shop")
    addresses = {"clusterIP": "100.0.0.7", "clusterIPs": ["100.0.0.7", "fd00:96::7"]}
    api.update(SERVICE, {**service, "spec": {**service["spec"], **addresses}})
    for name, own, second in (("db", "10.244.0.2", "fd00::2"), ("web", "10.244.1.2", "fd00::1:2")):
        found = api.get(POD, name, "shop")
        ips = [{"ip": own}, {"ip": second}]
        api.update(POD, {**found, "status": {**found["status"], "podIPs": ips}}, subresource="status")
    code, lines, _ = asked_why(api, capsys, "web", target)
    ipv6 = ":" in address
    assert lines[-1] == ("allowed" if ipv6 else "held back")
    assert code == int(not ipv6)


def test_a_node_that_enforces_nothing_is_told(api: FakeApi, capsys: pytest.CaptureFixture[str]):
    wall(api)
    for reason, at in (("PolicyEnforced", "00"), ("PolicyNotEnforced", "01")):
        about = {"kind": "Node", "name": "n1"}
        event = {"reason": reason, "message": f"node n1: {reason}", "lastTimestamp": f"2026-01-01T00:00:{at}Z"}
        api.create(
            EVENT, {"metadata": {"name": reason.lower(), "namespace": "default"}, "involvedObject": about, **event}
        )
    assert "policies are not enforced there: node n1: PolicyNotEnforced" in asked_why(api, capsys, "web", "db:5432")[2]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("web",), "write `why connect"),
        (("web", "db"), "'db' is not a target"),
        (("web", "db:http"), "Pod shop/db has no port http of TCP"),
        (("web", "db:5432/ICMP"), "is not a target"),
        (("web", "svc/db:80"), "Service shop/db has no port 80 of TCP"),
        (("a/b/c", "db:80"), "is not a Pod"),
    ],
)
def test_what_is_not_understood_is_said(api: FakeApi, words: tuple[str, ...], says: str):
    with pytest.raises(UsageError, match=says.replace("`", "`")):
        why(cast("ApiClient", api), parse(["why", "-n", "shop", "connect", *words]))
