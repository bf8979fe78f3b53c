"""From NetworkPolicies, namespaces and Pods to the entries of each node's section ``policies``. Pure.

A node has the policies that select a Pod of its own, those Pods, and every Pod of the cluster that these policies name
as a peer. A Pod's entry says itself to which groups it belongs, so that a Pod more is an entry more on the nodes that
it concerns, whatever the number of policies. Equal selectors are one group.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.network.dual_stack import SINGLE_STACK, DualStack
from minik8s_modules.api.network.network_policies import DIRECTIONS, Direction, Pod, Pods, Policy, Port, Rule
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.selectors import LabelSelector
from minik8s_modules.module_utils.minik8s.entries.policies import FilterEntry, PolicyEntry, PolicyPodEntry
from minik8s_modules.module_utils.minik8s.policies.policy_entries import FILTER, POD, POLICY
from minik8s_modules.reconcile.network.dataplane import DEFAULT_BRIDGE
from minik8s_modules.reconcile.values.values import Entries, Entry, Settings

DEFAULT_TABLE = "minik8s_policies"
_NamedPort = tuple[str, str]


def filter_entry(node: JsonObject, settings: Settings) -> FilterEntry | None:
    """Return how a node realizes policies, None before it has a range of Pods."""
    driver = settings.plugin.driver or ("vxlan" if settings.overlay.device else "bridge")
    if not settings.plugin.driver and not objects.spec(node).get("podCIDR"):
        return None
    table = DEFAULT_TABLE if settings.bridge == DEFAULT_BRIDGE else f"{DEFAULT_TABLE}_{settings.bridge}"
    made: FilterEntry = {"table": table, "bridge": settings.bridge, "driver": driver}
    if settings.dual_stack:
        made["ipv6"] = True
    return made if settings.policies_required else {**made, "required": False}


def group_of(selector: Pods) -> str:
    """Return the name of the group of the Pods that a selector of peers selects."""
    return f"group/{hashlib.sha256(selector.canonical().encode()).hexdigest()[:24]}"


def policy_entry(policy: Policy, *, ipv6: bool = False) -> PolicyEntry:
    """Return the entry of a policy; where nobody has IPv6 addresses, ranges of those are nobody's."""
    ingress, egress = (None if rules is None else [_rule(one, ipv6=ipv6) for one in rules] for rules in policy[3:])
    return {"ingress": ingress, "egress": egress}


def _rule(rule: Rule, *, ipv6: bool) -> dict[str, Any]:
    groups = sorted({group_of(one) for one in rule.pods})
    blocks = [[one.cidr, list(one.excepted)] for one in rule.blocks if ipv6 or ":" not in one.cidr]
    peers = None if rule.everybody else {"groups": groups, "blocks": blocks}
    return {"peers": peers, "ports": None if rule.ports is None else [_port(one) for one in rule.ports]}


def _port(port: Port) -> list[Any]:
    return [port.protocol, port.name] if port.name else [port.protocol, port.first, port.last]


def _every_rule(policy: Policy) -> Iterable[Rule]:
    return (*(policy.ingress or ()), *(policy.egress or ()))


class _Needs(NamedTuple):
    """The groups and the named ports that policies name."""

    groups: frozenset[str]
    ports: frozenset[_NamedPort]


def _groups(policy: Policy) -> dict[str, Pods]:
    return {group_of(one): one for rule in _every_rule(policy) for one in rule.pods}


def _named_ports(policy: Policy) -> set[_NamedPort]:
    return {(port.protocol, port.name) for rule in _every_rule(policy) for port in rule.ports or () if port.name}


class _Index:
    """Selectors by a label that they ask for, so that of thousands those few are tried that may match."""

    def __init__(self) -> None:
        self._selectors: dict[str, LabelSelector] = {}
        self._places: dict[tuple[str, str, str], set[str]] = {}

    def put(self, key: str, namespace: str, selector: LabelSelector) -> None:
        """Keep a selector of Pods; ``namespace`` "" is any."""
        self.drop(key, namespace)
        self._selectors[key] = selector
        self._places.setdefault((namespace, *_label_of(selector)), set()).add(key)

    def drop(self, key: str, namespace: str) -> None:
        """Forget a selector."""
        selector = self._selectors.pop(key, None)
        if selector is not None:
            self._places[namespace, *_label_of(selector)].discard(key)

    def matching(self, pod: Pod) -> list[str]:
        """Return the keys of the selectors that match a Pod, but for its namespace's labels."""
        labels = [("", ""), *pod.labels.items()]
        places = (self._places.get((namespace, *label), ()) for namespace in ("", pod.namespace) for label in labels)
        return [key for place in places for key in place if self._selectors[key].matches(pod.labels)]


