"""Section ``services``: addresses, ports and node ports of Services, sent on to their endpoints.

One entry is one port of one Service, key ``<namespace>/<service>:<port name or number>``; the entry ``dataplane`` says
how. Two backends realize the same entries: nftables.py and ipvs.py. A pass of its own instead of section.py's: all
changes are one transaction, and a delta among 10,000 entries must cost what it changes, so entries are kept by key
(keyed_documents.py) and rules are looked up, not listed. Where the fixed part is damaged a delta becomes whole.
"""

from __future__ import annotations

import contextlib
import errno
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from ..core.faults import KeyFault, NodeFault
from ..core.keyed_documents import Entries, Ledger
from ..core.section import Context, Facets, Request, Step, as_text, differences
from . import conntrack
from .both_families import BothFamilies, known_of
from .families import parts_of
from .ipvs import Ipvs
from .nftables import Nftables
from .services_entries import DATAPLANE, check_entry, check_ranges
from .services_host import ROUTE_IPV6, Host, bridge_rules_possible, follows_sctp
from .services_plan import SHARED, SHOWN, FixedPart, Rule, RulePlan, Rules, Words, leftovers_of, plan_rules, result

TRIES = 3
NO_SCTP = "this node's kernel does not translate addresses of SCTP (CONFIG_NF_CT_PROTO_SCTP); nobody reaches it there"


class Backend(Protocol):
    """What realizes rules. Rules are the backend's own; all of them go through one socket in one thread."""

    name: str

    def rules_of(self, entry: Mapping[str, Any]) -> list[Rule]:
        """Return the rules of one service port."""

    def shown(self, rule: Rule) -> tuple[str, str]:
        """Return a rule as (what, text) for people."""

    def place_of(self, rule: Rule) -> str:
        """Return where a rule listens, for people."""

    def udp_flow(self, rule: Rule) -> conntrack.Lost | None:
        """Return what clients send over UDP that a rule has to do with, None for TCP; endpoint "": the service."""

    def found(self) -> FixedPart:
        """Return how the fixed part is and should be."""

    def mend(self, aspect: str) -> None:
        """Make one aspect of the fixed part right."""

    def read(self, rules: Iterable[Rule] | None) -> Rules:
        """Return all rules of ours, or those with the keys of ``rules``."""

    def write(self, delete: Iterable[Rule], add: Iterable[Rule]) -> None:
        """Carry the changes out."""

    def tidy(self, rules: Rules) -> None:
        """Remove what no rule of all ``rules`` needs."""

    def known(self) -> dict[str, str]:
        """Return what the next pass is to be given back."""

    def remove(self) -> None:
        """Remove everything of ours."""

    def close(self) -> None:
        """Let go of sockets."""


class Declared(NamedTuple):
    """What a pass looks at: ``entries`` should be, ``previous`` was declared before; ``whole``: nothing else may be."""

    entries: Entries
    previous: Entries
    config: Mapping[str, Any] | None
    was: Mapping[str, Any] | None
    digest: str
    whole: bool


def declare(ledger: Ledger, request: Request) -> Declared | None:
    """Take the request over into the ledger (committed later); None for a foreign base."""
    was = ledger.entries([DATAPLANE]).get(DATAPLANE)
    if request.mode == "full":
        entries = dict(request.entries or {})
        return Declared(entries, {}, entries.get(DATAPLANE), was, ledger.replace(entries), whole=True)
    if ledger.digest() != request.base:
        return None
    upsert, delete = dict(request.upsert or {}), list(request.delete or ())
    previous = ledger.entries({*upsert, *delete})
    if DATAPLANE in upsert or DATAPLANE in delete:
        digest = ledger.change(upsert, delete)
        entries = ledger.entries()
        return Declared(entries, {}, entries.get(DATAPLANE), was, digest, whole=True)
    return Declared(upsert, previous, was, was, ledger.change(upsert, delete), whole=False)


