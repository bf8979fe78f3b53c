"""Section ``slurm_jobs``: the declared jobs are in Slurm's queue once each, and what is not declared is cancelled.

A job is looked for before it is submitted: in the queue by its comment, in the record of its folder, in Slurm's file
of completed jobs, and in what the job itself left in its folder. Only where none of these knows it, it never ran. So
a pass may be killed anywhere, and an answer of sbatch be lost. What Slurm does not answer is not known, and fails the
pass.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..core.digests import Entries, canonical
from ..core.faults import KeyFault
from ..core.paths import relative
from ..core.schema import Schema, check_fields, schema_of, with_defaults
from ..core.section import Context, Due, Facets, Plan, Scope, Step
from ..entries.slurm_jobs import SlurmJobEntry
from . import depending, folders
from .queue import Job, Slurm, comment, options

SCHEMA: Schema = schema_of(SlurmJobEntry)
AGAIN_S = 1.0
LOST = "LOST"
"""Our word for a job that was submitted and that nobody knows any more."""
_UID = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_NAME = re.compile(r"[A-Za-z0-9._/-]{1,320}\Z")
_PARTITION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LEAST = {"tasks": 1, "tasks_per_node": 1, "cpus_per_task": 1, "memory_mb": 1, "gpus": 0, "minutes": 1}


class ObservedJob(NamedTuple):
    """What is known of one uid: its jobs in the queue, whether it has a folder, its id, and how it ended."""

    jobs: tuple[Job, ...] = ()
    folder: bool = False
    id: int | None = None
    ended: Mapping[str, Any] | None = None

    def chosen(self) -> Job | None:
        """Return the job that counts: the one on record, else the first that was submitted."""
        return next((job for job in self.jobs if job.id == self.id), self.jobs[0] if self.jobs else None)

    def doubles(self) -> tuple[Job, ...]:
        """Return jobs that were submitted beside the one that counts, and have not ended."""
        chosen = self.chosen()
        return tuple(job for job in self.jobs if job.is_live and job is not chosen)

    def known(self) -> depending.Known:
        """Return what matters to jobs that wait for it."""
        chosen = self.chosen()
        return depending.Known(chosen.id if chosen is not None and chosen.is_live else None, self.ended)

    def is_live(self) -> bool:
        """Return whether the job that counts has not ended."""
        chosen = self.chosen()
        return chosen is not None and chosen.is_live

    def facets(self) -> Facets | None:
        """Return what a person wants to see."""
        chosen = self.chosen()
        if chosen is not None:
            return {"job": str(chosen.id), "state": chosen.state}
        if self.ended is not None:
            return {"job": str(self.ended.get("id") or ""), "state": str(self.ended["state"])}
        return {"folder": "left over"} if self.folder else None


class SlurmJobs:
    """The section's observe, plan and apply."""

    name = "slurm_jobs"
    observes_all = True  # one question tells of every job, whatever a delta changes

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm

    def check_entry(self, key: str, entry: Mapping[str, Any]) -> None:
        """Raise KeyFault for an entry that cannot be used."""
        check_fields(key, entry, SCHEMA)
        for what, text, form in (
            ("the key", key, _UID), ("name", entry["name"], _NAME), ("partition", entry["partition"], _PARTITION),
        ):  # fmt: skip
            if not form.match(text):
                raise KeyFault("InvalidEntry", f"{key}: {what} {text!r:.80} must match {form.pattern}")
        if not entry["script"].startswith("#!") or not is_plain(entry["script"]):
            raise KeyFault("InvalidEntry", f"{key}.script must begin with #!, be UTF-8 and have no NUL")
        for field, least in _LEAST.items():
            number = entry.get(field)
            if number is not None and number < least:
                raise KeyFault("InvalidEntry", f"{key}.{field} {entry[field]} must be at least {least}")
        depending.check(key, entry.get("after"))
        for path, text in (entry.get("sources") or {}).items():
            relative(path)
            if not isinstance(text, str):
                raise KeyFault("InvalidEntry", f"{key}.sources[{path!r:.80}] must be text")

    def observe(self, context: Context, entries: Entries, scope: Scope) -> dict[str, ObservedJob]:
        """Return what there is of every declared job, and of every other of this owner's.

        Raises:
            PassFault: Slurm did not answer.
        """
        queue = self._slurm.jobs(context.node)
        there = folders.known(context.state_dir)
        found = {}
        for uid in {*entries, *queue, *there}:
            jobs = tuple(queue.get(uid, ()))
            live = len(jobs) == 1 and jobs[0].is_live
            found[uid] = (
                ObservedJob(jobs, uid in there) if live else _recorded(context.state_dir, uid, jobs, uid in there)
            )
        return self._with_ends(context, {uid: one for uid, one in found.items() if uid not in scope.untouched})

    def _with_ends(self, context: Context, found: dict[str, ObservedJob]) -> dict[str, ObservedJob]:
        """Add how jobs ended of which no record says so; only for them a further question is asked."""
        ended = {uid: one for uid, one in found.items() if not one.is_live() and one.ended is None and one.folder}
        if not ended:
            return found
        codes = self._slurm.exit_codes() if any(one.jobs for one in ended.values()) else {}
        completed = self._slurm.completed() if any(not one.jobs for one in ended.values()) else {}
        for uid, one in ended.items():
            end = _end(context.state_dir, uid, one, codes, completed)
            if end is not None and end["state"] != LOST:
                end = {**end, **folders.last_words(context.state_dir, uid)}
                if not context.check:
                    folders.note(context.state_dir, uid, ended=end)
            found[uid] = one._replace(ended=end)
        return found

    def plan(self, context: Context, entries: Entries, observed: Mapping[str, ObservedJob], scope: Scope) -> Plan:
        """Return the steps."""
        plan, values = Plan(), values_of(context.blob)
        known = {uid: found.known() for uid, found in observed.items()} if _any_waits(entries) else {}
        for uid, found in sorted(observed.items()):
            for job in found.doubles():
                plan.steps.append(Step("cancel", uid, f"{job.id}, submitted twice", [job.id]))
            if uid not in entries:
                _plan_absent(plan, uid, found)
            elif found.chosen() is None and found.ended is None:
                _plan_submission(plan, uid, with_defaults(entries[uid], SCHEMA), values.get(uid), known)
        return plan

    def apply(self, context: Context, step: Step) -> None:
        """Carry out one step."""
        if step.action == "cancel":
            context.checkpoint("cancel")
            self._slurm.cancel(step.data)
        elif step.action == "remove":
            context.checkpoint("remove")
            folders.remove(context.state_dir, step.key)
        else:
            self._submit(context, step.key, *step.data)

    def _submit(
        self, context: Context, uid: str, entry: Mapping[str, Any], values: Mapping[str, Any], dependency: str
    ) -> None:
        """Write the folder, submit, and note the id; killed in between, the next pass finds the job in the queue."""
        context.checkpoint("prepare")
        folders.note(context.state_dir, uid, owner=context.node)
        folder = folders.prepare(context.state_dir, uid, entry, values, comment(context.node, uid, entry["name"]))
        context.checkpoint("submit")
        number = self._slurm.submit(options(uid, entry, context.node, dependency), folder)
        context.checkpoint("note")
        folders.note(context.state_dir, uid, id=number)

    def status(
        self, context: Context, entries: Entries, observed: Mapping[str, ObservedJob], touched: frozenset[str]
    ) -> dict[str, Any]:
        """Return each declared job's name, id, state and, where it ended, how; null before it is submitted."""
        return {
            uid: _status_of(context.state_dir, uid, entry, observed.get(uid, ObservedJob()))
            for uid, entry in entries.items()
        }


