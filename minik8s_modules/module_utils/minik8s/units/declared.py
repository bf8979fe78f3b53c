"""Section ``units``: each declared program is a unit of systemd, and what is not declared is stopped and deleted.

A program whose ``restart`` is ``no`` is started once: systemd keeps how it ended (``RemainAfterExit``), the record of
its folder keeps it over a reboot. One that was running when the machine went down is told as ended with 137. A pass may
be killed anywhere; the next one goes by what systemd and the folder say.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from ..core.digests import Entries
from ..core.faults import KeyFault
from ..core.files import read_bytes, remove_file, write_atomically
from ..core.schema import Schema, check_fields, schema_of, with_defaults
from ..core.section import Context, Due, Facets, Plan, Scope, Step
from ..entries.units import UnitEntry
from ..slurm.jobs import fault_in, is_plain, values_of
from . import folders
from .systemd import Shown
from .texts import UNIT_DIR, unit_name, unit_text

SCHEMA: Schema = schema_of(UnitEntry)
AGAIN_S = 1.0
LOST = 137
_FORMS = {
    "name": re.compile(r"[A-Za-z0-9._/-]{1,320}\Z"),
    "user": re.compile(r"[a-z_][a-z0-9_-]{0,31}\Z"),
    "directory": re.compile(r"/[^\x00-\x1f\x7f\\]*\Z"),
}
_UID = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LEAST = {"cpu_milli": 1, "memory_bytes": 1, "grace_s": 0}


class Manager(Protocol):
    """What is needed of systemd (``systemd.py``)."""

    def boot(self) -> str: ...  # noqa: D102 - see Systemd
    def show(self, units: Any) -> dict[str, Shown]: ...  # noqa: D102
    def reload(self) -> None: ...  # noqa: D102
    def start(self, unit: str, *, at_boot: bool) -> None: ...  # noqa: D102
    def stop(self, unit: str) -> None: ...  # noqa: D102
    def forget(self, unit: str) -> None: ...  # noqa: D102


class ObservedUnit(NamedTuple):
    """What there is of one uid."""

    shown: Shown = Shown()
    text: str | None = None
    folder: bool = False
    prepared: bool = False
    record: Mapping[str, Any] = {}

    def ended(self) -> Mapping[str, Any] | None:
        """Return how it ended, None where it did not."""
        found: Mapping[str, Any] | None = self.record.get("ended")
        return found

    def facets(self) -> Facets | None:
        """Return what a person wants to see."""
        if self.text is None:
            return {"folder": "left over"} if self.folder else None
        return {"unit": self.text, "state": f"{self.shown.active} ({self.shown.sub})"}


class Units:
    """The section's observe, plan and apply."""

    name = "units"
    observes_all = True  # one question tells of every unit

    def __init__(self, systemd: Manager, unit_dir: str = UNIT_DIR) -> None:
        self._systemd, self._unit_dir = systemd, unit_dir

    def check_entry(self, key: str, entry: Mapping[str, Any]) -> None:
        """Raise KeyFault for an entry that cannot be used."""
        check_fields(key, entry, SCHEMA)
        for field, form in _FORMS.items():
            if not form.match(entry.get(field, "/")):
                raise KeyFault("InvalidEntry", f"{key}.{field} {entry[field]!r:.80} must match {form.pattern}")
        if not _UID.match(key):
            raise KeyFault("InvalidEntry", f"the key {key!r:.80} must match {_UID.pattern}")
        if not entry["script"].startswith("#!") or not is_plain(entry["script"]):
            raise KeyFault("InvalidEntry", f"{key}.script must begin with #!, be UTF-8 and have no NUL")
        for field, least in _LEAST.items():
            number = entry.get(field)
            if number is not None and number < least:
                raise KeyFault("InvalidEntry", f"{key}.{field} {number} must be at least {least}")

    def observe(self, context: Context, entries: Entries, scope: Scope) -> dict[str, ObservedUnit]:
        """Return what there is of every declared unit, and of every other that has a folder.

        Raises:
            PassFault: systemd does not answer.
        """
        there = folders.known(context.state_dir)
        uids = [uid for uid in {*entries, *there} if uid not in scope.untouched]
        shown = self._systemd.show(unit_name(uid) for uid in uids)
        found = {}
        for uid in uids:
            text = read_bytes(self._path(uid))
            entry = entries.get(uid)
            prepared = entry is not None and folders.has_program(context.state_dir, uid, entry["script"])
            one = ObservedUnit(
                shown.get(unit_name(uid), Shown()),
                None if text is None else text.decode("utf-8", "replace"),
                uid in there,
                prepared,
                folders.record(context.state_dir, uid) if uid in there else {},
            )
            found[uid] = self._with_end(context, uid, entry, one)
        return found

    def _with_end(self, context: Context, uid: str, entry: Mapping[str, Any] | None, one: ObservedUnit) -> ObservedUnit:
        """Note how a unit ended as soon as it is seen: systemd forgets it at the next boot."""
        ended = _end_of(with_defaults(entry, SCHEMA), one, self._systemd.boot()) if entry is not None else None
        if ended is None or one.ended() is not None:
            return one
        if one.folder and not context.check:
            folders.note(context.state_dir, uid, ended=ended)
        return one._replace(record={**one.record, "ended": ended})

    def _path(self, uid: str) -> str:
        return os.path.join(self._unit_dir, unit_name(uid))

    def plan(self, context: Context, entries: Entries, observed: Mapping[str, ObservedUnit], scope: Scope) -> Plan:
        """Return the steps."""
        plan, values = Plan(), values_of(context.blob)
        for uid, found in sorted(observed.items()):
            if uid not in entries:
                _plan_absent(plan, uid, found)
            elif found.ended() is None:
                entry = with_defaults(entries[uid], SCHEMA)
                text = unit_text(entry, folders.folder_of(context.state_dir, uid))
                _plan_present(plan, uid, (entry, text), found, values.get(uid))
        return plan

    def apply(self, context: Context, step: Step) -> None:
        """Carry out one step."""
        context.checkpoint(step.action)
        unit = unit_name(step.key)
        if step.action == "write":
            self._write(context, step.key, *step.data)
        elif step.action == "start":
            self._systemd.start(unit, at_boot=step.data)
            # after the start: what was killed in between is found by systemd's word
            folders.note(context.state_dir, step.key, started=self._systemd.boot())
        elif step.action == "stop":
            self._systemd.stop(unit)
        else:
            self._systemd.forget(unit)
            remove_file(self._path(step.key))
            self._systemd.reload()
            folders.remove(context.state_dir, step.key)

    def _write(
        self, context: Context, uid: str, entry: Mapping[str, Any], text: str, values: Mapping[str, Any] | None
    ) -> None:
        """Write the files of a unit; ``values`` is None where those of its environment stay."""
        _require_user(entry["user"])
        if values is not None:
            folders.prepare(context.state_dir, uid, entry["script"], values.get("environment") or {})
            folders.note(context.state_dir, uid, values=entry["values"])
        context.checkpoint("unit")
        write_atomically(self._path(uid), text.encode(), 0o644)
        self._systemd.reload()

    def status(
        self, context: Context, entries: Entries, observed: Mapping[str, ObservedUnit], touched: frozenset[str]
    ) -> dict[str, Any]:
        """Return how each declared unit is; null before it was started."""
        fresh = self._systemd.show(unit_name(uid) for uid in touched & entries.keys())
        found = {}
        for uid in entries:
            one = observed.get(uid, ObservedUnit())
            found[uid] = told(one._replace(shown=fresh.get(unit_name(uid), one.shown)))
        return found


