"""Entries of the section dns: each file of tests/cases/dns_service_entry is one Service, its slices, its records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.module_utils.minik8s.names.dns_entries import check_entry
from minik8s_modules.reconcile.network.dns import NameBook, server_entry, service_entry
from minik8s_modules.reconcile.values.values import DnsSettings

CASES = sorted((Path(__file__).parents[3] / "cases" / "dns_service_entry").glob("*.yml"))
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


def short(book: NameBook) -> dict[str, str]:
    """Return who has the short name web on nodes, and its address."""
    rows = {key: entry["records"] for key, entry in book.entries().items() if key != "server"}
    assert not [entry for entry in book.entries().values() if entry.get("names")]  # nothing absolute
    return {key: row[2] for key, found in rows.items() for row in found if row[0] == "web.nodes"}


def test_a_short_name_is_no_namespace_s_without_a_grant() -> None:
    book = NameBook(SERVER)
    book.put_service("a/web", service_entry(service("a", "100.0.0.3"), []))
    assert short(book) == {}
    book.put_short(frozenset({"b"}))
    assert short(book) == {}
    book.put_service("b/web", service_entry(service("b", "100.0.0.2"), []))
    assert short(book) == {"service/b/web": "100.0.0.2"}
    book.put_short(frozenset({"a", "b"}))
    assert short(book) == {"service/a/web": "100.0.0.3"}


def test_a_short_name_is_default_s_else_the_first_namespace_s_and_moves_on() -> None:
    book = NameBook(SERVER)
    book.put_short(frozenset({"default", "a", "b"}))
    for namespace, address in (("b", "100.0.0.2"), ("a", "100.0.0.3")):
        book.put_service(f"{namespace}/web", service_entry(service(namespace, address), []))
    assert short(book) == {"service/a/web": "100.0.0.3"}
    book.put_service("default/web", service_entry(service("default", "100.0.0.4"), []))
    assert short(book) == {"service/default/web": "100.0.0.4"}
    book.put_service("default/web", {})
    book.put_service("a/web", {})
    assert short(book) == {"service/b/web": "100.0.0.2"}
    assert book.entries() is book.entries()


def test_hosts_lead_to_the_nodes_own_nginx_and_nothing_is_told_without_a_server() -> None:
    book = NameBook(SERVER)
    book.put_hosts({"shop.test": "", "own.test": "a"}, "169.254.20.10")
    assert book.entries()["host/shop.test"] == {"names": [["169.254.20.10", "shop.test"]]}
    assert book.entries()["host/own.test"] == {"records": [["own.test.a.hosts", "A", "169.254.20.10"]]}
    assert NameBook(None).entries() == {}


def test_what_is_imagined_in_a_copy_of_the_book_stays_there() -> None:
    book = NameBook(SERVER)
    book.put_service("default/old", {"records": [["old.default.svc", "A", "100.0.0.9"]]})
    book.put_short(frozenset({"default"}))
    before = book.entries()
    imagined = book.copy()
    imagined.put_service("default/old", {})
    imagined.put_service("default/web", service_entry(service("default", "100.0.0.4"), []))
    assert set(imagined.entries()) == {"server", "service/default/web"}
    assert short(imagined) == {"service/default/web": "100.0.0.4"}
    assert book.entries() is before
