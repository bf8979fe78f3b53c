"""Section ``sidecars``: the rules in a pod's network that lead its TCP connections to the sidecar.

They are made after the pod's sandbox and before its containers, which do not start without them. A new attempt of the
sandbox has a new network, and so an entry of its own. Which rules: interception.py. They are iptables' where a node
has it, so that whoever looks into the pod finds the original's chains, else nftables'. What is no longer declared is
removed where the node had it; with a pod's network its rules go by themselves.

Only a network that is known to be the sandbox's is entered (sandbox_network.py).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..core import labels
from ..core.digests import Entries
from ..core.documents import load_document
from ..core.faults import KeyFault
from ..core.section import Context, Facets, Plan, Scope, Step
from . import interception
from .interception import IPTABLES, NFTABLES, TABLE, Rule
from .sandbox_network import network_of

NAME = "sidecars"
WAIT_S = "5"
RULES_MISSING = "RulesMissing"
"""Reason of a container whose pod's rules are declared and not there."""
_SPEAKS_IPV6 = "/proc/net/if_inet6"
Chains = Mapping[str, "list[str]"]


class _Family(NamedTuple):
    """The words of a family: its own, and that of each program."""

    name: str
    iptables: str
    nft: str

    @property
    def ipv6(self) -> bool:
        return self.nft == "ip6"


_FAMILIES = (_Family("IPv4", "iptables", "ip"), _Family("IPv6", "ip6tables", "ip6"))


class Found(NamedTuple):
    """A pod's sandbox, by its container, and the rules of ours in its network."""

    sandbox: str
    chains: Chains


class Observed(NamedTuple):
    """With which program the node writes rules, and what there is by pod; pods without a running sandbox are left out.

    A fault in place of either says why it is not known. ``ipv6`` is whether the node's kernel speaks it.
    """

    by: str | KeyFault
    pods: Mapping[str, Found | KeyFault]
    ipv6: bool = True


class Sidecars:
    """The section's observe, plan and apply."""

    name = NAME

    def check_entry(self, key: str, entry: Mapping[str, Any]) -> None:
        """Raise KeyFault for an entry that cannot be used."""
        interception.check(key, entry)

    def observe(self, context: Context, entries: Entries, scope: Scope) -> Observed:
        """Return the rules in the running sandboxes of the pods that are, or were, declared."""
        last = load_document(context.state_dir, NAME).entries
        wanted = sorted(key for key in {*entries, *last} if scope.covers(key))
        by, ipv6 = program(), os.path.exists(_SPEAKS_IPV6)
        if isinstance(by, KeyFault):
            return Observed(by, {}, ipv6)

        def look(key: str) -> Found | KeyFault | None:
            # other pods never had rules of IPv6, and their nodes need no program for these
            mutual = any(each.get("mutual_tls") for each in (entries.get(key, {}), last.get(key, {})))
            return _look(context, by, key, entries.get(key), ipv6=ipv6 and mutual)

        found = context.map(look, wanted)
        return Observed(by, {key: each for key, each in zip(wanted, found) if each is not None}, ipv6)

    def plan(self, context: Context, entries: Entries, observed: Observed, scope: Scope) -> Plan:
        """Return the steps."""
        plan = Plan()
        for key in sorted({*entries, *observed.pods}):
            if scope.covers(key):
                _plan_key(plan, context, key, entries.get(key), observed)
        return plan

    def apply(self, context: Context, step: Step) -> None:
        """Carry out one step."""
        by, found, wanted = step.data
        with network_of(context.docker, _inspected(context, step.key, found.sandbox)) as network:
            for family in _FAMILIES:
                there, rules = (interception.of_family(each, ipv6=family.ipv6) for each in (found.chains, wanted))
                if there == interception.shown(rules, by):
                    continue
                context.checkpoint(f"{step.action} rules of {family.name}")
                if by == IPTABLES:
                    script = interception.script_of_iptables(there, rules)
                    _run(step.key, network, [f"{family.iptables}-restore", "--noflush", "-w", WAIT_S], script)
                else:
                    _run(step.key, network, ["nft", "-f", "-"], interception.script_of_nftables(rules, family.nft))

    def status(self, context: Context, entries: Entries, observed: Observed, touched: frozenset[str]) -> dict[str, Any]:
        """Return with which program each declared pod has its rules, None of one that has not."""
        by, found = observed.by, dict(observed.pods)
        if isinstance(by, KeyFault):
            return dict.fromkeys(entries)
        again = sorted(touched & frozenset(entries))
        ipv6 = observed.ipv6

        def look(key: str) -> Found | KeyFault | None:
            return _look(context, by, key, entries[key], ipv6=ipv6 and bool(entries[key].get("mutual_tls")))

        looked = context.map(look, again)
        found.update((key, each) for key, each in zip(again, looked) if each is not None)
        return {key: _status_of(by, _wanted(entry, ipv6=ipv6), found.get(key)) for key, entry in entries.items()}


def program() -> str | KeyFault:
    """Return which program the node writes rules with, a fault (NetworkNotReady) where it has none."""
    if shutil.which("iptables-save") and shutil.which("iptables-restore"):
        return IPTABLES
    if shutil.which("nft"):
        return NFTABLES
    return KeyFault("NetworkNotReady", "neither iptables nor nft is installed on this node, and sidecars need one")


