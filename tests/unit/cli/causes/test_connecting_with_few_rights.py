"""``why connect`` for somebody who may read one namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import EVENT, NAMESPACE, NETWORK_POLICY, NODE, POD, SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.causes.why import why
from minik8s_modules.cli.main import parse
from tests.unit.cli.causes.confined import Confined
from tests.unit.cli.causes.samples import META

if TYPE_CHECKING:
    from minik8s_modules.client.api import ApiClient

FAR = "as far as you may read"
OPEN = "no NetworkPolicy selects it"
FROM_SHOP = [{"from": [{"namespaceSelector": {"matchLabels": {"team": "a"}}}]}]


@pytest.fixture
def confined() -> Confined:
    """Return a cluster with the Pods ``web`` and ``db`` in ``default`` and ``far`` in ``other``."""
    made = Confined()
    for name in ("default", "other"):
        made.create(NAMESPACE, {"metadata": {"name": name, "labels": {"team": "a"}}})
    made.create(NODE, {"metadata": {"name": "n1"}, "status": {"addresses": [{"address": "192.0.2.1"}]}})
    for name, space, address in (("web", "default", "1"), ("db", "default", "2"), ("far", "other", "3")):
        a_pod(made, name, space, f"10.244.0.{address}")
    ports = [{"port": 80, "targetPort": 5432}]
    for name, space, address in (("db", "default", "100.0.0.2"), ("far", "other", "100.0.0.3")):
        spec = {"selector": {"app": name}, "clusterIP": address, "clusterIPs": [address], "ports": ports}
        made.create(SERVICE, {"metadata": {"name": name, "namespace": space}, "spec": spec})
    return made


def a_pod(api: Confined, name: str, space: str, address: str) -> None:
    status = {"phase": "Running", "podIP": address}
    metadata = {"name": name, "namespace": space, "labels": {"app": name}}
    api.create(POD, {"metadata": metadata, "spec": {"nodeName": "n1", "containers": []}, "status": status})


def wall(api: Confined, name: str, ingress: list[JsonObject], space: str = "default") -> None:
    """Isolate a Pod from all but some."""
    spec = {"podSelector": {"matchLabels": {"app": name}}, "policyTypes": ["Ingress"], "ingress": ingress}
    api.create(NETWORK_POLICY, {"metadata": {"name": "wall", "namespace": space}, "spec": spec})


def asked(api: Confined, capsys: pytest.CaptureFixture[str], target: str) -> tuple[int, str, str]:
    """Return the code, what is printed, and what is warned of."""
    code = why(cast("ApiClient", api), parse(["why", "-n", "default", "connect", "web", target]))
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize("target", ["db:5432", "svc/db:80", "10.244.0.2:5432", "100.0.0.2:80"])
def test_nothing_else_is_asked_about_a_connection_within_a_namespace(
    confined: Confined, capsys: pytest.CaptureFixture[str], target: str
) -> None:
    code, printed, warned = asked(confined, capsys, target)
    assert (code, printed.count(f"open: {OPEN}"), printed.endswith("\nallowed\n")) == (0, 2, True), printed
    assert ("without what you may not read" in warned) == (target[0] == "1")
    wall(confined, "db", [])
    code, printed, _ = asked(confined, capsys, target)
    assert (code, printed.endswith("\nheld back\n")) == (1, True), printed


@pytest.mark.parametrize("target", ["100.0.0.3:80", "10.244.0.3:5432", "192.0.2.1:22", "198.51.100.1:443"])
def test_whose_an_address_is_may_be_hidden(confined: Confined, capsys: pytest.CaptureFixture[str], target: str) -> None:
    code, printed, warned = asked(confined, capsys, target)
    assert (code, printed.endswith(f"\nallowed {FAR}\n")) == (0, True), printed
    assert f"open {FAR}: no NetworkPolicy is about an address" in printed
    beyond = "of other namespaces than default"
    assert f"without what you may not read: nodes, pods {beyond}, services {beyond}" in warned
    egress = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]}
    confined.create(NETWORK_POLICY, {"metadata": {"name": "out", **META}, "spec": egress})
    assert f"open {FAR}: NetworkPolicy default/out allows it" in asked(confined, capsys, target)[1]


@pytest.mark.parametrize(
    ("everywhere", "ingress", "said"),
    [
        ((), FROM_SHOP, f"held back {FAR}: isolated by NetworkPolicy default/wall, and no rule allows it"),
        ((), [], "held back: isolated by NetworkPolicy default/wall, and no rule allows it"),
        ((), [*FROM_SHOP, {"from": [{"podSelector": {}}]}], "open: NetworkPolicy default/wall allows it"),
        ((NAMESPACE,), FROM_SHOP, "open: NetworkPolicy default/wall allows it"),
    ],
)
def test_labels_of_namespaces_are_asked_for_where_they_decide(
    confined: Confined,
    capsys: pytest.CaptureFixture[str],
    everywhere: tuple[Kind, ...],
    ingress: list[JsonObject],
    said: str,
) -> None:
    wall(confined, "db", ingress)
    confined.everywhere = frozenset(everywhere)
    code, printed, warned = asked(confined, capsys, "db:5432")
    assert (code, said in printed) == (int("held back" in said), True), printed
    assert ("namespaces" in warned) == (bool(ingress) and not everywhere)


def test_policies_of_another_namespace_may_be_hidden(confined: Confined, capsys: pytest.CaptureFixture[str]) -> None:
    wall(confined, "far", [], "other")
    confined.everywhere = frozenset({POD})
    code, printed, warned = asked(confined, capsys, "other/far:5432")
    assert (code, f"open {FAR}: {OPEN}" in printed, f"open: {OPEN}" in printed) == (0, True, True), printed
    assert "without what you may not read: networkpolicies of namespace other" in warned
    confined.everywhere = frozenset({POD, NETWORK_POLICY})
    code, printed, warned = asked(confined, capsys, "other/far:5432")
    assert (code, printed.endswith("\nheld back\n"), "may not read" in warned) == (1, True, False), printed


def test_what_surely_holds_a_connection_back_is_enough(confined: Confined, capsys: pytest.CaptureFixture[str]) -> None:
    confined.everywhere = frozenset({POD})
    spec = {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Egress"], "egress": []}
    confined.create(NETWORK_POLICY, {"metadata": {"name": "in", **META}, "spec": spec})
    code, printed, _ = asked(confined, capsys, "other/far:5432")
    assert (code, printed.endswith("\nheld back\n")) == (1, True), printed


def test_whether_nodes_enforce_policies_may_be_hidden(confined: Confined, capsys: pytest.CaptureFixture[str]) -> None:
    wall(confined, "db", [])
    confined.hidden = frozenset({EVENT})
    code, _, warned = asked(confined, capsys, "db:5432")
    assert (code, "without what you may not read: events of namespace default" in warned) == (1, True)


def test_a_pod_that_may_not_be_read_is_an_error(confined: Confined, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Forbidden):
        asked(confined, capsys, "other/far:5432")


@pytest.mark.parametrize("option", ["-A", "--faults", "--one-line", "-l=app=web"])
def test_options_about_objects_are_refused(option: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        why(cast("ApiClient", Confined()), parse(["why", "connect", "web", "db:5432", option]))
    assert end.value.code == 2
    assert "is about one connection, and takes no such option" in capsys.readouterr().err
