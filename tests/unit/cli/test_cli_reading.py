"""get prints what a person wants to read."""

from __future__ import annotations

from typing import Any, cast

import yaml

from minik8s_modules.api.kinds import CONFIG_MAP
from minik8s_modules.cli.main import parse
from minik8s_modules.cli.reading import get
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.fake import FakeApi


def test_documents_are_shown_without_managed_fields(capsys):
    api = FakeApi()
    metadata: dict[str, Any] = {"name": "c", "namespace": "default", "managedFields": [{"manager": "m"}]}
    api.create(CONFIG_MAP, {"metadata": metadata, "data": {"k": "v"}})
    assert get(cast("ApiClient", api), parse(["get", "cm", "c", "-n", "default", "-o", "yaml"])) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["data"] == {"k": "v"}
    assert "managedFields" not in shown["metadata"]