class Services:
    """The section."""

    name = "services"

    def realize(self, request: Request, context: Context, *, check: bool) -> dict[str, Any]:
        """Run one pass; the node's lock is held and the token is good."""
        with Ledger(request.state_dir, self.name, readable=check) as ledger:
            declared = declare(ledger, request)
            if declared is None:
                return result(self.name, ledger.digest(), base_mismatch=True)
            return Pass(ledger, declared, context, check=check).run()


class Pass:
    """One pass: observe → plan → apply → report."""

    def __init__(self, ledger: Ledger, declared: Declared, context: Context, *, check: bool) -> None:
        self._ledger, self._declared, self._context, self._check = ledger, declared, context, check
        self._errors: dict[str, KeyFault] = {}
        self._steps: list[Step] = []
        self._before: dict[str, Facets | None] = {}
        self._after: dict[str, Facets | None] = {}

    def run(self) -> dict[str, Any]:
        """Return the result of the pass."""
        config = self._config()
        with contextlib.ExitStack() as stack:
            known: dict[str, str] = dict(self._ledger.extra().get("known") or {})
            try:
                self._leave(config)
                if config is not None:
                    self._realize(config, known, stack)
            except (KeyFault, OSError) as error:
                self._errors[DATAPLANE] = error if isinstance(error, KeyFault) else KeyFault("NodeError", str(error))
        declared = self._declared
        if not self._check:
            if self._ledger.dirty:
                self._context.checkpoint("document services")
            self._ledger.commit(node=self._context.node, digest=declared.digest, known=known)
        report = result(
            "services",
            declared.digest,
            steps=self._steps,
            diff={"before": as_text(self._before), "after": as_text(self._after)},
            errors=self._errors,
            status=self._status(),
        )
        return {**report, **differences(self._before, self._after)} if self._check else report

    def _status(self) -> dict[str, Any]:
        if len(self._declared.entries) > SHOWN:
            return dict.fromkeys(self._errors)
        gone = dict.fromkeys(key for key in self._declared.previous if key not in self._declared.entries)
        broken = DATAPLANE in self._errors
        present = {
            key: None if broken or key in self._errors else {"state": "present"} for key in self._declared.entries
        }
        return {**gone, **present}

    def _config(self) -> Mapping[str, Any] | None:
        """Return the dataplane to realize, None for none; entries without one are errors."""
        declared = self._declared
        if declared.config is None:
            for key in declared.entries:
                self._errors[key] = KeyFault("InvalidEntry", f"{key}: the section has no entry {DATAPLANE!r}")
            return None
        try:
            check_entry(DATAPLANE, declared.config)
        except KeyFault as fault:
            self._errors[DATAPLANE] = fault
            return None
        return declared.config

    # what was declared before and is to be no more

    def _leave(self, config: Mapping[str, Any] | None) -> None:
        was = self._declared.was
        if was is None or DATAPLANE in self._errors:
            return
        kept = [_identity(part) for part in parts_of(config)] if config is not None else []
        for part in parts_of(was):
            if _identity(part) not in kept:
                self._leave_part(part)

    def _leave_part(self, was: Mapping[str, Any]) -> None:
        """Remove everything of one family."""
        self._steps.append(Step("remove", DATAPLANE, f"{was['mode']}: table {was['table']}, {was['service_cidr']}"))
        route = ROUTE_IPV6 if ":" in was["service_cidr"] else "route"
        self._before[DATAPLANE] = {
            **(self._before.get(DATAPLANE) or {}),
            "mode": was["mode"],
            route: was["service_cidr"],
        }
        self._after.setdefault(DATAPLANE, None)
        if self._check:
            return
        self._context.checkpoint("remove services")
        with contextlib.ExitStack() as stack:
            backend, host = _part(self._context.node, was, {}, stack, bridged=False)
            host.remove()  # before the rules, as it comes after them
            self._context.checkpoint("remove rules of services")
            backend.remove()

    # what is to be

    def _realize(self, config: Mapping[str, Any], known: dict[str, str], stack: contextlib.ExitStack) -> None:
        bridged = bridge_rules_possible()
        backend, hosts = _parts(self._context.node, config, known, stack, bridged=bridged)
        stack.callback(lambda: known.update(backend.known()))
        fixed = backend.found()
        declared = self._declared
        if not declared.whole and fixed.wrong():
            entries = {**self._ledger.entries()}
            declared = self._declared = declared._replace(entries=entries, previous={}, whole=True)
        fresh = not any(fixed.seen.values())
        # the route after the rules: what it leads to the bridge before them waits there three seconds for ARP
        parts: list[tuple[Any, Callable[[], FixedPart]]] = [(backend, lambda: fixed)]
        if declared.whole and config["mode"] == "nftables":
            parts += [(host, functools.partial(host.found, bridged=bridged)) for host in hosts]
        self._mend_each(parts)
        usable = self._usable(declared.entries)
        wanted = {key: backend.rules_of(entry) for key, entry in usable.items()}
        self._refuse_doubles(wanted)
        self._converge(backend, wanted, usable, fresh=fresh and self._check)

    def _mend_each(self, parts: Iterable[tuple[Any, Callable[[], FixedPart]]]) -> None:
        """Mend all parts, also when one fails: without the route, what is sent to Services leaves for the outside.

        Raises:
            KeyFault, OSError: the first failure.
        """
        failures = list[KeyFault | OSError]()
        for part, found in parts:
            try:
                self._mend(part, found())
            except (KeyFault, OSError) as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _mend(self, part: Any, found: FixedPart) -> None:
        wrong = found.wrong()
        if not wrong:
            return
        before, after = self._before.get(DATAPLANE) or {}, self._after.get(DATAPLANE) or {}
        self._before[DATAPLANE] = {**before, **{aspect: found.seen.get(aspect, "") for aspect in wrong}}
        self._after[DATAPLANE] = {**after, **{aspect: found.wanted[aspect] for aspect in wrong}}
        for aspect in wrong:
            self._steps.append(Step("mend", DATAPLANE, f"{aspect}: {found.wanted[aspect]}"))
            if not self._check:
                self._context.checkpoint(f"mend {aspect}")
                part.mend(aspect)

    def _usable(self, entries: Entries) -> Entries:
        usable = {}
        for key, entry in entries.items():
            if key == DATAPLANE:
                continue
            try:
                check_entry(key, entry)
                check_ranges(key, entry, self._declared.config or {})
                _check_protocol(key, entry)
                usable[key] = entry
            except KeyFault as fault:
                self._errors[key] = fault
        return usable

    def _refuse_doubles(self, wanted: dict[str, list[Rule]]) -> None:
        """Leave out entries whose address and port another entry has; the first by key has it."""
        holders: dict[tuple[str, Any], str] = {}
        for key in sorted(wanted):
            for rule in wanted[key]:
                if rule.table in SHARED:
                    continue
                holder = holders.setdefault((rule.table, rule.key), key)
                if holder != key:
                    self._errors[key] = KeyFault("InvalidEntry", f"{key}: {holder} has the same address or node port")
                    del wanted[key]
                    break

    def _converge(self, backend: Backend, wanted: dict[str, list[Rule]], usable: Entries, *, fresh: bool) -> None:
        words, plan = Words(backend.shown, backend.place_of), RulePlan()
        for attempt in range(TRIES):
            known = self._stale(backend)
            if self._declared.whole:
                seen = {} if fresh else backend.read(None)
                stale = leftovers_of(seen, wanted)
            else:
                stale = [rule for rules in known.values() for rule in rules]
                seen = backend.read([*(rule for rules in wanted.values() for rule in rules), *stale])
            owners = {(rule.table, rule.key): key for key, rules in known.items() for rule in rules}
            plan = plan_rules(wanted, stale, seen, words, owners)
            if self._check or self._apply(backend, plan, last=attempt == TRIES - 1):
                break
        self._steps += plan.steps
        self._before.update(plan.before)
        self._after.update(plan.after)
        if self._declared.whole and not self._check:
            backend.tidy(_tables(wanted))

    def _stale(self, backend: Backend) -> dict[str, list[Rule]]:
        """Return the rules of what was declared before for each key of a delta, except those that others share."""
        previous = self._declared.previous
        rules: dict[str, list[Rule]] = {}
        for key, entry in previous.items():
            with contextlib.suppress(NodeFault):
                check_entry(key, entry)
                check_ranges(key, entry, self._declared.config or {})
                rules[key] = backend.rules_of(entry)
        addresses = {str(entry.get("address")) for entry in previous.values()}
        shared = {
            (rule.table, rule.key)
            for entry in self._ledger.at_addresses(addresses).values()
            for rule in backend.rules_of(entry)
            if rule.table in SHARED
        }
        return {key: [rule for rule in each if (rule.table, rule.key) not in shared] for key, each in rules.items()}

    def _apply(self, backend: Backend, plan: RulePlan, *, last: bool) -> bool:
        """Carry the plan out; return False when somebody changed the rules meanwhile and it is worth another look."""
        if not plan.delete and not plan.add:
            return True
        self._context.checkpoint("rules of services")
        try:
            backend.write(plan.delete, plan.add)
        except OSError as error:
            if last or error.errno not in (errno.ENOENT, errno.EEXIST, errno.EBUSY):
                raise
            return False
        gone = plan.gone()
        conntrack.forget_udp(lost_udp(backend, plan, gone))
        return True