def _label_of(selector: LabelSelector) -> tuple[str, str]:
    for one in selector.requirements:
        # the one form that a look into a dictionary answers; all others are tried for every Pod of the namespace
        if one.operator == "in" and len(one.values) == 1:
            return one.key, next(iter(one.values))
    return "", ""


class Member(NamedTuple):
    """A Pod, the groups that it is in, and the keys of the policies that select it (None: not isolated)."""

    pod: Pod
    groups: frozenset[str]
    ingress: tuple[str, ...] | None
    egress: tuple[str, ...] | None

    def policies(self) -> set[str]:
        """Return the keys of all policies that select it."""
        return {*(self.ingress or ()), *(self.egress or ())}


class _Made(NamedTuple):
    """A node's section as it was made last, and what it was made for."""

    entry: FilterEntry
    version: int
    policies: Mapping[str, Policy]
    needs: _Needs
    entries: Entries


class PolicyBook:
    """All policies, and the Pods as far as policies tell of them; not thread-safe.

    ``entries(node)`` returns the same mapping until something changes, so that comparing it costs nothing.
    """

    def __init__(self, dual_stack: DualStack = SINGLE_STACK) -> None:
        self._dual_stack = dual_stack
        self._policies: dict[str, Policy] = {}
        self._entries: dict[str, PolicyEntry] = {}
        self._needs: dict[str, _Needs] = {}
        self._selected, self._grouped = _Index(), _Index()
        self._groups: dict[str, Pods] = {}
        self._uses: Counter[str] = Counter()
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._members: dict[str, Member] = {}
        self._by_namespace: dict[str, set[str]] = {}
        self._by_node: dict[str, set[str]] = {}
        self._by_group: dict[str, set[str]] = {}
        self._by_port: dict[_NamedPort, set[str]] = {}
        self._version = 0
        self._made: dict[str, _Made] = {}
        self._changed: dict[str, set[str]] = {}
        """Keys of the Pods that changed since a node's section was made."""

    def policies(self) -> list[Policy]:
        """Return all policies."""
        return [*self._policies.values()]

    def namespaces(self) -> Mapping[str, Mapping[str, str]]:
        """Return the labels of namespaces."""
        return self._namespaces

    def pods(self) -> list[Pod]:
        """Return all Pods that policies may tell of."""
        return [member.pod for member in self._members.values()]

    def members(self) -> dict[str, Member]:
        """Return what is known of each Pod."""
        return dict(self._members)

    def policies_on(self, node: str) -> list[str]:
        """Return the keys of the policies that select a Pod of a node."""
        return sorted(self._active(node))

    def put_policy(self, key: str, policy: Policy | None) -> None:
        """Take over a policy ``<namespace>/<name>``; None: it is gone."""
        before = self._policies.pop(key, None)
        if before == policy:
            if policy is not None:
                self._policies[key] = policy
            return
        self._version += 1
        touched = set[str]()
        if before is not None:
            del self._needs[key], self._entries[key]
            self._selected.drop(key, before.namespace)
            touched |= self._release(before)
        if policy is not None:
            self._policies[key], self._entries[key] = policy, policy_entry(policy, ipv6=bool(self._dual_stack))
            self._needs[key] = _Needs(frozenset(_groups(policy)), frozenset(_named_ports(policy)))
            self._selected.put(key, policy.namespace, policy.selector)
            touched |= self._ask(policy)
        # a policy selects Pods of its own namespace alone
        touched |= self._by_namespace.get(key.partition("/")[0], set())
        for one in touched:
            self._place(self._members[one].pod)

    def _ask(self, policy: Policy) -> set[str]:
        """Keep the groups of a policy; return the Pods of those that are new."""
        touched = set[str]()
        for name, selector in _groups(policy).items():
            self._uses[name] += 1
            # policies share equal groups: only the first one has to look for the members
            if self._uses[name] == 1:
                self._groups[name] = selector
                self._grouped.put(name, selector.namespace, selector.pods)
                near = self._by_namespace.get(selector.namespace, set()) if selector.namespace else self._members
                touched |= {key for key in near if selector.matches(self._members[key].pod, self._namespaces)}
        return touched

    def _release(self, policy: Policy) -> set[str]:
        """Forget the groups of a policy that nobody names any more; return the Pods that were in them."""
        touched = set[str]()
        for name in _groups(policy):
            self._uses[name] -= 1
            if not self._uses[name]:
                del self._uses[name]
                self._grouped.drop(name, self._groups.pop(name).namespace)
                touched |= self._by_group.get(name, set())
        return touched

    def put_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Take over a namespace's labels; None: it is gone."""
        if self._namespaces.get(name) == labels:
            return
        if labels is None:
            del self._namespaces[name]
        else:
            self._namespaces[name] = labels
        for key in tuple(self._by_namespace.get(name, ())):
            self._place(self._members[key].pod)

    def put_pod(self, key: str, pod: Pod | None) -> bool:
        """Take over a Pod ``<namespace>/<name>``; None: gone, or nothing to policies. Return whether it changed."""
        before = self._members.get(key)
        if (before.pod if before else None) == pod:
            return False
        if before is not None:
            self._drop(key, before)
        if pod is not None:
            self._place(pod)
        return True

    def _place(self, pod: Pod) -> None:
        """Find out what of the policies concerns a Pod."""
        key = pod.key
        before = self._members.get(key)
        selecting = sorted(self._selected.matching(pod))
        groups = frozenset(
            name for name in self._grouped.matching(pod) if self._groups[name].matches(pod, self._namespaces)
        )
        ingress, egress = (self._isolating(selecting, direction) for direction in DIRECTIONS)
        member = Member(pod, groups, ingress, egress)
        if member == before:
            return
        if before is not None:
            self._drop(key, before)
        self._members[key] = member
        for index, value in self._places(member):
            index.setdefault(value, set()).add(key)
        self._note(key)

    def _isolating(self, selecting: Iterable[str], direction: Direction) -> tuple[str, ...] | None:
        found = tuple(key for key in selecting if self._policies[key].rules(direction) is not None)
        return found or None

    def _drop(self, key: str, member: Member) -> None:
        del self._members[key]
        for index, value in self._places(member):
            index.get(value, set()).discard(key)
        self._note(key)

    def _places(self, member: Member) -> list[tuple[dict[Any, set[str]], Any]]:
        """Return the indexes that a Pod is in, with its place in each."""
        found: list[tuple[dict[Any, set[str]], Any]] = [
            (self._by_namespace, member.pod.namespace),
            (self._by_node, member.pod.node),
        ]
        found += [(self._by_group, name) for name in member.groups]
        return found + [(self._by_port, (protocol, name)) for protocol, name, _ in member.pod.ports]

    def _note(self, key: str) -> None:
        for changed in self._changed.values():
            changed.add(key)

    def _active(self, node: str) -> dict[str, Policy]:
        keys = {key for one in self._by_node.get(node, ()) for key in self._members[one].policies()}
        return {key: self._policies[key] for key in sorted(keys)}

    def entries(self, node: str, entry: FilterEntry | None) -> Entries:
        """Return the section of one node; {} where no policy selects a Pod of it."""
        if entry is None or not self._policies:
            return {}
        made, changed = self._made.get(node), self._changed.get(node, set())
        if made is not None and made[:2] == (entry, self._version) and not changed:
            return made.entries
        active = self._active(node)
        if not active:
            self._made.pop(node, None)
            self._changed.pop(node, None)
            return {}
        # other policies may have changed; if those of this node did not, only Pods that changed are looked at
        if made is not None and made.entry == entry and made.policies == active:
            if not changed:
                return made.entries
            needs, entries = made.needs, dict[str, Entry](made.entries)
        else:
            needs = self._needed(active)
            entries = {FILTER: entry, **{POLICY + key: self._entries[key] for key in active}}
            changed = self._concerned(node, needs)
        for key in changed:
            found = self._pod_entry(key, node, needs)
            if found is not None:
                entries[POD + key] = found
            else:
                entries.pop(POD + key, None)
        self._changed[node] = set()
        self._made[node] = _Made(entry, self._version, active, needs, entries)
        return entries

    def _needed(self, active: Iterable[str]) -> _Needs:
        known = [self._needs[key] for key in active]
        return _Needs(
            frozenset().union(*(one.groups for one in known)), frozenset().union(*(one.ports for one in known))
        )

    def _concerned(self, node: str, needs: _Needs) -> set[str]:
        found = set(self._by_node.get(node, ()))
        for name in needs.groups:
            found |= self._by_group.get(name, set())
        for port in needs.ports:
            found |= self._by_port.get(port, set())
        return found

    def _pod_entry(self, key: str, node: str, needs: _Needs) -> PolicyPodEntry | None:
        member = self._members.get(key)
        # rules match addresses: before it has one that pods can have, nothing can be written of a Pod
        if member is None or not member.pod.address or not self._dual_stack.takes(member.pod.address):
            return None
        here = member.pod.node == node
        ingress, egress = (list(each) if here and each is not None else None for each in member[2:])
        named = [[*each] for each in sorted(member.pod.ports) if each[:2] in needs.ports]
        own = sorted(POLICY + each for each in ingress) if ingress is not None else None
        sent = sorted(POLICY + each for each in egress) if egress is not None else None
        peers = sorted(member.groups & needs.groups)
        if own is None and sent is None and not named and not peers:
            return None
        made: PolicyPodEntry = {
            "address": "" if self._dual_stack.alone else member.pod.address,
            "groups": peers,
            "ports": named,
            "ingress": own,
            "egress": sent,
        }
        second = self._dual_stack.address_of(member.pod.address)
        return {**made, "address_ipv6": second} if second else made
