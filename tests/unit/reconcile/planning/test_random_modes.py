"""Random labels of mutual TLS, and Pods and Namespaces that go: a plan says of sidecars what the pilot then knows.

Over an API in memory.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import NAMESPACE, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import DISABLED, MODES, MTLS, STRICT, can_speak
from minik8s_modules.api.pods.sidecars import with_sidecar
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.mesh.identities.peers import PeerCopies
from minik8s_modules.reconcile.planning.questions import Operation, Question
from minik8s_modules.reconcile.planning.simulated_modes import mode_notes
from minik8s_modules.reconcile.planning.simulation import is_gone
from minik8s_modules.runtime.controller import Context
from tests.support.load.storms import Manager
from tests.support.waiting import until

SPACES, PODS, PATIENCE_S = ("far", "shop"), ("a", "b", "c"), 60.0
Known = dict[tuple[str, str], tuple[str, bool]]


class Cluster:
    """Namespaces and Pods with random labels; some Pods can speak TLS."""

    def __init__(self, seed: int) -> None:
        self._roll = random.Random(seed)
        self.api = FakeApi()
        for space in SPACES:
            self.api.create(NAMESPACE, self._space(space))
            for name in PODS:
                self.api.create(POD, self._pod(space, name))

    def _space(self, name: str) -> JsonObject:
        return {"metadata": {"name": name, "labels": self._label(MODES)}}

    def _pod(self, space: str, name: str) -> JsonObject:
        app: JsonObject = {"containers": [{"name": "app", "image": "i"}]}
        number = SPACES.index(space) * len(PODS) + PODS.index(name)
        meta = {"name": name, "namespace": space, "labels": self._label((*MODES, DISABLED))}
        status = {"phase": "Running", "podIPs": [{"ip": f"10.0.0.{number}"}]}
        return {"metadata": meta, "spec": with_sidecar(app, mutual=self._roll.random() < 0.7), "status": status}

    def _label(self, values: tuple[str, ...]) -> dict[str, str]:
        return {MTLS: value} if (value := self._roll.choice(("", *values))) else {}

    def changes(self) -> Iterator[Operation]:
        """Yield other labels of some of them, and that some go."""
        for kind, values in ((NAMESPACE, MODES), (POD, (*MODES, DISABLED))):
            for each in self.api.list(kind).items:
                whole = {**each, "kind": kind.kind, "apiVersion": "v1"}
                if (rolled := self._roll.random()) < 0.5:
                    yield Operation(
                        "update", {**whole, "metadata": {**whole["metadata"], "labels": self._label(values)}}
                    )
                elif rolled < 0.7:
                    yield Operation(*self._roll.choice((("delete", whole), ("update", _ending(whole)))))

    def do(self, operation: Operation) -> None:
        """Do it; with a Namespace its Pods go, as the controllers have them."""
        obj = operation.object
        kind, key = (NAMESPACE if obj["kind"] == NAMESPACE.kind else POD), objects.key(obj)
        if not is_gone(operation):
            if kind == NAMESPACE or key.namespace in self.spaces():
                self.api.update(kind, obj)
            return
        for pod in self.api.list(POD, key.name).items if kind == NAMESPACE else ():
            self.api.delete(POD, objects.name(pod), key.name)
        if kind == NAMESPACE or key.namespace in self.spaces():
            self.api.delete(kind, key.name, key.namespace)

    def spaces(self) -> dict[str, dict[str, str]]:
        """Return the labels of Namespaces."""
        return {objects.name(each): objects.labels(each) for each in self.api.list(NAMESPACE).items}

    def known(self, copies: PeerCopies) -> Known | None:
        """Return what the pilot knows of each Pod that can: mode, and whether it is called by TLS; None: not yet."""
        peers = copies.get()
        if peers is None or peers.namespaces != {
            name: labels[MTLS] for name, labels in self.spaces().items() if MTLS in labels
        }:
            return None
        pods = [pod for pod in self.api.list(POD).items if can_speak(objects.spec(pod))]
        for pod in pods:
            space = peers.pods.get(objects.namespace(pod), {})
            if objects.namespace(pod) in peers.namespaces and objects.name(pod) not in space:
                return None
        return {
            (key := objects.key(pod)): (
                peers.mode(*key, objects.uid(pod)),
                (key.namespace, pod["status"]["podIPs"][0]["ip"]) in peers.addresses,
            )
            for pod in pods
        }


def _ending(obj: JsonObject) -> JsonObject:
    """Return an object as it stands while it goes: a Namespace while its Pods do, a Pod in its grace period."""
    return {**obj, "metadata": {**objects.metadata(obj), "deletionTimestamp": "2026-01-01T00:00:00Z"}}


@pytest.mark.parametrize("seed", range(24))
def test_what_a_plan_says_of_mutual_tls_is_what_the_pilot_then_knows(seed: int):
    cluster, made = Cluster(seed), list[PeerCopies]()

    def pilot(context: Context) -> PeerCopies:
        made.append(PeerCopies(context))
        return made[0]

    manager = Manager(cluster.api, pilot)
    manager.start()
    try:
        before = until(lambda: cluster.known(made[0]), PATIENCE_S)
        question, now = Question(tuple(cluster.changes()), frozenset()), cluster.spaces()
        pods, asked = cluster.api.list(POD).items, [each.object for each in question.operations]
        labelled = {objects.name(each): objects.labels(each) for each in asked if each["kind"] == NAMESPACE.kind}
        notes = [each.text for each in mode_notes(question, now, {**now, **labelled}, pods)]
        for operation in question.operations:
            cluster.do(operation)
        wanted = {key: found for note in notes for key, found in of_note(note).items()}

        def happened() -> bool:
            known = cluster.known(made[0])
            changed = {
                key: (mode if mode != before[key][0] else None, called if called != before[key][1] else None)
                for key, (mode, called) in (known or {}).items()
                if before[key] != (mode, called)
            }
            return known is not None and changed == wanted

        until(happened, PATIENCE_S)
    finally:
        manager.stop()


def of_note(note: str) -> dict[tuple[str, str], tuple[str | None, bool | None]]:
    """Return what a note says of each Pod: its new mode, and whether it is called by TLS, None for no change."""
    found = re.fullmatch(r"\d+ sidecars? of namespace (\S+) would (.*): ([^:]*)", note)
    assert found is not None, note
    space, words, names = found.groups()
    mode = "permissive" if "of anybody" in words else STRICT if "mutual TLS alone" in words else None
    called = False if "called without TLS" in words else True if "called with TLS" in words else None
    return {objects.Key(space, name): (mode, called) for name in names.split(", ")}
