"""A scheduler that dies within a binding: the next one binds each pod once, to one node, with one volume.

One that dies while it makes room is followed by one that sends nobody away for nothing.

Death is a client that answers nothing more, from the chosen call on, before or after that call has reached the server:
what a killed process leaves behind in the store. Then real processes kill themselves at the same calls; in
``test_scheduler_real.py`` one is killed at any time.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    EVENT,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    PRIORITY_CLASS,
    STORAGE_CLASS,
    Kind,
)
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.leader import Token
from minik8s_modules.scheduler.running.scheduler import Scheduler
from tests.integration.control.conftest import Cluster, Daemon, pod
from tests.support.waiting import until

PATIENCE_S = 60.0
WRITES = [("update", PERSISTENT_VOLUME), ("update", PERSISTENT_VOLUME_CLAIM), ("create", POD)]
Start = Callable[..., "_Mortal"]


class _Mortal:
    """A client of the scheduler's identity that dies at a call."""

    def __init__(self, cluster: Cluster, at: tuple[str, Kind] | None = None, *, after: bool = False) -> None:
        self._client, self._at, self._after = cluster.client("scheduler"), at, after
        self.dead = threading.Event()

    def __getattr__(self, verb: str) -> Any:
        call = getattr(self._client, verb)

        def made(kind: Kind, *args: Any, **more: Any) -> Any:
            if (verb, kind) == self._at and not self._after:
                self.dead.set()
            if self.dead.is_set():
                raise TemporaryError("this scheduler is dead")
            answer = call(kind, *args, **more)
            if (verb, kind) == self._at:
                self.dead.set()
                raise TemporaryError("this scheduler is dead")
            return answer

        return made


@pytest.fixture
def start(cluster: Cluster) -> Iterator[Start]:
    ends: list[Callable[[], None]] = []

    def begin(at: tuple[str, Kind] | None = None, *, after: bool = False) -> _Mortal:
        client = _Mortal(cluster, at, after=after)
        api: Any = client
        recorder, lost = EventRecorder(api, "default-scheduler"), threading.Event()
        scheduler = Scheduler(api, recorder)
        recorder.start()
        scheduler.start()
        leading = threading.Thread(target=scheduler.lead, args=(Token(0, 1), lost))
        leading.start()

        def end() -> None:
            lost.set()
            leading.join(PATIENCE_S)
            scheduler.stop()
            recorder.stop()
            assert not leading.is_alive()

        ends.append(end)
        return client

    yield begin
    for end in ends:
        end()


def with_claims(space: str, node: str) -> dict[str, Any]:
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in ("there", "made")]
    return pod("p", space, nodeSelector={"test": node}, volumes=volumes)


def storage(cluster: Cluster, space: str) -> None:
    """Make a claim for a volume that is there, and one for a volume that has to be made."""
    late = {"volumeBindingMode": "WaitForFirstConsumer"}
    for name, provisioner in (("there", "kubernetes.io/no-provisioner"), ("made", "example.com/disks")):
        cluster.admin.create(
            STORAGE_CLASS, {"metadata": {"name": f"{space}-{name}"}, "provisioner": provisioner, **late}
        )
        spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": f"{space}-{name}"}
        spec["resources"] = {"requests": {"storage": "1Gi"}}  # type: ignore[assignment]
        meta = {"name": name, "namespace": space}
        cluster.admin.create(PERSISTENT_VOLUME_CLAIM, {"metadata": meta, "spec": spec})
    for number in (1, 2):
        volume(cluster, space, f"{space}-{number}", "there")
    phases = ("status", "phase")
    until(
        lambda: all(objects.dig(cluster.admin.get(PERSISTENT_VOLUME, f"{space}-{one}"), *phases) == "Available"
                    for one in (1, 2)), PATIENCE_S,
    )  # fmt: skip


def volume(cluster: Cluster, space: str, name: str, of: str, claim: str = "") -> None:
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/d"}}
    spec |= {"storageClassName": f"{space}-{of}"}
    if claim:
        spec |= {"claimRef": {"namespace": space, "name": claim}}
    cluster.admin.create(PERSISTENT_VOLUME, {"metadata": {"name": name}, "spec": spec})


def selected(cluster: Cluster, space: str) -> str:
    claim = cluster.admin.get(PERSISTENT_VOLUME_CLAIM, "made", space)
    return objects.annotations(claim).get("volume.kubernetes.io/selected-node", "")


