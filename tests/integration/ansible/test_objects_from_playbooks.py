"""``minik8s_object``: objects of the API from playbooks, on a real API server."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import yaml

from minik8s_modules.api.kinds import CONFIG_MAP, POD, SECRET
from tests.integration.ansible.conftest import Book
from tests.integration.streams.conftest import Streaming

CANARY = "canary-c0ffee77"


def play(book: Book, *tasks: dict[str, Any], options: tuple[str, ...] = (), check: bool = True) -> list[dict[str, Any]]:
    head = {"hosts": "localhost", "connection": "local", "gather_facts": False}
    listed = [{"minik8s_object": task, "ignore_errors": not check} for task in tasks]
    return book.play([{**head, "tasks": listed}], *options, check=check)


def config(name: str, namespace: str = "default", **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def test_applied_twice_changed_once_and_check_mode_told_it_before(
    cluster: Streaming, book: Book, tmp_path: Path
) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"password": CANARY}}
    shop = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    (tmp_path / "shop.yml").write_text(yaml.safe_dump_all([shop, config("a", "shop", key="{{ 6 * 7 }}"), secret]))
    task = {"src": "shop.yml", "namespace": "shop", "wait": True}
    foreseen = play(book, task, options=("--check", "--diff"))[0]
    keys = ["namespaces shop", "configmaps shop/a", "secrets shop/s"]
    assert [step["key"] for step in foreseen["steps"]] == keys
    assert cluster.kubectl("get", "namespace", "shop", check=False).returncode != 0
    first, second = play(book, task, task, options=("--diff",))
    assert foreseen["steps"] == first["steps"]
    assert (first["changed"], second["changed"], second["steps"]) == (True, False, [])
    assert CANARY not in book.printed
    assert cluster.admin.get(CONFIG_MAP, "a", "shop")["data"] == {"key": "{{ 6 * 7 }}"}
    assert cluster.admin.get(SECRET, "s", "shop")["data"]
    assert [obj["kind"] for obj in second["objects"]] == ["Namespace", "ConfigMap", "Secret"]


def test_fields_of_others_are_a_conflict_until_forced(cluster: Streaming, book: Book) -> None:
    cluster.kubectl("create", "configmap", "theirs", "--from-literal=a=1", "--from-literal=b=1")
    task = {"definition": config("theirs", a="2")}
    refused, forced, again, gone, twice = play(
        book,
        task,
        {**task, "force": True, "field_manager": "ours"},
        {**task, "force": True, "field_manager": "ours"},
        {"state": "absent", "definition": config("theirs"), "wait": True},
        {"state": "absent", "definition": config("theirs"), "wait": True},
        check=False,
        options=("--diff",),
    )
    assert "configmaps default/theirs: Apply failed with 1 conflict" in refused["msg"]
    assert "`force: true`" in refused["msg"]
    assert (forced["changed"], again["changed"]) == (True, False)
    assert forced["objects"][0]["data"] == {"a": "2", "b": "1"}
    assert (gone["steps"], twice["changed"]) == ([{"action": "deleted", "key": "configmaps default/theirs"}], False)


def test_patched_changes_only_what_is_there(cluster: Streaming, book: Book) -> None:
    cluster.admin.create(CONFIG_MAP, config("p", a="1", b="2"))
    task = {"state": "patched", "definition": [config("p", b="3")]}
    changed, unchanged, missing, unknown = play(
        book, task, task, {"state": "patched", "definition": config("none")},
        {"definition": {**config("p"), "dada": {}}}, check=False,
    )  # fmt: skip
    assert (changed["changed"], changed["objects"][0]["data"]) == (True, {"a": "1", "b": "3"})
    assert unchanged["changed"] is False
    assert 'configmaps "none" not found' in missing["msg"]
    assert "dada" in unknown["msg"]


def test_waiting_ends_with_the_condition_or_says_what_is_missing(cluster: Streaming, book: Book) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "late"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    cluster.pod("account", "sleep 3600")  # its namespace's service account
    too_late = play(book, {"definition": pod, "wait": True, "wait_timeout_s": 1}, check=False)[0]
    assert (
        "pods default/late is not in the declared state after 1 s: condition Ready is Unknown, not True"
        in too_late["msg"]
    )

    def become_ready() -> None:
        cluster.until(lambda: cluster.admin.get(POD, "late", "default"))
        conditions = [{"type": "Ready", "status": "True"}, {"type": "Special", "status": "False", "reason": "Rested"}]
        status = {"status": {"phase": "Running", "conditions": conditions}}
        cluster.admin.patch(POD, "late", "default", status, subresource="status")

    ready = threading.Timer(0.5, become_ready)
    ready.start()
    special = [{"type": "Special", "status": "False", "reason": "Rested"}]
    waited = play(
        book, {"definition": pod, "wait": True}, {"definition": pod, "wait": True, "wait_conditions": special}
    )
    ready.join()
    assert [each["changed"] for each in waited] == [False, False]
    assert waited[0]["objects"][0]["status"]["phase"] == "Running"