def is_plain(text: str) -> bool:
    """Return whether ``text`` can be written to a file and be given to a program."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def values_of(blob: str | None) -> dict[str, Any]:
    """Return environment and secret files by uid, each of them to be looked at by ``fault_in``.

    Raises:
        KeyFault: InvalidBlob.
    """
    try:
        found: Any = json.loads(base64.b64decode(blob, validate=True)) if blob else {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        why = "blob is not base64 of JSON {uid: {environment: {name: text}, files: {path: base64}}}"
        raise KeyFault("InvalidBlob", why)
    return found


def fault_in(values: Any) -> KeyFault | None:
    """Return why the values of one uid cannot be used: a fault of its own, which stops no other."""
    try:
        files = values.get("files") or {}
        for data in files.values():
            base64.b64decode(data, validate=True)
        texts = (values.get("environment") or {}).values()
        good = all(isinstance(text, str) and is_plain(text) for text in [*texts, *files.values()])
    except (ValueError, AttributeError, TypeError):
        good = False
    if good:
        return None
    why = "its values in blob must be {environment: {name: text}, files: {path: base64}}, in UTF-8 and without NUL"
    return KeyFault("InvalidEntry", why)


def _recorded(state_dir: str, uid: str, jobs: tuple[Job, ...], folder: bool) -> ObservedJob:  # noqa: FBT001
    noted = (folders.record(state_dir, uid) if folder else None) or {}
    return ObservedJob(jobs, folder, noted.get("id"), noted.get("ended"))


def _end(
    state_dir: str, uid: str, found: ObservedJob, codes: Mapping[int, str], completed: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Return how a job ended that is not in the queue any more, or there as ended; None where it never began."""
    chosen = found.chosen()
    if chosen is not None:
        return {**_state(chosen), "code": codes.get(chosen.id, "")}
    if uid in completed:
        end = completed[uid]
        return {"id": end["id"], "state": end["state"], "node": end["node"], "code": end["code"]}
    code = folders.exit_code(state_dir, uid)
    if code is not None:
        return {"id": found.id, "state": "FAILED" if code else "COMPLETED", "code": f"{code}:0"}
    if found.id is not None or folders.has_started(state_dir, uid):
        return {"id": found.id, "state": LOST, "code": ""}
    return None


