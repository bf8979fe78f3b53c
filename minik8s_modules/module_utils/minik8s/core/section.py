"""One pass over one section: lock → fence → observe → plan → apply → report.

Every section (network.py … containers.py) brings ``observe``, a pure ``plan`` and ``apply``; this file brings what
they share. ``changed``, the diff and check mode come from the plan alone. A pass never waits: after ``budget_s``
(2 s) no new effect is begun and the rest comes back as ``due``. Keys are independent: each runs its steps in order
on one of the threads, and a key's failure stops that key only. The library modules and reapplying.py call ``run_pass``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Callable, NamedTuple, Protocol, Union

from . import digests, documents
from .digests import Entries
from .docker import Docker, DockerError
from .faults import KeyFault
from .fencing import hold_node, is_fenced, record_token
from .schema import require_object
from .sections import HELD

Facets = dict[str, str]  # what a person wants to see of one key: {aspect: text}
PASS_BUDGET_S = 2.0  # an item must not hold up the node's next one; what is left comes back as due
THREADS = 16  # 30 pods come up in 2 waves of sandboxes, then containers; with 8 threads in 3 (10 s instead of 12 to 14)


class Clock(Protocol):
    """What a pass asks of time."""

    def monotonic(self) -> float:
        """Return seconds that never run backwards."""

    def time(self) -> float:
        """Return seconds since 1970."""


TIDY = "tidy"
"""The action of a step that takes away what an earlier run of ours left: it is never told as somebody's change."""


class Step(NamedTuple):
    """One effect on one key; ``data`` is for ``apply`` and is never reported."""

    action: str
    key: str
    detail: str
    data: Any = None


class Due(NamedTuple):
    """A key that needs another pass after ``after_s`` seconds."""

    key: str
    after_s: float
    reason: str


@dataclass
class Plan:
    """What a pass will do; ``before`` and ``after`` hold the facets of the keys that differ (None: absent).

    ``opening`` steps run before all others and ``closing`` steps after them, one by one.
    """

    steps: list[Step] = field(default_factory=list)
    opening: list[Step] = field(default_factory=list)
    closing: list[Step] = field(default_factory=list)
    before: dict[str, Facets | None] = field(default_factory=dict)
    after: dict[str, Facets | None] = field(default_factory=dict)
    errors: dict[str, KeyFault] = field(default_factory=dict)
    due: list[Due] = field(default_factory=list)

    def all_steps(self) -> list[Step]:
        """Return every step in the order of the report."""
        return [*self.opening, *self.steps, *self.closing]

    def take_out(self, keys: frozenset[str]) -> list[Step]:
        """Leave ``keys`` as they are; return the steps that would have changed them."""
        found = [step for step in self.all_steps() if step.key in keys]
        for steps in (self.opening, self.steps, self.closing):
            steps[:] = [step for step in steps if step.key not in keys]
        for step in found:
            self.before.pop(step.key, None)
            self.after.pop(step.key, None)
        return found

    def differs(self, key: str, before: Facets | None, after: Facets | None) -> None:
        """Note the readable difference of one key."""
        self.before[key], self.after[key] = before, after


class Scope(NamedTuple):
    """Which keys a pass looks at: all (``keys`` None), or those; never the ``untouched`` (their entry is unusable)."""

    keys: frozenset[str] | None = None
    untouched: frozenset[str] = frozenset()

    def covers(self, key: str) -> bool:
        """Return whether the pass may look at and change ``key``."""
        return key not in self.untouched and (self.keys is None or key in self.keys)


class Request(NamedTuple):
    """The module options of one section (docs/reference/node-document.md)."""

    node: str
    mode: str = "full"
    entries: Mapping[str, Any] | None = None
    base: str | None = None
    upsert: Mapping[str, Any] | None = None
    delete: Iterable[str] | None = None
    token: list[int] | None = None
    state_dir: str = "/var/lib/minik8s"
    run_dir: str = "/run/minik8s"
    docker_socket: str = "/var/run/docker.sock"
    blob: str | None = None
    hold: Iterable[str] | None = None


def _no_checkpoint(effect: str) -> None:
    """Do nothing; fault tests put a kill here."""


