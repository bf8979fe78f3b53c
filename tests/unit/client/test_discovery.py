"""Kinds that this program does not know by itself."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, cast

import pytest

from minik8s_modules.api.kinds import POD
from minik8s_modules.client import declared
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.discovery import kind_at

LISTED = {
    "resources": [
        {"name": "widgets/status", "kind": "Widget", "namespaced": True},
        {"name": "widgets", "singularName": "widget", "kind": "Widget", "namespaced": True},
        {"name": "worlds", "singularName": "world", "kind": "World", "namespaced": False},
    ]
}


class Answer(NamedTuple):
    """What a server answers."""

    status: int
    data: bytes


class Server:
    """Answers one path."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def raw(self, _method: str, path: str, *_: Any) -> Answer:
        """Answer as a server that has one group."""
        self.asked.append(path)
        known = path == "/apis/example.com/v1"
        return Answer(200, json.dumps(LISTED).encode()) if known else Answer(404, b"{}")


@pytest.fixture
def server() -> Any:
    return Server()


def test_what_is_built_in_is_asked_of_nobody(server: Any) -> None:
    assert kind_at(server, "v1", "Pod") is POD
    assert server.asked == []


def test_a_custom_kind_is_as_the_server_says(server: Any) -> None:
    kind = kind_at(server, "example.com/v1", "Widget")
    assert kind is not None
    assert (kind.plural, kind.namespaced, kind.resource) == ("widgets", True, "widgets.example.com")


@pytest.mark.parametrize(("version", "kind"), [("example.com/v1", "Gadget"), ("example.org/v1", "Widget"), ("v9", "X")])
def test_what_is_not_served_is_none(server: Any, version: str, kind: str) -> None:
    assert kind_at(cast(ApiClient, server), version, kind) is None


def test_custom_objects_are_declared(server: Any) -> None:
    def obj(kind: str, name: str) -> dict[str, Any]:
        return {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": name}}

    wanted = [obj("Widget", "a"), obj("World", "b")]
    found = declared.read(wanted, "mine", "d", lambda version, kind: kind_at(server, version, kind))
    assert [each.key for each in found] == ["widgets.example.com mine/a", "worlds.example.com b"]
