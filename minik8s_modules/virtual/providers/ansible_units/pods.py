"""Pods that are units, as the provider asks for them. What there is stands in records and on the hosts."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.pods.units import (
    CHECK,
    HOSTS,
    PLAYBOOK,
    ROLE,
    USER,
    DeclaredUnit,
    NoUnit,
    declared_unit,
    without_variables,
)
from minik8s_modules.base.clock import Clock, SystemClock, rfc3339
from minik8s_modules.virtual.errors import InvalidInput, NotFound, ProviderError, Unsupported
from minik8s_modules.virtual.provider import ContainerLogOptions, InitConfig
from minik8s_modules.virtual.providers.ansible_runs.settings import Settings
from minik8s_modules.virtual.providers.ansible_units.figures import figures_of
from minik8s_modules.virtual.providers.ansible_units.followers import Entries, Environments, Follower
from minik8s_modules.virtual.providers.ansible_units.machines import AnsibleMachines, Machines
from minik8s_modules.virtual.providers.ansible_units.records import Record, Records
from minik8s_modules.virtual.providers.ansible_units.statuses import pod_status
from minik8s_modules.virtual.providers.reaching import limited

FIRST_LOOK_S = 30.0
CLOSE_S = 10.0
_LEAVING = {"stopping": False, "grace_s": 0}
"""What a deletion changes of a unit."""
Making = Callable[[Settings, str], Machines]


class UnitPods:
    """See the top of this file; thread-safe."""

    def __init__(
        self, config: InitConfig, settings: Settings, machines: Making = AnsibleMachines, clock: Clock | None = None
    ) -> None:
        self._node, self._settings, self._clock = config.node_name, settings, clock or SystemClock()
        self._lock = threading.RLock()
        self._records = Records(Path(config.state_dir) / "units")
        self._machines = machines(settings, config.state_dir)
        self._figures = figures_of(config.metrics)
        self._figures.add(self._node, self._counts, self._silent)
        hosts = sorted({*settings.hosts, *(record.host for record in self._records.all().values())})
        self._followers = {host: self._follower(host, settings.period_s) for host in hosts}
        for follower in self._followers.values():
            follower.start()

    def _follower(self, host: str, period_s: float) -> Follower:
        def on_pass(well: bool) -> None:  # noqa: FBT001
            self._figures.passed(self._node, host, well=well)
            self._let_go_of_ended(host)

        return Follower(self._node, host, self._machines, lambda: self._wanted(host), on_pass, self._clock, period_s)

    # ------------------------------------------------------------------ Pods

    def create(self, pod: JsonObject) -> None:
        """Have a unit started. Raises InvalidInput."""
        asked = self._asked(pod)
        with self._lock:
            if self._records.get(objects.uid(pod)) is not None:
                return
            host = asked.host or self._emptiest()
            if host not in self._settings.hosts:
                raise InvalidInput(f"annotation hosts: {host!r:.80} is no host of the group {self._settings.group}")
            self._records.keep(Record(copy.deepcopy(pod), host, asked.entry, asked.environment))
        self._followers[host].wake()

    def update(self, pod: JsonObject) -> None:
        """Take over labels and annotations; the unit goes on as it is.

        Raises:
            InvalidInput: it would be another one.
        """
        with self._lock:
            record = self._found(objects.key(pod))
            if _wish(pod) != _wish(record.pod) and self._is_another(pod, record):
                raise InvalidInput("a unit is not changed: delete the Pod and create it again")
            self._records.keep(record._replace(pod=copy.deepcopy(pod)))

    def _is_another(self, pod: JsonObject, record: Record) -> bool:
        asked, before = (self._asked(without_variables(one)) for one in (pod, record.pod))
        return {**before.entry, **_LEAVING} != {**asked.entry, **_LEAVING} or asked.host not in {"", record.host}

    def delete(self, pod: JsonObject) -> None:
        """Have the unit stopped. Raises NotFound."""
        with self._lock:
            record = self._found(objects.key(pod))
            grace_s = objects.metadata(pod).get("deletionGracePeriodSeconds")
            changes = {"stopping": True} | ({"grace_s": int(grace_s)} if grace_s is not None else {})
            self._records.keep(record._replace(entry={**record.entry, **changes}))
        self._followers[record.host].wake()

    def has(self, key: Key) -> bool:
        """Return whether a Pod is known here."""
        with self._lock:
            return any(objects.key(record.pod) == key for record in self._records.all().values())

    def pods(self) -> list[JsonObject]:
        """Return all Pods, with the status that is known of each."""
        with self._lock:
            return [self._with_status(record) for record in self._records.all().values()]

    def get(self, key: Key) -> JsonObject:
        """Return one, with its present status.

        Raises:
            NotFound: there is none.
            ProviderError: its host was not asked yet since this process began, so its status is not known.
        """
        with self._lock:
            record = self._found(key)
        follower, uid = self._followers[record.host], objects.uid(record.pod)
        follower.looked.wait(FIRST_LOOK_S)
        with self._lock:
            record = self._records.get(uid) or record
            if not self._is_known(record):
                why = follower.told(uid).trouble or "it was not asked yet"
                raise ProviderError(f"host {record.host} tells nothing of this Pod: {why}")
            pod = self._with_status(record)
            self._keep_status(pod)
            return pod

    def _keep_status(self, pod: JsonObject) -> None:
        """Keep what is about to be told: after a restart, a host that is away tells nothing of it."""
        record = self._records.get(objects.uid(pod))
        if record is not None and objects.status(record.pod).get("phase") != objects.status(pod)["phase"]:
            with contextlib.suppress(OSError):  # a full disk: it is told all the same
                self._records.keep(record._replace(pod=copy.deepcopy(pod)))

    def _is_known(self, record: Record) -> bool:
        """Return whether a status can be told; until its host was asked, a Pod that runs would be Pending again."""
        follower = self._followers[record.host]
        told = follower.told(objects.uid(record.pod))
        is_new = objects.status(record.pod).get("phase") in {None, "Pending"}
        return is_new or told.state is not None or (follower.looked.is_set() and not told.trouble)

    def _with_status(self, record: Record) -> JsonObject:
        if not self._is_known(record):
            return copy.deepcopy(record.pod)
        told = self._followers[record.host].told(objects.uid(record.pod))
        status = pod_status(record.pod, record.host, told, rfc3339(self._clock.now()))
        return copy.deepcopy({**record.pod, "status": status})

    def logs(self, key: Key, container: str, options: ContainerLogOptions) -> Iterator[bytes]:
        """Return what a unit has printed. Raises NotFound, Unsupported."""
        with self._lock:
            record = self._found(key)
        if container not in {each["name"] for each in objects.containers(record.pod)}:
            raise NotFound(f"pod {key} has no container {container!r}")
        if options.previous:
            raise Unsupported("the journal has all runs of a unit together: leave out --previous")
        if options.timestamps:
            raise Unsupported("lines are told without their times: leave out --timestamps")
        uid = objects.uid(record.pod)
        follow = (lambda: self._is_live(uid)) if options.follow else None
        return limited(self._machines.journal(record.host, uid, options, follow), options.limit_bytes)

    def _is_live(self, uid: str) -> bool:
        with self._lock:
            record = self._records.get(uid)
        if record is None:
            return False
        state = self._followers[record.host].told(uid).state
        return state is None or state["state"] != "ended"

    def usage(self) -> Iterator[tuple[JsonObject, tuple[int, int, int]]]:
        """Yield each Pod that has not ended, and what it uses (``Follower.usage``)."""
        with self._lock:
            records = self._records.all()
        for uid, record in records.items():
            follower = self._followers[record.host]
            if self._is_live(uid):
                yield record.pod, follower.usage(uid)

    def close(self) -> None:
        """Let go of the hosts; units go on."""
        for follower in self._followers.values():
            follower.stop(0.0)
        self._machines.close()
        for follower in self._followers.values():
            follower.stop(CLOSE_S)
        self._figures.remove(self._node)

    # ------------------------------------------------------------------ what hosts shall have

    def _wanted(self, host: str) -> tuple[Entries, Environments]:
        with self._lock:
            records = {uid: record for uid, record in self._records.all().items() if record.host == host}
        return {uid: one.entry for uid, one in records.items()}, {uid: one.environment for uid, one in records.items()}

    def _let_go_of_ended(self, host: str) -> None:
        """Forget Pods that were deleted and whose units have ended, or never were: their host removes what there is."""
        follower = self._followers[host]
        with self._lock:
            for uid, record in self._records.all().items():
                told = follower.told(uid)
                ended = told.state["state"] == "ended" if told.state is not None else told.error is not None
                if record.host == host and record.ends and ended and not told.trouble:
                    self._records.drop(uid)
                    follower.wake()

    def _emptiest(self) -> str:
        """Return the host with the fewest units, one that answers before one that does not."""
        counted = Counter(record.host for record in self._records.all().values())
        return min(self._settings.hosts, key=lambda host: (self._followers[host].is_away(), counted[host], host))

    def _asked(self, pod: JsonObject) -> DeclaredUnit:
        try:
            return declared_unit(pod, self._settings.users)
        except NoUnit as error:
            raise InvalidInput(str(error)) from error

    def _found(self, key: Key) -> Record:
        found = [record for record in self._records.all().values() if objects.key(record.pod) == key]
        if not found:
            raise NotFound(f"no unit of the Pod {key} is known")
        return min(found, key=lambda record: record.ends)  # its predecessor of the same name may still be ending

    # ------------------------------------------------------------------ metrics

    def _counts(self) -> Mapping[tuple[str, str], int]:
        with self._lock:
            records = self._records.all()
        states = {uid: self._followers[record.host].told(uid).state for uid, record in records.items()}
        return Counter((record.host, _word(states[uid])) for uid, record in records.items())

    def _silent(self) -> Mapping[str, bool]:
        return {host: follower.is_away() for host, follower in self._followers.items()}


def _wish(pod: JsonObject) -> object:
    """Return what of a Pod may make another unit; one that says the same goes on, also if it is refused by now."""
    said = objects.annotations(pod)
    return objects.spec(without_variables(pod)), [said.get(name) for name in (ROLE, PLAYBOOK, HOSTS, CHECK, USER)]


def _word(state: Mapping[str, object] | None) -> str:
    return str(state["state"]) if state else "unstarted"