@dataclass(frozen=True)
class Context:
    """What sections act with. ``checkpoint`` is called with a word before every single effect on the node."""

    node: str
    state_dir: str
    run_dir: str
    docker: Docker
    clock: Clock = time  # the module has exactly these two functions
    checkpoint: Callable[[str], None] = _no_checkpoint
    budget_s: float = PASS_BUDGET_S
    threads: int = THREADS
    unattended: bool = False
    blob: str | None = None
    check: bool = False

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Return ``function`` of each item, in order, computed on up to ``threads`` threads."""
        todo = list(items)
        if len(todo) <= 1 or self.threads <= 1:
            return [function(item) for item in todo]
        with ThreadPoolExecutor(min(self.threads, len(todo))) as pool:
            return list(pool.map(function, todo))


def context_for(request: Request, **changes: Any) -> Context:
    """Return the context a request asks for; ``changes`` override single fields."""
    given = {
        "node": request.node,
        "state_dir": request.state_dir,
        "run_dir": request.run_dir,
        "docker": Docker(request.docker_socket),
        "blob": request.blob,
    }
    return Context(**{**given, **changes})


class Section(Protocol):
    """What a section brings. ``plan`` does no input or output; the shape of ``observed`` is the section's own."""

    name: str

    def check_entry(self, key: str, entry: Mapping[str, Any]) -> None:
        """Raise KeyFault when the entry cannot be used."""

    def observe(self, context: Context, entries: Entries, scope: Scope) -> Any:
        """Return what the system holds for the keys of ``scope``."""

    def plan(self, context: Context, entries: Entries, observed: Any, scope: Scope) -> Plan:
        """Return the steps from ``observed`` to ``entries``."""

    def apply(self, context: Context, step: Step) -> None:
        """Carry out one step; raise KeyFault, DockerError, OSError or UnicodeError when it fails."""

    def status(self, context: Context, entries: Entries, observed: Any, touched: frozenset[str]) -> dict[str, Any]:
        """Return ``{key: observation or None}`` for ``entries`` after the steps; only ``touched`` keys changed."""


class OwnPass(Protocol):
    """A section whose keys are not independent, so that it brings a pass of its own (services.py)."""

    name: str

    def realize(self, request: Request, context: Context, *, check: bool) -> dict[str, Any]:
        """Return the result of a pass; the node's lock is held and the token is good."""


AnySection = Union[Section, OwnPass]


def run_pass(section: AnySection, request: Request, context: Context, *, check: bool = False) -> dict[str, Any]:
    """Converge one section and return the result that docs/reference/node-document.md describes.

    Raises:
        PassFault: the lock is held for too long, or the options contradict each other.
    """
    # the lock first: else two passes could both find their token good, and the older one work last
    with hold_node(request.state_dir, check=check):
        if is_fenced(request.state_dir, request.token):
            return _result(section, request, fenced=True)
        # a check leaves nothing behind, not even the token that it was sent
        if not check:
            record_token(context.state_dir, request.token, context.checkpoint)
        if hasattr(section, "realize"):
            return section.realize(request, replace(context, check=check), check=check)
        declared = _declared(section, request)
        if declared is None:
            return _result(section, request, base_mismatch=True)
        return _converge(section, request, replace(context, check=check), declared, check=check)


class _Declared(NamedTuple):
    """The whole declared set, its digest, the keys to look at (None: all), and what was declared before."""

    entries: dict[str, Any]
    digest: str
    keys: frozenset[str] | None
    last: documents.Document


def _declared(section: AnySection, request: Request) -> _Declared | None:
    """Return what is declared, None for a foreign base."""
    last = documents.load_document(request.state_dir, section.name)
    if request.mode == "full":
        entries = dict(request.entries or {})
        return _Declared(entries, digests.section_digest(entries), None, last)
    if last.digest != request.base:
        return None
    upsert, delete = dict(request.upsert or {}), list(request.delete or ())
    keys = None if getattr(section, "observes_all", False) else frozenset(upsert) | frozenset(delete)
    entries = documents.apply_delta(last.entries, upsert, delete)
    # of thousands of entries the digest is most of what a pass costs that changes nothing
    digest = digests.section_digest(entries) if upsert or delete else last.digest
    return _Declared(entries, digest, keys, last)


def _converge(
    section: Section,
    request: Request,
    context: Context,
    declared: _Declared,
    *,
    check: bool,
) -> dict[str, Any]:
    entries, digest, keys, last = declared
    deadline = context.clock.monotonic() + context.budget_s
    refused = _refused(section, entries, keys)
    usable = {key: entry for key, entry in entries.items() if key not in refused}
    scope = Scope(keys, frozenset(refused))
    observed = section.observe(context, usable, scope)
    # the plan knows nothing of holds: what they leave undone must be reported, so it has to be planned
    plan = section.plan(context, usable, observed, scope)
    plan.errors.update(refused)
    had = _had(request, last, entries)
    held = plan.take_out(had)
    touched: frozenset[str] = frozenset()
    if not check:
        touched = Applier(section, context, deadline).run(plan)
        # after the effects: a pass that is killed leaves the former document, and the same delta fits again
        pending = _pending(plan, last, keys, had) if section.name in HELD else frozenset()
        _keep(context, request.state_dir, section.name, declared, pending)
    shown = {key: entry for key, entry in usable.items() if scope.covers(key)}
    status: dict[str, Any] = dict.fromkeys(keys or (), None)
    status.update(dict.fromkeys(refused, None))
    status.update(section.status(context, shown, observed, touched))
    result = _result(section, request, plan=plan, status=status, digest=digest, held=held)
    if hasattr(section, "extras"):
        result.update(section.extras(context))
    return {**result, **differences(plan.before, plan.after)} if check else result


