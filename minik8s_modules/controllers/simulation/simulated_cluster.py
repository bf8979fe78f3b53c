"""A cluster imagined in dictionaries: takes the steps of deciders at once, so that one can see where they lead.

``plan`` unrolls a Deployment in it; the cases of tests stop in it after any step. Objects are values: a change puts a
new one in the old one's place. Names and uids follow from what is made and in which order, so that the same question
has the same answer. Nothing validates here, as steps are those of our own deciders; ``admit`` may refuse pods.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import POD, Kind
from minik8s_modules.api.merging import patch
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.controllers.core.acting import random_suffix
from minik8s_modules.controllers.core.steps import (
    Adopt,
    Again,
    Create,
    Delete,
    Patch,
    RecordEvent,
    Release,
    Step,
    WriteStatus,
    controller_reference,
    with_owner,
    without_owner,
)
from minik8s_modules.controllers.simulation.extended import known_kinds

_NAMESPACE = uuid.UUID("8d6d1c5e-2f0b-5d3c-9a77-6d696e696b38")
_ROUNDS = 10_000


class Happened(NamedTuple):
    """What a step did: ``create`` or ``delete``, of which object, as it was or is.

    Attributes:
        turn: what happens before anything more becomes ready has one number.
        named: whether the object's name is its real one; else it stands for one that is made with the object.
    """

    action: str
    kind: Kind
    obj: JsonObject
    turn: int = 1
    named: bool = True


def _share(numbers: Iterator[int]) -> float:
    return next(numbers) / 256


def placeholder_uid(namespace: str, name: str) -> str:
    """Return the uid that stands for that of an object which does not exist yet."""
    return str(uuid.uuid5(_NAMESPACE, f"{namespace}/{name}"))


class World:
    """Objects by kind and key.

    Args:
        everything: the objects to begin with; apiVersion and kind tell what each is.
        now: the time of what is made.
        graceful: whether deleted pods stay, marked, until ``remove``; else they go at once.

    Attributes:
        writes: how often something of a kind came, went or changed.
        removed: the uids of what has gone.
        removals: how often something has gone.
        admit: makes of a new pod of an owner what the API server would store, or raises what it would answer instead.
        refused: by the uid of an object, why its decider was refused pods last time, one each.
    """

    def __init__(self, everything: Iterable[JsonObject], now: datetime, *, graceful: bool = False) -> None:
        self.now = now
        self.turn = 1
        self.happened: list[Happened] = []
        self.events: list[RecordEvent] = []
        self.writes: Counter[Kind] = Counter()
        self.removed: set[str] = set()
        self.removals = 0
        self.admit: Callable[[World, JsonObject, JsonObject], JsonObject] = lambda _world, _owner, pod: pod
        self.refused: defaultdict[str, list[str]] = defaultdict(list)
        self._graceful = graceful
        self._made = 0
        self._unnamed: set[str] = set()
        self._objects: dict[Kind, dict[Key, JsonObject]] = {}
        # thousands of pods are asked for by their controllers again and again
        self._by_controller: dict[tuple[Kind, str], dict[Key, None]] = {}
        for obj in everything:
            kind = known_kinds().by_api_version(str(obj.get("apiVersion")), str(obj.get("kind")))
            if kind is not None:
                self.put(kind, obj)

    def all(self, kind: Kind) -> list[JsonObject]:
        """Return the objects of a kind, in the order in which they came."""
        return [*self._objects.get(kind, {}).values()]

    def get(self, kind: Kind, key: Key) -> JsonObject | None:
        """Return the object, or None."""
        return self._objects.get(kind, {}).get(key)

    def found(self, kind: Kind, owner: JsonObject) -> list[JsonObject]:
        """Return what ``owner`` controls, and what nobody does in its namespace."""
        space = objects.namespace(owner)
        several = dict.fromkeys((objects.uid(owner), ""))
        return [obj for uid in several for obj in self.controlled_by(kind, uid) if objects.namespace(obj) == space]

    def controlled(self, kind: Kind, owner: JsonObject) -> list[JsonObject]:
        """Return what ``owner`` controls."""
        return self.controlled_by(kind, objects.uid(owner))

    def controlled_by(self, kind: Kind, uid: str) -> list[JsonObject]:
        """Return what the owner of that uid controls; "" is nobody."""
        known = self._objects.get(kind, {})
        return [known[key] for key in self._by_controller.get((kind, uid), ())]

    def put(self, kind: Kind, obj: JsonObject) -> None:
        """Put an object in, or a new one in its place; a changed spec raises its generation."""
        key = objects.key(obj)
        old = self.get(kind, key)
        if old is not None and old.get("spec") != obj.get("spec"):
            obj = {**obj, "metadata": {**obj["metadata"], "generation": objects.generation(old) + 1}}
        if old is not None and _controller_uid(old) != _controller_uid(obj):
            self._by_controller[kind, _controller_uid(old)].pop(key, None)
        self._by_controller.setdefault((kind, _controller_uid(obj)), {})[key] = None
        self._objects.setdefault(kind, {})[key] = obj
        self.writes[kind] += 1

    def remove(self, kind: Kind, obj: JsonObject) -> None:
        """Take an object out."""
        key = objects.key(obj)
        known = self._objects.get(kind, {}).pop(key, None)
        if known is not None:
            self._by_controller[kind, _controller_uid(known)].pop(key, None)
        self.writes[kind] += 1
        self.removed.add(objects.uid(obj))
        self.removals += 1

    def take(self, kind: Kind, owner: JsonObject, step: Step) -> None:
        """Take one step that a decider returned for ``owner`` of ``kind``; one that is refused is noted."""
        match step:
            case Create():
                self._create(owner, step)
            case Delete(of, obj):
                self._delete(of, obj)
            case Adopt(of, obj):
                self._owners(of, obj, with_owner(self._latest(of, obj), controller_reference(kind, owner)))
            case Release(of, obj):
                self._owners(of, obj, without_owner(self._latest(of, obj), objects.uid(owner)))
            case Patch(of, obj, body):
                self._change(of, patch.merge_patch(self._latest(of, obj), body))
            case WriteStatus(of, obj, status):
                self.put(of, {**self._latest(of, obj), "status": status})
            case RecordEvent():
                self.events.append(step)
            case Again():
                pass

    def _latest(self, kind: Kind, obj: JsonObject) -> JsonObject:
        return self.get(kind, objects.key(obj)) or obj

    def _create(self, owner: JsonObject, step: Create) -> None:
        meta = step.obj["metadata"]
        name = meta.get("name") or self._name(step.kind, meta)
        made = {
            **step.obj,
            "metadata": {
                **meta,
                "name": name,
                "uid": placeholder_uid(meta.get("namespace", ""), name),
                "creationTimestamp": rfc3339(self.now),
                "generation": 1,
            },
            "status": {},
        }
        if step.kind == POD:
            try:
                made = self.admit(self, owner, made)
            except StatusError as error:
                self.refused[objects.uid(owner)].append(error.message)
                return
        self.put(step.kind, made)
        if not meta.get("name"):
            self._unnamed.add(objects.uid(made))
        self.happened.append(Happened("create", step.kind, made, self.turn, bool(meta.get("name"))))

    def _name(self, kind: Kind, meta: JsonObject) -> str:
        """Return a free name that follows from what has been made before it."""
        owner = next((each["uid"] for each in meta.get("ownerReferences") or []), "")
        while True:
            self._made += 1
            numbers = iter(hashlib.sha256(f"{owner}/{self._made}".encode()).digest())
            name = f"{meta['generateName']}{random_suffix(partial(_share, numbers))}"
            if self.get(kind, Key(meta.get("namespace", ""), name)) is None:
                return name

    def _change(self, kind: Kind, obj: JsonObject) -> None:
        """Put a changed object in its place; one that goes has gone with the last of its finalizers."""
        if kind != POD and objects.is_deleting(obj) and not objects.finalizers(obj):
            self.remove(kind, obj)
        else:
            self.put(kind, obj)

    def delete(self, kind: Kind, obj: JsonObject) -> None:
        """Delete an object as the API does: with finalizers it stays, marked."""
        if (self._graceful and kind == POD) or (kind != POD and objects.finalizers(obj)):
            marked = {"deletionTimestamp": rfc3339(self.now), **obj["metadata"]}
            self.put(kind, {**obj, "metadata": marked})
        else:
            self.remove(kind, obj)

    def _delete(self, kind: Kind, obj: JsonObject) -> None:
        latest = self._latest(kind, obj)
        self.delete(kind, latest)
        self.gone(kind, latest)

    def gone(self, kind: Kind, obj: JsonObject) -> None:
        """Note that an object is deleted."""
        self.happened.append(Happened("delete", kind, obj, self.turn, objects.uid(obj) not in self._unnamed))

    def _owners(self, kind: Kind, obj: JsonObject, references: list[JsonObject]) -> None:
        latest = self._latest(kind, obj)
        self.put(kind, {**latest, "metadata": {**latest["metadata"], "ownerReferences": references}})


def _controller_uid(obj: JsonObject) -> str:
    return str((objects.controller_of(obj) or {}).get("uid") or "")


Decider = Callable[[World, JsonObject], Iterable[Step]]


def run_deciders(world: World, deciders: Iterable[tuple[Kind, Decider]], live: Callable[[World], bool]) -> bool:
    """Take the steps of all deciders, again and again, until none has one; return whether that came to an end.

    ``live`` plays the nodes, and says whether it changed something. It is called when no decider has a step:
    controllers answer in milliseconds, containers start in seconds.
    """
    rules = list(deciders)
    for _ in range(_ROUNDS):
        moved = False
        for kind, decide in rules:
            for obj in world.all(kind):
                moved = _taken(world, kind, obj, decide(world, obj)) or moved
        if not moved and not live(world):
            return True
    return False


def _taken(world: World, kind: Kind, owner: JsonObject, steps: Iterable[Step]) -> bool:
    """Take steps as controllers do, which try nothing else behind one that is refused; return whether any changed much.

    What is only told, is told again as long as its cause is there, and so is what is refused.
    """
    world.refused.pop(objects.uid(owner), None)
    moved = False
    for step in steps:
        refused = len(world.refused.get(objects.uid(owner), ()))
        if isinstance(step, Again) or (refused and not isinstance(step, Create | WriteStatus)):
            continue
        world.take(kind, owner, step)
        refused = len(world.refused.get(objects.uid(owner), ())) - refused
        moved = moved or not (refused or isinstance(step, RecordEvent))
    return moved