def _state(job: Job) -> dict[str, Any]:
    fields = job._asdict()
    return {name: value for name, value in fields.items() if value not in {"", "None"}}


def _plan_absent(plan: Plan, uid: str, found: ObservedJob) -> None:
    plan.differs(uid, found.facets(), None)
    live = [job.id for job in found.jobs if job.is_live and job not in found.doubles()]
    if live:
        plan.steps.append(Step("cancel", uid, ", ".join(map(str, live)), live))
        plan.due.append(Due(uid, AGAIN_S, "IsCancelled"))
    elif found.folder:
        plan.steps.append(Step("remove", uid, "its folder"))


def _any_waits(entries: Entries) -> bool:
    return any(entry.get("after") for entry in entries.values())


def _plan_submission(
    plan: Plan,
    uid: str,
    entry: Mapping[str, Any],
    values: Mapping[str, Any] | None,
    known: Mapping[str, depending.Known],
) -> None:
    try:
        dependency = depending.option(entry["after"], known)
    except KeyFault as fault:
        plan.errors[uid] = fault
        return
    if entry["values"] is not None and values is None:
        plan.errors[uid] = KeyFault("ValuesMissing", "the job's environment is not in blob; send it again")
        return
    if unusable := fault_in(values or {}):
        plan.errors[uid] = unusable
        return
    wrong = next((name for name in (values or {}).get("environment") or {} if not _VARIABLE.match(name)), None)
    wrong_path = next((path for path in (values or {}).get("files") or {} if not _is_relative(path)), None)
    if wrong is not None or wrong_path is not None:
        plan.errors[uid] = KeyFault(
            "InvalidEntry", f"{wrong or wrong_path!r:.80} is neither a variable nor a relative path"
        )
        return
    step = Step("submit", uid, f"{entry['name']} to {entry['partition']}", (entry, values or {}, dependency))
    plan.steps.append(step)
    plan.differs(uid, None, {"job": entry["name"], "partition": entry["partition"]})


def _is_relative(path: str) -> bool:
    try:
        return bool(relative(path))
    except KeyFault:
        return False


def _status_of(state_dir: str, uid: str, entry: Mapping[str, Any], found: ObservedJob) -> dict[str, Any] | None:
    chosen = found.chosen()
    if chosen is not None and chosen.is_live:
        return {"name": entry["name"], **_state(chosen)}
    if found.ended is not None:
        return {"name": entry["name"], **found.ended}
    noted = folders.record(state_dir, uid) if os.path.isdir(folders.job_dir(state_dir, uid)) else None
    if noted and noted.get("id"):  # submitted by this pass
        return {"name": entry["name"], "id": noted["id"], "state": "PENDING"}
    return None


def digest_of(status: Mapping[str, Any]) -> str:
    """Return what tells two statuses apart."""
    return hashlib.sha256(canonical(status)).hexdigest()
