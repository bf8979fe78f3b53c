"""The definition of AuthorizationPolicies that the role ``mesh`` installs, and policies as objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from minik8s_modules.api.kinds import CUSTOM_RESOURCE_DEFINITION
from minik8s_modules.api.network.authorization import AUTHORIZATION_POLICY
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.fake import FakeApi

_VARS = Path(__file__).parents[2] / "roles" / "mesh" / "vars" / "authorization.yml"


def definition() -> JsonObject:
    """Return the definition."""
    found: JsonObject = yaml.safe_load(_VARS.read_text())["mesh_authorization_definition"]
    return found


def define(api: FakeApi) -> None:
    """Have an API in memory serve the kind."""
    declared = definition()
    made = api.create(CUSTOM_RESOURCE_DEFINITION, declared)
    held = [{"type": kind, "status": "True"} for kind in ("NamesAccepted", "Established")]
    status = {"acceptedNames": declared["spec"]["names"], "conditions": held}
    api.update(CUSTOM_RESOURCE_DEFINITION, {**made, "status": status}, subresource="status")


def policy(name: str, *rules: JsonObject, namespace: str = "shop", app: str = "", **spec: Any) -> JsonObject:
    """Return a policy; ``app`` is whose Pods it selects, "" for all of the namespace."""
    selector = {"selector": {"matchLabels": {"app": app}}} if app else {}
    return {
        "apiVersion": AUTHORIZATION_POLICY.api_version,
        "kind": AUTHORIZATION_POLICY.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**selector, "rules": [*rules], **spec},
    }