def _refused(section: Section, entries: Entries, keys: frozenset[str] | None) -> dict[str, KeyFault]:
    faults = {}
    for key, entry in entries.items():
        if keys is not None and key not in keys:
            continue
        try:
            require_object(key, entry)
            section.check_entry(key, entry)
        except KeyFault as fault:
            faults[key] = fault
    return faults


def _had(request: Request, last: documents.Document, entries: Entries) -> frozenset[str]:
    """Return the keys to hold that the node has had as they are declared: what differs there somebody else changed."""
    known = {key: entry for key, entry in last.entries.items() if key not in last.pending}
    return frozenset(key for key in request.hold or () if key in known and known[key] == entries.get(key))


def _pending(plan: Plan, last: documents.Document, keys: frozenset[str] | None, had: frozenset[str]) -> frozenset[str]:
    """Return the declared keys that are not realized after the pass; ``had`` are, whatever differs there."""
    found = frozenset({*plan.errors, *(due.key for due in plan.due)}) - had
    return found if keys is None else found | (last.pending - keys)


def _keep(context: Context, state_dir: str, section: str, declared: _Declared, pending: frozenset[str]) -> None:
    if not documents.is_stored(state_dir, section, declared.digest, pending):
        context.checkpoint(f"document {section}")
        documents.save_document(state_dir, section, context.node, declared.entries, pending)


class Applier:
    """Carries out a plan: keys side by side, a key's steps in order, nothing begun after the deadline."""

    def __init__(self, section: Section, context: Context, deadline: float) -> None:
        self._section, self._context, self._deadline = section, context, deadline
        self._lock = threading.Lock()
        self._touched: set[str] = set()

    def run(self, plan: Plan) -> frozenset[str]:
        """Apply the steps; failures and what is left go into ``plan``. Return the keys that were touched."""
        groups: dict[str, list[Step]] = {}
        for step in plan.steps:
            groups.setdefault(step.key, []).append(step)
        self._run_key(plan, plan.opening)
        self._context.map(lambda steps: self._run_key(plan, steps), groups.values())
        self._run_key(plan, plan.closing)
        return frozenset(self._touched)

    def _run_key(self, plan: Plan, steps: list[Step]) -> None:
        for step in steps:
            # looked at before each step and never within one: an effect that has begun is completed
            if self._context.clock.monotonic() >= self._deadline:
                with self._lock:
                    plan.due.append(Due(step.key, 0, "PassBudget"))
                return
            fault = self._attempt(step)
            if fault:
                with self._lock:
                    plan.errors[step.key] = fault
                return

    def _attempt(self, step: Step) -> KeyFault | None:
        # before the effect: one that fails may have changed something all the same
        with self._lock:
            self._touched.add(step.key)
        try:
            self._section.apply(self._context, step)
        except KeyFault as fault:
            return fault
        except DockerError as error:
            return KeyFault("DockerError" if error.status else "DockerUnavailable", f"{step.action}: {error}")
        except (OSError, UnicodeError) as error:
            return KeyFault("NodeError", f"{step.action}: {error}")
        return None


def as_text(facets: Mapping[str, Facets | None]) -> str:
    """Return facets as the lines a diff compares, keys sorted."""
    blocks = []
    for key in sorted(facets):
        found = facets[key]
        if found is not None:
            blocks.append(key + ":\n" + "".join(f"  {name}: {text}\n" for name, text in found.items()))
    return "".join(blocks)


def differences(before: Mapping[str, Facets | None], after: Mapping[str, Facets | None]) -> dict[str, Any]:
    """Return the diff by key, for those who may see some keys only; a text cannot be taken apart safely."""
    return {"differences": {"before": dict(before), "after": dict(after)}}


def _rows(steps: Iterable[Step]) -> list[dict[str, str]]:
    return [{"action": step.action, "key": step.key, "detail": step.detail} for step in steps]


def _result(
    section: AnySection,
    request: Request,
    *,
    plan: Plan | None = None,
    status: dict[str, Any] | None = None,
    digest: str = "",
    held: Iterable[Step] = (),
    base_mismatch: bool = False,
    fenced: bool = False,
) -> dict[str, Any]:
    plan = plan or Plan()
    return {
        "changed": bool(plan.all_steps()),
        "diff": {"before": as_text(plan.before), "after": as_text(plan.after)},
        "section": section.name,
        "digest": digest or documents.stored_digest(request.state_dir, section.name) or digests.EMPTY_DIGEST,
        "steps": _rows(plan.all_steps()),
        "status": status or {},
        "errors": {key: {"reason": fault.reason, "message": str(fault)} for key, fault in plan.errors.items()},
        "due": [due._asdict() for due in plan.due],
        "held": _rows(held),
        "base_mismatch": base_mismatch,
        "fenced": fenced,
    }
