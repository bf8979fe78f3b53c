"""Roles and bindings as they stand, compiled to an index that answers in microseconds.

``Rbac`` reads the four kinds from the watch cache. It compiles them again when one of them has changed (the cache
counts changes, so an unchanged policy costs four look-ups).
The cache shows a write before its answer leaves, so whoever made a binding can rely on it. What is found in a
``Policy`` is remembered with it and goes with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from minik8s_modules.api.access import rbac
from minik8s_modules.api.access.rbac import Rule
from minik8s_modules.api.field_selectors import EVERYTHING
from minik8s_modules.api.kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING, Kind
from minik8s_modules.api.objects import JsonObject, name, namespace
from minik8s_modules.apiserver.authorization.attributes import Attributes
from minik8s_modules.apiserver.authorization.identity import User, account_name
from minik8s_modules.store import readable
from minik8s_modules.store.cache import WatchCache

_KINDS = (CLUSTER_ROLE, ROLE, CLUSTER_ROLE_BINDING, ROLE_BINDING)
_DECISIONS = 2048
_FEW_GRANTS, _FEW_RULES = 64, 512


class Grant(NamedTuple):
    """What one binding gives; ``why`` is told by access reviews."""

    rules: tuple[Rule, ...]
    why: str


class Allowance(NamedTuple):
    """What allows a request if it is about one of ``names``; without any, whatever it is about."""

    names: frozenset[str]
    why: str


class Policy:
    """Grants by subject, everywhere and by namespace; immutable.

    What a user may do with a resource is remembered once for all its names: of thousands of pods each is asked about
    two or three times.
    """

    def __init__(
        self, everywhere: Mapping[str, Sequence[Grant]], inside: Mapping[tuple[str, str], Sequence[Grant]]
    ) -> None:
        self._everywhere = everywhere
        self._inside = inside
        self._allowing = lru_cache(_DECISIONS)(self._found)

    def grants(self, user: str, groups: tuple[str, ...], space: str) -> list[Grant]:
        """Return what a user has in a namespace; "" is the cluster scope."""
        subjects = (f"User:{user}", *(f"Group:{group}" for group in groups))
        found = [grant for subject in subjects for grant in self._everywhere.get(subject, ())]
        if space:
            found += [grant for subject in subjects for grant in self._inside.get((space, subject), ())]
        return found

    def is_short(self, user: str, groups: tuple[str, ...], space: str) -> bool:
        """Return whether a user's decisions in a namespace are made in far less than a millisecond.

        Who may bind roles in a namespace can bind thousands to himself there.
        """
        grants = self.grants(user, groups, space)
        return len(grants) <= _FEW_GRANTS and sum(len(grant.rules) for grant in grants) <= _FEW_RULES

    def decide(self, user: str, groups: tuple[str, ...], asked: Attributes) -> str:
        """Return why a user may do what is asked; "" when he may not. The first grant that allows it says why."""
        # roles know no selectors: what differs in them alone, or in the name, is looked up once
        for names, why in self._allowing(user, groups, asked._replace(name="", fields=EVERYTHING)):
            if not names or asked.name in names:
                return why
        return ""

    @property
    def looked_up(self) -> int:
        """How often grants had to be walked: once for each user, verb and resource that somebody asked about."""
        return self._allowing.cache_info().misses

    def _found(self, user: str, groups: tuple[str, ...], asked: Attributes) -> tuple[Allowance, ...]:
        return tuple(
            Allowance(rule.names if not asked.path else frozenset(), grant.why)
            for grant in self.grants(user, groups, asked.namespace)
            for rule in grant.rules
            if _allows(rule, asked)
        )


def _allows(rule: Rule, asked: Attributes) -> bool:
    """Return whether the rule allows what is asked, if its name is one of the rule's."""
    if asked.path:
        return rule.allows_path(asked.verb, asked.path)
    return rule.allows_some(asked.verb, asked.group, asked.resource)