DYING = """
import os, signal, sys
from minik8s_modules.client.api import ApiClient
from minik8s_modules.scheduler.main import main

verb, plural, when, config = sys.argv[1:]
call = getattr(ApiClient, verb)

def made(self, kind, *args, **more):
    if kind.plural == plural and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    answer = call(self, kind, *args, **more)
    if kind.plural == plural:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer

setattr(ApiClient, verb, made)
sys.exit(main(["--config", config]))
"""


AT = pytest.mark.parametrize("at", WRITES, ids=lambda at: f"{at[0]}-{at[1].singular_name}")
WHEN = pytest.mark.parametrize("when", ["before", "after"])


@WHEN
@AT
def test_what_a_dead_scheduler_began_is_ended_once(
    cluster: Cluster, daemon: Daemon, start: Start, at: tuple[str, Kind], when: str
):
    space, node = cluster.namespace(), cluster.node()
    storage(cluster, space)
    first = start(at, after=when == "after")
    made(cluster, space, node, at)
    assert first.dead.wait(PATIENCE_S)
    start()
    ended(cluster, space, node, at)


@WHEN
@AT
def test_what_a_killed_process_began_is_ended_once(cluster: Cluster, daemon: Daemon, at: tuple[str, Kind], when: str):
    space, node = cluster.namespace(), cluster.node()
    storage(cluster, space)
    survivor = cluster.daemon("scheduler")
    argv = [sys.executable, "-c", DYING, at[0], at[1].plural, when, str(survivor.config)]
    with survivor.log.open("ab") as log:
        first = subprocess.Popen(argv, stderr=log)
    try:
        made(cluster, space, node, at)
        assert first.wait(PATIENCE_S) == -signal.SIGKILL
        survivor.start()
        cluster.admin.create(POD, pod("after", space, nodeSelector={"test": node}))
        until(lambda: cluster.admin.get(POD, "after", space)["spec"].get("nodeName") == node, PATIENCE_S)
        ended(cluster, space, node, at)
    finally:
        first.kill()
        if survivor.process is not None:
            survivor.kill9()


@WHEN
@pytest.mark.parametrize("verb", ["patch", "delete"])
def test_room_that_a_dead_scheduler_began_to_make_is_made_once(cluster: Cluster, start: Start, verb: str, when: str):
    space, node = cluster.namespace(), cluster.node()
    cluster.admin.create(PRIORITY_CLASS, {"metadata": {"name": space}, "value": 1000})
    for name in ("low", "other"):
        cluster.admin.create(POD, asking(name, space, terminationGracePeriodSeconds=0))
        target = {"metadata": {"name": name, "namespace": space}, "target": {"kind": "Node", "name": node}}
        cluster.admin.create(POD, target, subresource="binding")
    first = start((verb, POD), after=when == "after")
    cluster.admin.create(POD, asking("urgent", space, nodeSelector={"test": node}, priorityClassName=space))
    assert first.dead.wait(PATIENCE_S)
    start()
    until(lambda: cluster.admin.get(POD, "urgent", space)["spec"].get("nodeName") == node, PATIENCE_S)
    assert len(cluster.admin.list(POD, space).items) == 2, "one of the two made room"


def asking(name: str, space: str, **spec: Any) -> dict[str, Any]:
    """Return a pod that asks for half of a node."""
    half = {"name": "app", "image": "minik8s/busybox:1", "resources": {"requests": {"cpu": "2"}}}
    return pod(name, space, containers=[half], **spec)


def made(cluster: Cluster, space: str, node: str, at: tuple[str, Kind]) -> None:
    """Make a pod with claims for a node, and bind them where death is to come at its binding."""
    cluster.admin.create(POD, with_claims(space, node))
    if at[1] == POD:
        until(lambda: selected(cluster, space), PATIENCE_S)
        volume(cluster, space, f"{space}-made", "made", "made")


def ended(cluster: Cluster, space: str, node: str, at: tuple[str, Kind]) -> None:
    """Expect the pod on its node, with one volume a claim."""
    if at[1] != POD:
        until(lambda: selected(cluster, space), PATIENCE_S)
        volume(cluster, space, f"{space}-made", "made", "made")
    until(lambda: cluster.admin.get(POD, "p", space)["spec"].get("nodeName") == node, PATIENCE_S)
    held = [
        objects.name(one) for one in cluster.admin.list(PERSISTENT_VOLUME).items
        if (objects.spec(one).get("claimRef") or {}).get("namespace") == space
    ]  # fmt: skip
    assert len(held) == 2
    events = [one for one in cluster.admin.list(EVENT, space).items if one["reason"] == "Scheduled"]
    assert len([one for one in events if one["message"].startswith(f"Successfully assigned {space}/p ")]) <= 1