def check_rules(context: Context, uid: str) -> None:
    """Refuse a container of a pod whose rules are declared and were not made: it would pass the sidecar by.

    Raises:
        KeyFault: RulesMissing.
    """
    last = load_document(context.state_dir, NAME)
    if uid in last.entries and uid in last.pending:
        raise KeyFault(RULES_MISSING, f"the rules that lead connections of pod {uid} to its sidecar are not there yet")


def _plan_key(plan: Plan, context: Context, key: str, entry: Mapping[str, Any] | None, observed: Observed) -> None:
    by, found = observed.by, observed.pods.get(key)
    fault = next((each for each in (by, found) if isinstance(each, KeyFault)), None)
    if fault is not None:
        plan.errors[key] = fault
    elif entry is None:
        _plan_removal(plan, key, observed)
    elif found is None and not context.check:  # in a check the section before this one would have made it
        why = f"the rules of {key} need the running sandbox attempt {entry['attempt']} of its pod"
        plan.errors[key] = KeyFault("SandboxMissing", why)
    else:
        rules = _wanted(entry, ipv6=observed.ipv6)
        wanted = interception.shown(rules, str(by))
        chains = found.chains if isinstance(found, Found) else {}
        if chains != wanted:
            plan.steps.append(Step("write", key, _summary(wanted), (by, found, rules)))
            plan.differs(key, _facets(chains) if chains else None, _facets(wanted))


def _wanted(entry: Mapping[str, Any], *, ipv6: bool) -> dict[str, tuple[Rule, ...]]:
    """Return the rules of both families that an entry asks for; a kernel without IPv6 has nothing to lead."""
    return interception.both(interception.rules_of(entry), interception.rules_of_ipv6(entry) if ipv6 else {})


def _plan_removal(plan: Plan, key: str, observed: Observed) -> None:
    found = observed.pods.get(key)
    if isinstance(found, Found) and found.chains:
        plan.steps.append(Step("remove", key, _summary(found.chains), (observed.by, found, {})))
        plan.differs(key, _facets(found.chains), None)


def _facets(chains: Chains) -> Facets:
    return {chain: "; ".join(rules) for chain, rules in sorted(chains.items())}


def _summary(chains: Chains) -> str:
    return f"{sum(map(len, chains.values()))} rules"


def _status_of(
    by: str, wanted: Mapping[str, tuple[Rule, ...]], found: Found | KeyFault | None
) -> dict[str, Any] | None:
    right = interception.shown(wanted, by)
    return {"by": by} if isinstance(found, Found) and found.chains == right else None


def _look(
    context: Context, by: str, key: str, entry: Mapping[str, Any] | None, *, ipv6: bool
) -> Found | KeyFault | None:
    """Return what there is of a pod's rules, None where the sandbox does not run; of any attempt if none is named."""
    wanted = {labels.NODE: context.node, labels.TYPE: labels.SANDBOX, labels.POD_UID: key}
    for each in context.docker.containers(wanted):
        attempt = labels.attempt_of(each["Labels"])
        if each["State"] == "running" and (entry is None or entry["attempt"] == attempt):
            try:
                with network_of(context.docker, _inspected(context, key, each["Id"])) as network:
                    return Found(each["Id"], _chains_of_both(by, key, network, entry, ipv6=ipv6))
            except KeyFault as fault:
                return None if fault.reason == "SandboxGone" else fault
    return None


def _inspected(context: Context, key: str, sandbox: str) -> dict[str, Any]:
    inspect = context.docker.inspect(sandbox)
    if inspect is None:
        raise KeyFault("SandboxGone", f"the sandbox of {key} ended while its rules were looked at")
    return inspect


def _chains_of_both(by: str, key: str, network: str, entry: Mapping[str, Any] | None, *, ipv6: bool) -> Chains:
    first, second = _FAMILIES
    of_ipv6 = _chains(by, key, network, entry, second) if ipv6 else {}
    return interception.both(_chains(by, key, network, entry, first), of_ipv6)


def _chains(by: str, key: str, network: str, entry: Mapping[str, Any] | None, family: _Family) -> Chains:
    """Return the rules of a family in a network. Raises KeyFault where they cannot be read."""
    if by == IPTABLES:
        return interception.found_by_iptables(_run(key, network, [f"{family.iptables}-save", "-t", "nat"]))
    if f"table {family.nft} {TABLE}\n" not in _run(key, network, ["nft", "list", "tables", family.nft]):
        return {}
    listed = _run(key, network, ["nft", "-s", "list", "table", family.nft, TABLE])
    wanted = interception.of_family(_wanted(entry, ipv6=True), ipv6=family.ipv6) if entry is not None else {}
    return interception.found_by_nftables(listed, wanted)


def _run(key: str, network: str, argv: list[str], text: str = "") -> str:
    """Run a program in an open network; return its output. Raises KeyFault (NetworkNotReady) where it fails."""
    words = ["nsenter", f"--net={network}", "--", *argv]
    done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise KeyFault("NetworkNotReady", f"rules of {key}: {' '.join(argv)}: {done.stderr.strip()[:300]}")
    return done.stdout
