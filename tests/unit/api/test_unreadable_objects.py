"""Objects that cannot be read: left out of what is decided about all, and named once."""

from __future__ import annotations

import logging

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.network.references import Reference, permitted
from minik8s_modules.api.objects import JsonObject

REFERENCE = Reference("HTTPRoute", "shop", "", "Service", "elsewhere", "web")


def grant(revision: str, spec: object) -> JsonObject:
    meta = {"name": "any", "namespace": "elsewhere", "resourceVersion": revision}
    return {"kind": "ReferenceGrant", "metadata": meta, "spec": spec}


def test_an_object_that_cannot_be_read_is_named_once_and_again_when_it_has_changed(caplog: pytest.LogCaptureFixture):
    wrong, changed = grant("7001", {"from": [5]}), grant("7002", {"from": "text"})
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert not permitted(REFERENCE, [wrong])
        assert len(caplog.records) == 1
        assert "ReferenceGrant elsewhere/any cannot be read and is left out" in caplog.text
        assert not permitted(REFERENCE, [changed])
        assert len(caplog.records) == 2


def test_what_is_remembered_of_named_objects_does_not_grow_for_ever():
    for number in range(objects._TOLD_MOST + 5):
        objects.tell_misread(grant(f"8{number}", None), ValueError("wrong"), "is left out")
    assert len(objects._TOLD) <= objects._TOLD_MOST
