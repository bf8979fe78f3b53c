"""The custom kinds a process knows follow their definitions."""

from __future__ import annotations

from typing import Any

from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import CUSTOM_RESOURCE_DEFINITION as CRD
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.runtime.informers import Informers
from tests.support.waiting import until


def definition(accepted: bool) -> dict[str, Any]:  # noqa: FBT001 - a state
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    versions = [
        {"name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": {"type": "object"}}}
        for name in ("v1beta1", "v1")
    ]
    condition = {"type": "NamesAccepted", "status": "True" if accepted else "False"}
    return {
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions},
        "status": {"acceptedNames": names, "conditions": [condition]},
    }


def test_followers_are_told_of_kinds_that_come_and_go() -> None:
    api, result = FakeApi(), []
    informers = Informers(api)
    informers.custom.follow(lambda kind, present: result.append((kind.api_version, present)))
    informers.start()
    try:
        api.create(CRD, definition(accepted=False))
        until(lambda: informers.custom.informer.get("", "widgets.example.com"))
        assert result == []
        api.patch(CRD, "widgets.example.com", "", {"status": definition(accepted=True)["status"]}, subresource="status")
        until(lambda: result)
        assert result == [("example.com/v1", True)]
        registry = informers.custom.registry
        assert [registry.by_api_version(f"example.com/{each}", "Widget") is not None for each in ("v1", "v1beta1")] == [
            True, True,
        ]  # fmt: skip
        kept = informers.custom.informer.list()[0]
        assert all("schema" not in version for version in kept["spec"]["versions"])
        later: list[Kind] = []
        informers.custom.follow(lambda kind, _present: later.append(kind))
        assert [kind.plural for kind in later] == ["widgets"]
        api.delete(CRD, "widgets.example.com")
        until(lambda: len(result) > 1)
        assert result[-1] == ("example.com/v1", False)
        assert informers.custom.all() == ()
    finally:
        informers.stop()
