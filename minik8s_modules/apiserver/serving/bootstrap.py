"""The default roles and bindings (``bootstrap_policy.yml``) as objects, and what they lack in a cluster.

Kubernetes' rule of reconciliation: whatever is missing of rules and subjects is put back, what an administrator added
stays but for the very rules that earlier versions gave (``retired_rules``), and the annotation
``rbac.authorization.kubernetes.io/autoupdate: "false"`` keeps an object as it is. The rules of aggregated roles are
written here, too, so that they can be read; decisions do not wait for that (policy.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from minik8s_modules.api.access.rbac import GROUP, missing_rules
from minik8s_modules.api.kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.objects import annotations as annotations_of
from minik8s_modules.base.manifest_yaml import ManifestLoader
from minik8s_modules.base.once import once

AUTO_UPDATE = "rbac.authorization.kubernetes.io/autoupdate"
AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"
_LABEL = {"kubernetes.io/bootstrapping": "rbac-defaults"}


class Default(NamedTuple):
    """One role or binding every cluster has; ``retired`` are rules it had once."""

    kind: Kind
    namespace: str
    name: str
    obj: JsonObject
    retired: tuple[JsonObject, ...] = ()


@once
def defaults() -> tuple[Default, ...]:
    """Return all of them, roles before bindings."""
    file = Path(__file__).with_name("bootstrap_policy.yml")
    policy: Mapping[str, Any] = yaml.load(file.read_text(encoding="utf-8"), ManifestLoader)  # noqa: S506 - a safe loader
    return tuple(_defaults(policy))


def _defaults(policy: Mapping[str, Any]) -> Iterator[Default]:
    for name, role in policy["cluster_roles"].items():
        retired = _rules({"rules": policy["retired_rules"].get(name, [])})
        yield Default(CLUSTER_ROLE, "", name, _cluster_role(role), tuple(retired))
    for namespace, roles in policy["roles"].items():
        for name, role in roles.items():
            yield Default(ROLE, namespace, name, {"metadata": _meta(), "rules": _rules(role)})
    for name, binding in policy["cluster_role_bindings"].items():
        yield Default(CLUSTER_ROLE_BINDING, "", name, _binding(CLUSTER_ROLE, name, binding))
    for namespace, bindings in policy["role_bindings"].items():
        for name, binding in bindings.items():
            yield Default(ROLE_BINDING, namespace, name, _binding(ROLE, name, binding))


def _meta(**labels: str) -> JsonObject:
    return {"annotations": {AUTO_UPDATE: "true"}, "labels": {**_LABEL, **labels}}


def _cluster_role(role: Mapping[str, Any]) -> JsonObject:
    part_of = role.get("part_of")
    obj: JsonObject = {"metadata": _meta(**({f"{AGGREGATE}{part_of}": "true"} if part_of else {}))}
    if "aggregate" in role:
        selector = {"matchLabels": {f"{AGGREGATE}{role['aggregate']}": "true"}}
        obj["aggregationRule"] = {"clusterRoleSelectors": [selector]}
    else:
        obj["rules"] = _rules(role)
    return obj


def _rules(role: Mapping[str, Any]) -> list[JsonObject]:
    return [{field: _words(text) for field, text in rule.items()} for rule in role["rules"]]


def _words(text: str) -> list[str]:
    return ["" if word == "core" else word for word in text.split()]


def _binding(kind: Kind, name: str, binding: Mapping[str, str]) -> JsonObject:
    subjects = [
        {"kind": subject, "apiGroup": GROUP, "name": each}
        for field, subject in (("groups", "Group"), ("users", "User"))
        for each in binding.get(field, "").split()
    ]
    ref = {"apiGroup": GROUP, "kind": kind.kind, "name": binding.get("role", name)}
    return {"metadata": _meta(), "roleRef": ref, "subjects": subjects}


def reconciled(present: JsonObject, default: Default) -> JsonObject:
    """Return ``present`` as ``default`` wants it at least, without what is retired; ``present`` itself if it is so."""
    wanted = default.obj
    if annotations_of(present).get(AUTO_UPDATE) == "false":
        return present
    changed = dict(present)
    if "rules" in wanted:
        kept = [rule for rule in present.get("rules") or [] if rule not in default.retired]
        changed["rules"] = [*kept, *missing_rules(kept, wanted["rules"])]
    if "aggregationRule" in wanted:
        changed["aggregationRule"] = present.get("aggregationRule") or wanted["aggregationRule"]
    if "subjects" in wanted:
        known = present.get("subjects") or []
        changed["subjects"] = [*known, *(each for each in wanted["subjects"] if each not in known)]
    return present if _same(changed, present) else changed


def _same(changed: JsonObject, present: JsonObject) -> bool:
    fields = ("rules", "aggregationRule", "subjects")
    return all((changed.get(field) or []) == (present.get(field) or []) for field in fields)
