"""What was seen on a node: container observations, by pod, never running backwards.

Observations come from three sides (the gateway's lists, its events, the results of modules) and overtake
each other. Of one container the observation that is further in its life wins: a later start, else a later
state; a destroyed container stays destroyed. A list may be older than the last result, so it removes only
what was not learned within the last seconds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from minik8s_modules.base.clock import parse_rfc3339

_NEVER = datetime(1, 1, 1, tzinfo=UTC)
_PROGRESS = {"created": 0, "running": 1, "paused": 1, "restarting": 1, "removing": 3, "exited": 2, "dead": 2}
_ALIVE = frozenset({"running", "paused", "restarting"})
_TOMBSTONES = 512
_MESSAGE_LIMIT = 4096


class ObservedContainer(NamedTuple):
    """One Docker container of ours; times are None where Docker has none."""

    id: str
    type: str
    pod_uid: str
    pod_name: str
    pod_namespace: str
    container: str
    attempt: int
    state: str
    exit_code: int
    oom_killed: bool
    error: str
    created_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    image: str
    image_id: str
    ip: str = ""
    message: str | None = None
    """Its termination message, None where nobody has read it."""

    @property
    def alive(self) -> bool:
        """Whether its processes exist."""
        return self.state in _ALIVE

    @property
    def over(self) -> bool:
        """Whether it ran, or failed to start, and ended."""
        return self.state in {"exited", "dead"} or (self.state == "created" and bool(self.error))

    @property
    def progress(self) -> tuple[datetime, int]:
        """How far in its life this observation is; grows only."""
        return (self.started_at or _NEVER, _PROGRESS.get(self.state, 0))

    @property
    def ran_s(self) -> float:
        """Seconds from start to end; 0 when it never started or still runs."""
        if self.started_at is None or self.finished_at is None:
            return 0.0
        return (self.finished_at - self.started_at).total_seconds()


class ObservedPod(NamedTuple):
    """The containers of one pod, each list by growing attempt."""

    sandboxes: tuple[ObservedContainer, ...] = ()
    containers: Mapping[str, tuple[ObservedContainer, ...]] = {}

    @property
    def sandbox(self) -> ObservedContainer | None:
        """The newest sandbox."""
        return self.sandboxes[-1] if self.sandboxes else None

    def last(self, container: str) -> ObservedContainer | None:
        """Return the newest attempt of ``container``."""
        attempts = self.containers.get(container)
        return attempts[-1] if attempts else None

    def attempts(self) -> Iterable[ObservedContainer]:
        """Yield every attempt of every container, sandboxes excluded."""
        for attempts in self.containers.values():
            yield from attempts

    @property
    def empty(self) -> bool:
        """Whether nothing of the pod is on the node."""
        return not self.sandboxes and not self.containers


NOTHING = ObservedPod()


def _moment(text: object) -> datetime | None:
    if not isinstance(text, str) or not text:
        return None
    moment = parse_rfc3339(text)
    return moment if moment.year > 1 else None


def observation(raw: Mapping[str, Any], now: datetime) -> ObservedContainer:
    """Return the checked form of an observation as docs/reference/node-document.md describes it.

    An end in the future of ``now`` (the node's clock is ahead) counts as now, so that no back-off waits for
    the skew. Docker has no end of a container that could not be started: it ended when it was created.

    Raises:
        ValueError: a part is missing or of another type; what nodes send is data, not trusted.
    """
    try:
        never_started = raw["state"] == "created" and raw["error"]
        finished_at = _moment(raw["created_at"] if never_started else raw["finished_at"])
        return ObservedContainer(
            id=str(raw["id"]),
            type=str(raw["type"]),
            pod_uid=str(raw["pod_uid"]),
            pod_name=str(raw["pod_name"]),
            pod_namespace=str(raw["pod_namespace"]),
            container=str(raw["container"]),
            attempt=int(raw["attempt"]),
            state=str(raw["state"]),
            exit_code=int(raw["exit_code"] or 0),
            oom_killed=bool(raw["oom_killed"]),
            error=str(raw["error"] or ""),
            created_at=_moment(raw["created_at"]),
            started_at=_moment(raw["started_at"]),
            finished_at=min(finished_at, now) if finished_at else None,
            image=str(raw["image"]),
            image_id=str(raw["image_id"]),
            ip=str(raw["ip"] or ""),
            message=str(raw["message"])[:_MESSAGE_LIMIT] if raw.get("message") is not None else None,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"observation cannot be read: {error!r}") from error


class NodeObservations:
    """All containers of one node as far as known. Not thread-safe: one caller at a time."""

    def __init__(self) -> None:
        self._by_id: dict[str, ObservedContainer] = {}
        self._by_pod: dict[str, set[str]] = {}
        self._learned_s: dict[str, float] = {}
        self._destroyed: OrderedDict[str, None] = OrderedDict()

    def learn(self, seen: ObservedContainer, at_s: float) -> bool:
        """Take over an observation made at monotonic second ``at_s``; return whether it told anything new."""
        known = self._by_id.get(seen.id)
        if seen.id in self._destroyed or (known and seen.progress < known.progress):
            return False
        if known and known.finished_at and known.progress == seen.progress:
            # keeps the first end seen, which a skewed clock must not move
            seen = seen._replace(finished_at=known.finished_at)
        if known and not seen.ip and known.progress == seen.progress:
            seen = seen._replace(ip=known.ip)  # Docker does not know what a plugin gave
        if known and seen.message is None and known.progress == seen.progress:
            seen = seen._replace(message=known.message)
        if known and known.oom_killed and known.progress == seen.progress:
            seen = seen._replace(oom_killed=True)  # an event told, which Docker has forgotten
        self._learned_s[seen.id] = at_s
        if known == seen:
            return False
        self._by_id[seen.id] = seen
        self._by_pod.setdefault(seen.pod_uid, set()).add(seen.id)
        return True

    def forget(self, container_id: str) -> str | None:
        """Drop a container that was destroyed, for good; return the UID of its pod if it was known."""
        self._destroyed[container_id] = None
        while len(self._destroyed) > _TOMBSTONES:
            self._destroyed.popitem(last=False)
        return self._drop(container_id)

    def replace(self, seen: Iterable[ObservedContainer], at_s: float, fresh_s: float) -> set[str]:
        """Take over a list of all containers; return the UIDs of pods that changed.

        A container that is missing in the list but was learned in the last ``fresh_s`` seconds is kept.
        """
        listed = list(seen)
        changed = {one.pod_uid for one in listed if self.learn(one, at_s)}
        present = {one.id for one in listed}
        gone = [one for one in self._by_id if one not in present and at_s - self._learned_s.get(one, 0.0) >= fresh_s]
        changed.update(uid for one in gone if (uid := self._drop(one)))
        return changed

    def forget_key(self, pod_uid: str, sandbox: bool, container: str, attempt: int | None) -> bool:  # noqa: FBT001
        """Drop what a module says does not exist: sandboxes or containers of a key, one attempt or (None) all."""
        doomed = [
            one for one in self._by_pod.get(pod_uid, ()) if _is(self._by_id[one], container, attempt, sandbox=sandbox)
        ]
        for one in doomed:
            self.forget(one)
        return bool(doomed)

    def pod(self, uid: str) -> ObservedPod:
        """Return what is known of the pod."""
        ids = self._by_pod.get(uid)
        return group(self._by_id[one] for one in ids) if ids else NOTHING

    def containers(self) -> list[ObservedContainer]:
        """Return all containers known."""
        return list(self._by_id.values())

    def ids(self) -> set[str]:
        """Return the ids of all containers known."""
        return set(self._by_id)

    def uids(self) -> set[str]:
        """Return the UIDs of the pods that have containers on the node."""
        return set(self._by_pod)

    def _drop(self, container_id: str) -> str | None:
        known = self._by_id.pop(container_id, None)
        self._learned_s.pop(container_id, None)
        if known is None:
            return None
        ids = self._by_pod[known.pod_uid]
        ids.discard(container_id)
        if not ids:
            del self._by_pod[known.pod_uid]
        return known.pod_uid


def _is(known: ObservedContainer, container: str, attempt: int | None, *, sandbox: bool) -> bool:
    same = (known.type == "sandbox") if sandbox else (known.type != "sandbox" and known.container == container)
    return same and attempt in (None, known.attempt)


def group(seen: Iterable[ObservedContainer]) -> ObservedPod:
    """Return one pod's observations in order of attempts."""
    sandboxes: list[ObservedContainer] = []
    containers: dict[str, list[ObservedContainer]] = {}
    for one in sorted(seen, key=lambda one: (one.attempt, one.created_at or _NEVER)):
        if one.type == "sandbox":
            sandboxes.append(one)
        else:
            containers.setdefault(one.container, []).append(one)
    return ObservedPod(tuple(sandboxes), {name: tuple(attempts) for name, attempts in containers.items()})