def lost_udp(backend: Backend, plan: RulePlan, gone: list[Rule]) -> list[conntrack.Lost]:
    """Return what the kernel must not remember: flows to UDP endpoints that are gone, and to none."""
    ended = [lost for rule in gone if (lost := backend.udp_flow(rule)) is not None and lost.endpoint]
    begun = [lost for rule in plan.add if (lost := backend.udp_flow(rule)) is not None and not lost.endpoint]
    return ended + begun


def _check_protocol(key: str, entry: Mapping[str, Any]) -> None:
    if entry["protocol"] == "SCTP" and not follows_sctp():
        raise KeyFault("ProtocolNotSupported", f"{key}: {NO_SCTP}")


def _tables(wanted: Mapping[str, list[Rule]]) -> Rules:
    found: Rules = {}
    for rules in wanted.values():
        for rule in rules:
            found.setdefault(rule.table, {})[rule.key] = rule.value
    return found


def _identity(config: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what makes it another dataplane, so that the former one is removed first."""
    return tuple(config[name] for name in ("mode", "table", "service_cidr", "bridge"))


def _parts(
    node: str, config: Mapping[str, Any], known: Mapping[str, str], stack: contextlib.ExitStack, *, bridged: bool
) -> tuple[Backend, list[Host]]:
    """Return what realizes all families of a dataplane."""
    made = [
        _part(node, part, known_of(known, second=at > 0), stack, bridged=bridged)
        for at, part in enumerate(parts_of(config))
    ]
    backends, hosts = [backend for backend, _ in made], [host for _, host in made]
    first, *others = backends
    return (BothFamilies(first, others[0]) if others else first), hosts


def _part(
    node: str, config: Mapping[str, Any], known: Mapping[str, str], stack: contextlib.ExitStack, *, bridged: bool
) -> tuple[Nftables | Ipvs, Host]:
    host = Host(config)
    stack.callback(host.close)
    backend = (
        Nftables(node, config, known, bridged=bridged) if config["mode"] == "nftables" else Ipvs(node, config, known)
    )
    stack.callback(backend.close)
    return backend, host
