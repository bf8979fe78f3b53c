"""The definitions of Gateway API's kinds that the role ``mesh`` installs, as objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from minik8s_modules.api.network.gateway_api import GROUP
from minik8s_modules.api.objects import JsonObject

ROLE = Path(__file__).parents[2] / "roles" / "mesh"


def definitions() -> list[JsonObject]:
    """Return them; what roles/mesh/tasks/gateway_api.yml makes of the same variables."""
    declared = yaml.safe_load((ROLE / "vars/gateway_api.yml").read_text())["mesh_gateway_kinds"]
    return [_definition(each) for each in declared]


def _definition(told: dict[str, Any]) -> JsonObject:
    names = {"kind": told["kind"], "plural": told["plural"], "singular": told["kind"].lower()}
    names |= {"listKind": f"{told['kind']}List", "shortNames": told["short"], "categories": ["gateway-api"]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{told['plural']}.{GROUP}",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/gateway-api/pull/3328"},
        },
        "spec": {"group": GROUP, "scope": told["scope"], "names": names, "versions": told["versions"]},
    }