def compiled_policy(
    cluster_roles: Mapping[str, JsonObject], roles: Iterable[JsonObject], bindings: Iterable[JsonObject]
) -> Policy:
    """Return the policy that roles and bindings (of both kinds) make; a binding of a missing role gives nothing."""
    known = {("", found): rbac.compiled(rules) for found, rules in rbac.effective_rules(cluster_roles).items()}
    known.update({(namespace(role), name(role)): rbac.compiled(role.get("rules")) for role in roles})
    everywhere: dict[str, list[Grant]] = {}
    inside: dict[tuple[str, str], list[Grant]] = {}
    for binding in bindings:
        space, ref = namespace(binding), binding["roleRef"]
        rules = known.get((space if ref["kind"] == ROLE.kind else "", ref["name"]))
        if rules is None:
            continue
        for subject in binding.get("subjects") or []:
            who = subject_key(subject, space)
            grants = inside.setdefault((space, who), []) if space else everywhere.setdefault(who, [])
            grants.append(Grant(rules, _why(binding, subject)))
    return Policy(everywhere, inside)


def subject_key(subject: JsonObject, space: str) -> str:
    """Return the key of a binding's subject: ``User:NAME`` or ``Group:NAME``; an account is the user it acts as."""
    if subject["kind"] == "ServiceAccount":
        return f"User:{account_name(subject.get('namespace') or space, subject['name'])}"
    return f"{subject['kind']}:{subject['name']}"


def _why(binding: JsonObject, subject: JsonObject) -> str:
    ref, space = binding["roleRef"], namespace(binding)
    what = (
        f'{ROLE_BINDING.kind} "{name(binding)}/{space}"' if space else f'{CLUSTER_ROLE_BINDING.kind} "{name(binding)}"'
    )
    who = f"{subject['name']}/{subject['namespace']}" if subject.get("namespace") else subject["name"]
    return f'RBAC: allowed by {what} of {ref["kind"]} "{ref["name"]}" to {subject["kind"]} "{who}"'


class Rbac:
    """See the top of this file."""

    def __init__(self, cache: WatchCache) -> None:
        self._cache = cache
        self._made: tuple[tuple[int, ...], Policy] = ((), Policy({}, {}))

    def why(self, user: User, asked: Attributes) -> str:
        """Return which binding allows the request; "" when none does."""
        return self.policy().decide(user.name, user.groups, asked)

    def allows_at_once(self, user: User, asked: Attributes) -> bool:
        """Return whether roles allow the request, if the policy need not be compiled first and few rules tell.

        Where it changes right after that, who asks ``why`` compiles it all the same.
        """
        stamp, policy = self._made
        if stamp != self._stamp() or not policy.is_short(user.name, user.groups, asked.namespace):
            return False
        return bool(policy.decide(user.name, user.groups, asked))

    def rules(self, user: User, space: str) -> list[Rule]:
        """Return all rules a user has in a namespace, "" at the cluster scope."""
        return [rule for grant in self.policy().grants(user.name, user.groups, space) for rule in grant.rules]

    def role_rules(self, ref: JsonObject, space: str) -> list[Rule]:
        """Return the rules of the role a binding in ``space`` names; [] when there is none."""
        if ref.get("kind") == ROLE.kind:
            found = self._cache.get(ROLE.key(space, str(ref.get("name"))))
            roles = readable.objects_of(ROLE, [found] if found else [])
            return [rule for role in roles for rule in rbac.compiled(role.get("rules"))]
        return list(rbac.compiled(self.cluster_rules().get(str(ref.get("name")))))

    def cluster_rules(self) -> dict[str, list[JsonObject]]:
        """Return the rules of every ClusterRole, with aggregation done."""
        return rbac.effective_rules(self._cluster_roles())

    def policy(self) -> Policy:
        """Return the policy as the cache has it now."""
        stamp, made = self._stamp(), self._made
        if made[0] == stamp:
            return made[1]
        # the counts were read before the objects: what changes meanwhile is compiled again by the next request
        bindings = [*self._objects(CLUSTER_ROLE_BINDING), *self._objects(ROLE_BINDING)]
        policy = compiled_policy(self._cluster_roles(), self._objects(ROLE), bindings)
        self._made = (stamp, policy)
        return policy

    def _stamp(self) -> tuple[int, ...]:
        changes = self._cache.changes
        return tuple([changes(kind.prefix) for kind in _KINDS])

    def _cluster_roles(self) -> dict[str, JsonObject]:
        return {name(role): role for role in self._objects(CLUSTER_ROLE)}

    def _objects(self, kind: Kind) -> list[JsonObject]:
        return readable.objects_of(kind, self._cache.list(kind.prefix).items)