def _end_of(entry: Mapping[str, Any], found: ObservedUnit, boot: str) -> dict[str, Any] | None:
    """Return how a unit has ended for good, None where it has not, or runs again."""
    shown, started, stopping = found.shown, found.record.get("started"), entry["stopping"]
    if shown.is_live or (entry["restart"] == "always" and not stopping):
        return None
    if shown.has_run:
        times = {"started_s": shown.started_s, "ended_s": shown.ended_s or shown.started_s}
        return {"code": shown.code, "result": shown.result, "restarts": shown.restarts, **times}
    # of a unit that was stopped, systemd keeps nothing; after a reboot, nothing of any
    if stopping or (started and (entry["restart"] == "no" or started == boot)):
        return {
            "code": LOST,
            "result": "stopped" if stopping else "lost",
            "restarts": 0,
            "started_s": 0.0,
            "ended_s": 0.0,
        }
    return None


def _plan_absent(plan: Plan, uid: str, found: ObservedUnit) -> None:
    plan.differs(uid, found.facets(), None)
    if found.shown.is_live:
        if found.shown.active != "deactivating":
            plan.steps.append(Step("stop", uid, unit_name(uid)))
        plan.due.append(Due(uid, AGAIN_S, "IsStopping"))
    else:
        plan.steps.append(Step("remove", uid, unit_name(uid)))


