"""``mesh status`` and ``trace`` tell who speaks TLS, whom a strict Pod refuses, and how old a certificate is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import NAMESPACE, POD, SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import MTLS, PERMISSIVE, STRICT
from minik8s_modules.api.pods.sidecars import with_sidecar
from minik8s_modules.cli.mesh.expecting import expected, peers_in
from minik8s_modules.cli.mesh.looking import rows, table
from minik8s_modules.cli.mesh.sidecars import DUMP, read_configuration
from minik8s_modules.cli.mesh.tracing import by_sidecar, guarded
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.client.interface import ObjectList
from minik8s_modules.mesh.identities.securing import IDENTITY, inbound

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
WEB: JsonObject = {
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"clusterIP": "None", "selector": {"app": "web"}, "ports": []},
}


def cluster(mode: str, api: FakeApi | None = None) -> FakeApi:
    api = api or FakeApi()
    api.create(NAMESPACE, {"metadata": {"name": "shop", "labels": {MTLS: mode} if mode else {}}})
    api.create(SERVICE, WEB)
    app: JsonObject = {"containers": [{"name": "app", "image": "i"}]}
    for name, mutual in (("new", True), ("old", False)):
        meta = {"name": name, "namespace": "shop", "labels": {"app": "web"}}
        status = {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]}
        api.create(POD, {"metadata": meta, "spec": with_sidecar(app, mutual=mutual), "status": status})
    return api


def said(api: FakeApi, obstacle: str = "") -> list[tuple[str, bool]]:
    return [(line.text, line.broken) for line in guarded(cast("ApiClient", api), WEB, obstacle)]


def test_a_strict_pod_refuses_who_speaks_no_tls_and_says_why():
    assert said(cluster(STRICT), "Pod x has no sidecar") == [("refused by new: STRICT, Pod x has no sidecar", True)]
    ((text, broken),) = said(cluster(STRICT))
    assert (text, broken) == ("with new; certificates of spiffe://cluster.local/ns/shop/sa/… are wanted", False)
    assert said(cluster(PERMISSIVE), "Pod x has no sidecar") == []
    assert said(cluster(""), "Pod x has no sidecar") == said(cluster("")) == []


def test_a_service_of_ipv6_is_refused_to_a_caller_with_a_sidecar_which_its_connections_pass_by():
    def unasked(_pod: JsonObject, _path: str) -> Any:
        raise AssertionError

    service = {**WEB, "spec": {**WEB["spec"], "clusterIP": "fd00:96::7"}}
    for mode, refused in ((STRICT, True), (PERMISSIVE, False)):
        client = cast("ApiClient", cluster(mode))
        lines, passes = by_sidecar(client, unasked, "shop", "new", service, 80, "/")
        assert passes
        assert lines[0].text == "is passed by: fd00:96::7 is an address of IPv6, and the node's rules choose"
        why = "refused by new: STRICT, connections to IPv6 addresses go past the caller's sidecar"
        assert [(each.text, each.broken) for each in lines[1:]] == ([(why, True)] if refused else [])


def test_status_takes_the_mode_of_the_listener_of_ipv4_and_has_neither_among_services():
    told = inbound(STRICT, ipv6=True)
    both = dump(STRICT)
    both["configs"][-2]["dynamic_listeners"].append({"active_state": {"listener": told.body}})
    assert read_configuration(both) == read_configuration(dump(STRICT))


def dump(mode: str) -> Any:
    kinds = ("Clusters", "Routes", "Endpoints")
    listeners = {
        "@type": "x.ListenersConfigDump",
        "dynamic_listeners": [{"active_state": {"listener": inbound(mode).body}}],
    }
    secret = {"name": IDENTITY, "last_updated": "2026-01-01T07:00:00.000Z"}
    secrets = {"@type": "x.SecretsConfigDump", "dynamic_active_secrets": [secret]}
    return {"configs": [*({"@type": f"x.{kind}ConfigDump"} for kind in kinds), listeners, secrets]}


def shown(api: FakeApi, mode: str) -> tuple[str, ...]:
    """Return status, mode, age and message of a sidecar that takes connections so."""
    pods = [each for each in api.list(POD).items if each["metadata"]["name"] == "new"]

    def ask(_pod: JsonObject, path: str) -> Any:
        return dump(mode) if path == DUMP else {"stats": [{"name": "control_plane.connected_state", "value": 1}]}

    header, (row,) = table(list(rows(ask, pods, {"shop": expected(api, "shop")}, NOW)), with_namespaces=True)
    assert header[-3:] == ("MTLS", "CERTIFICATE", "MESSAGE")
    return row[3], *row[-3:]


def test_status_has_the_mode_and_the_age_of_the_certificate_where_somebody_has_them():
    api = cluster(STRICT)
    assert shown(api, STRICT) == ("synced", STRICT, "5h", "")
    assert shown(api, PERMISSIVE) == ("behind", PERMISSIVE, "5h", "mutual TLS is to be strict")
    assert table([("shop", ("a", "1", "synced", "1s", "", "", ""))], with_namespaces=False) == (
        ("POD", "VERSION", "STATUS", "UPDATED", "MESSAGE"),
        [("a", "1", "synced", "1s", "")],
    )


@pytest.mark.parametrize("elsewhere", ["", STRICT])
def test_a_sidecar_that_is_still_strict_although_its_namespace_lost_the_label_is_behind(elsewhere: str):
    api = cluster("")
    api.create(NAMESPACE, {"metadata": {"name": "far", "labels": {MTLS: elsewhere} if elsewhere else {}}})
    assert shown(api, STRICT) == ("behind", STRICT, "5h", "mutual TLS is to be permissive")
    assert shown(api, PERMISSIVE) == ("synced", PERMISSIVE, "5h", "")


class WithoutNamespaces(FakeApi):
    """Answers somebody who may not list Namespaces."""

    def list(self, kind: Kind, *given: Any, **named: Any) -> ObjectList:
        """Return the objects, but of Namespaces."""
        if kind == NAMESPACE:
            raise Forbidden(kind, "", "you may not")
        return super().list(kind, *given, **named)


def test_the_mode_is_not_judged_for_who_may_not_list_namespaces():
    assert shown(cluster(STRICT, WithoutNamespaces()), STRICT) == ("synced", STRICT, "5h", "")


def test_peers_are_those_of_the_pilot():
    peers = peers_in(cluster(STRICT), "shop")
    assert peers.pods["shop"].keys() == {"new"}
