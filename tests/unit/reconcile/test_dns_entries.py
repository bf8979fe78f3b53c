"""Entries of the section dns: each file of tests/cases/dns_service_entry is one Service, its slices, its records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.module_utils.minik8s.dns_entries import check_entry
from minik8s_modules.reconcile.dns import NameBook, server_entry, service_entry
from minik8s_modules.reconcile.values import DnsSettings

CASES = sorted((Path(__file__).parents[2] / "cases" / "dns_service_entry").glob("*.yml"))
SERVER = server_entry(DnsSettings("169.254.20.10"), "cluster.local")


def service(namespace: str, address: str) -> dict[str, Any]:
    """Return a Service named web."""
    return {"metadata": {"name": "web", "namespace": namespace}, "spec": {"clusterIP": address}}


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem.replace("-", " "))
def test_service_entry(path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    entry = service_entry(case["service"], case["slices"])
    assert entry == case["entry"]
    check_entry("service/default/web", entry)
    check_entry("server", SERVER)


def test_a_bare_name_is_default_s_else_the_first_namespace_s_and_moves_on() -> None:
    book = NameBook(SERVER)
    for namespace, address in (("b", "100.0.0.2"), ("a", "100.0.0.3")):
        book.put_service(f"{namespace}/web", service_entry(service(namespace, address), []))
    assert book.entries()["service/a/web"]["names"] == [["100.0.0.3", "web"]]
    assert "names" not in book.entries()["service/b/web"]
    book.put_service("default/web", service_entry(service("default", "100.0.0.4"), []))
    assert [key for key, entry in book.entries().items() if entry.get("names")] == ["service/default/web"]
    book.put_service("default/web", {})
    book.put_service("a/web", {})
    assert book.entries()["service/b/web"]["names"] == [["100.0.0.2", "web"]]
    assert book.entries() is book.entries()


def test_hosts_lead_to_the_nodes_own_nginx_and_nothing_is_told_without_a_server() -> None:
    book = NameBook(SERVER)
    book.put_hosts(["shop.test"], "169.254.20.10")
    assert book.entries()["host/shop.test"] == {"names": [["169.254.20.10", "shop.test"]]}
    assert NameBook(None).entries() == {}


def test_what_is_imagined_in_a_copy_of_the_book_stays_there() -> None:
    book = NameBook(SERVER)
    book.put_service("default/old", {"records": [["old.default.svc", "A", "100.0.0.9"]]})
    before = book.entries()
    imagined = book.copy()
    imagined.put_service("default/old", {})
    imagined.put_service("default/web", service_entry(service("default", "100.0.0.4"), []))
    assert set(imagined.entries()) == {"server", "service/default/web"}
    assert imagined.entries()["service/default/web"]["names"] == [["100.0.0.4", "web"]]
    assert book.entries() is before