def _plan_present(
    plan: Plan, uid: str, wanted: tuple[Mapping[str, Any], str], found: ObservedUnit, values: Mapping[str, Any] | None
) -> None:
    entry, text = wanted
    is_current = found.prepared and found.record.get("values") == entry["values"]
    needs = not is_current and not entry["stopping"]
    if fault := _fault_of(entry, values) if needs else None:
        plan.errors[uid] = fault
        return
    if needs or found.text != text:
        detail = f"{entry['name']} as {unit_name(uid)}"
        plan.steps.append(Step("write", uid, detail, (entry, text, (values or {}) if needs else None)))
    if entry["stopping"]:
        if found.shown.is_live and found.shown.active != "deactivating":
            plan.steps.append(Step("stop", uid, unit_name(uid)))
        plan.due.append(Due(uid, AGAIN_S, "IsStopping"))
    elif not found.shown.is_live:
        plan.steps.append(Step("start", uid, unit_name(uid), entry["restart"] == "always"))
    if plan.steps and plan.steps[-1].key == uid:
        state = "inactive (dead)" if entry["stopping"] else "active (running)"
        plan.differs(uid, found.facets(), {"unit": text, "state": state})


def _fault_of(entry: Mapping[str, Any], values: Mapping[str, Any] | None) -> KeyFault | None:
    if entry["values"] is not None and values is None:
        return KeyFault("ValuesMissing", "the program's environment is not in blob; send it again")
    if fault := fault_in(values or {}):
        return fault
    wrong = next((name for name in (values or {}).get("environment") or {} if not _VARIABLE.match(name)), None)
    if wrong is not None:
        return KeyFault("InvalidEntry", f"{wrong!r:.80} is no variable's name")
    return None


def _require_user(name: str) -> None:
    try:
        pwd.getpwnam(name)
    except KeyError:
        raise KeyFault("NoSuchUser", f"this machine has no user {name}: create it, or choose another") from None


def told(found: ObservedUnit) -> dict[str, Any] | None:
    """Return the state of a unit: ``waiting``, ``running`` or ``ended``; null before it was started."""
    ended, shown = found.ended(), found.shown
    if ended is not None:
        return {"state": "ended", **ended}
    if not shown.is_live:
        return None
    runs = shown.sub in {"running", "stop", "stop-sigterm", "stop-sigkill", "final-sigterm", "reload"}
    return {
        "state": "running" if runs else "waiting",
        "code": shown.code,
        "result": shown.result,
        "started_s": round(shown.started_s, 3),
        "ended_s": round(shown.ended_s, 3),
        "restarts": shown.restarts,
        "cpu_ns": shown.cpu_ns,
        "memory_bytes": shown.memory_bytes,
    }
