"""Rules of roles: what one allows, what several cover together, and how an aggregated role gets its rules.

Pure. ``Rule`` is a PolicyRule compiled to sets. Nothing is ever denied: what no rule allows is refused. Source of the
semantics: kubernetes ``pkg/apis/rbac/v1/evaluation_helpers.go`` and ``component-helpers/auth/rbac/validation``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from minik8s_modules.api.objects import JsonObject, labels
from minik8s_modules.api.selectors import from_label_selector

GROUP = "rbac.authorization.k8s.io"


class Rule(NamedTuple):
    """One PolicyRule; ``*`` stands for all verbs, groups or resources. ``names`` without entries means every name."""

    verbs: frozenset[str]
    groups: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    urls: tuple[str, ...] = ()

    def allows(self, verb: str, group: str, resource: str, name: str) -> bool:
        """Return whether the rule allows ``verb`` on a resource (``pods``, ``pods/log``)."""
        return self.allows_some(verb, group, resource) and (not self.names or name in self.names)

    def allows_some(self, verb: str, group: str, resource: str) -> bool:
        """Return whether the rule allows ``verb`` on objects of a resource: all, or those that it names."""
        return (
            (verb in self.verbs or "*" in self.verbs)
            and (group in self.groups or "*" in self.groups)
            and self._has_resource(resource)
        )

    def _has_resource(self, resource: str) -> bool:
        if resource in self.resources or "*" in self.resources:
            return True
        _, slash, subresource = resource.partition("/")
        return bool(slash) and f"*/{subresource}" in self.resources

    def allows_path(self, verb: str, path: str) -> bool:
        """Return whether the rule allows ``verb`` on a path; a rule's path that ends in ``*`` is a beginning."""
        if verb not in self.verbs and "*" not in self.verbs:
            return False
        return any(path.startswith(url[:-1]) if url.endswith("*") else path == url for url in self.urls)


class SingleRule(NamedTuple):
    """The smallest part of a rule: one verb on one resource (and name), or on one path."""

    verb: str
    group: str = ""
    resource: str = ""
    name: str = ""
    url: str = ""


def compiled(rules: Iterable[Mapping[str, Any]] | None) -> tuple[Rule, ...]:
    """Return the PolicyRules of a role, compiled."""
    return tuple(
        Rule(
            frozenset(rule.get("verbs") or ()),
            frozenset(rule.get("apiGroups") or ()),
            frozenset(rule.get("resources") or ()),
            frozenset(rule.get("resourceNames") or ()),
            tuple(rule.get("nonResourceURLs") or ()),
        )
        for rule in rules or ()
    )


def single_rules(rules: Iterable[Rule]) -> Iterator[SingleRule]:
    """Yield the parts of rules."""
    for rule in rules:
        for verb in sorted(rule.verbs):
            for group in sorted(rule.groups):
                for resource in sorted(rule.resources):
                    for name in sorted(rule.names) or [""]:
                        yield SingleRule(verb, group, resource, name)
            for url in rule.urls:
                yield SingleRule(verb, url=url)


def uncovered(held: Sequence[Rule], wanted: Iterable[Rule]) -> list[SingleRule]:
    """Return the parts of ``wanted`` that whoever holds ``held`` does not hold himself."""
    return [part for part in single_rules(wanted) if not any(_covers(rule, part) for rule in held)]


def _covers(rule: Rule, part: SingleRule) -> bool:
    if part.url:
        if part.verb not in rule.verbs and "*" not in rule.verbs:
            return False
        return any(
            url == part.url or (url.endswith("*") and part.url.rstrip("*").startswith(url[:-1])) for url in rule.urls
        )
    if rule.names and not part.name:
        return False
    return rule.allows(part.verb, part.group, part.resource, part.name)


def described(parts: Iterable[SingleRule]) -> str:
    """Return parts as Kubernetes tells of an escalation, one line for each resource and path."""
    verbs: dict[SingleRule, list[str]] = {}
    for part in parts:
        verbs.setdefault(part._replace(verb=""), []).append(part.verb)
    return "\n".join(_line(part, found) for part, found in verbs.items())


def _line(part: SingleRule, verbs: list[str]) -> str:
    quoted = " ".join(f'"{verb}"' for verb in verbs)
    if part.url:
        return f'{{NonResourceURLs:["{part.url}"], Verbs:[{quoted}]}}'
    named = f', ResourceNames:["{part.name}"]' if part.name else ""
    return f'{{APIGroups:["{part.group}"], Resources:["{part.resource}"]{named}, Verbs:[{quoted}]}}'


def effective_rules(roles: Mapping[str, JsonObject]) -> dict[str, list[JsonObject]]:
    """Return the rules of each ClusterRole by name; an aggregated one has those of the roles its selectors choose.

    Those may be aggregated themselves; a role that comes to itself adds nothing.
    """
    done: dict[str, list[JsonObject]] = {}

    def resolve(name: str, above: frozenset[str]) -> list[JsonObject]:
        role = roles[name]
        if "aggregationRule" not in role:
            return role.get("rules") or []
        found: list[JsonObject] = []
        for other in _selected(role, roles):
            if other not in above:
                found += [rule for rule in resolve(other, above | {name}) if rule not in found]
        return found

    for name in roles:
        done[name] = resolve(name, frozenset({name}))
    return done


def _selected(role: JsonObject, roles: Mapping[str, JsonObject]) -> list[str]:
    asked = (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or []
    selectors = [from_label_selector(each) for each in asked]
    return sorted(name for name, other in roles.items() if any(each.matches(labels(other)) for each in selectors))


def missing_rules(present: Sequence[JsonObject], wanted: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the rules of ``wanted`` that ``present`` does not cover."""
    held = compiled(present)
    return [rule for rule in wanted if uncovered(held, compiled([rule]))]
