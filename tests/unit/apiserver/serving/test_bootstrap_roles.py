"""Every kind people work with is in the default roles view and edit: none is the administrator's alone."""

from __future__ import annotations

import pytest
import yaml

from minik8s_modules.api.kinds import KINDS
from tests.unit.api.samples import ROOT

POLICY = yaml.safe_load((ROOT / "minik8s_modules/apiserver/serving/bootstrap_policy.yml").read_text())
# not to be seen by everyone, or not people's to work with (Kubernetes' own roles leave them out, too)
APART = {"secrets", "roles", "rolebindings", "leases", "events", "endpoints", "endpointslices", "controllerrevisions",
         "limitranges", "resourcequotas", "podtemplates", "csistoragecapacities"}  # fmt: skip


def granted(role: str, verb: str) -> set[tuple[str, str]]:
    """Return (group, resource) of what a role of the policy may ``verb``."""
    roles = POLICY["cluster_roles"]
    return {
        ("" if group == "core" else group, resource)
        for rule in roles[role]["rules"]
        if verb in rule["verbs"].split()
        for group in rule.get("apiGroups", "").split()
        for resource in rule["resources"].split()
    }


PEOPLES = [kind for kind in KINDS.all() if kind.stored and kind.namespaced and kind.plural not in APART]


@pytest.mark.parametrize("kind", PEOPLES, ids=lambda kind: f"{kind.plural}.{kind.version}.{kind.group}")
def test_a_kind_can_be_viewed_and_edited(kind):
    assert (kind.group, kind.plural) in granted("system:aggregate-to-view", "list")
    assert (kind.group, kind.plural) in granted("system:aggregate-to-edit", "patch")
