"""Steps against an API: slow start, expectations, lost answers, words; a controller that begins anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, Forbidden
from minik8s_modules.api.kinds import EVENT, NAMESPACE, POD, REPLICA_SET
from minik8s_modules.api.objects import Key
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.core.acting import Acting, Owner
from minik8s_modules.controllers.core.steps import Adopt, Again, Create, Delete, Patch, Release, Step
from minik8s_modules.controllers.workloads.replicasets import ReplicaSetController, new_pod
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.expectations import Expectations
from minik8s_modules.runtime.informers import Informers
from tests.support.waiting import until
from tests.support.workloads import NOW, SPACE, workload


class Shell:
    """An acting shell on an API in memory."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.api = FakeApi(self.clock)
        self.recorder = EventRecorder(self.api, "test", clock=self.clock)
        self.informers = Informers(self.api)
        self.context = Context(self.api, self.recorder, self.informers, self.clock)
        self.expectations = Expectations(self.informers, self.clock)
        self.again: list[float] = []
        self.acting = Acting(self.context, self.expectations, lambda _key, after_s: self.again.append(after_s))
        made = self.api.create(REPLICA_SET, workload(REPLICA_SET, {"replicas": 3}))
        self.owner = Owner(REPLICA_SET, made)

    def pods(self) -> list[str]:
        """Return the names of all pods."""
        return sorted(objects.name(pod) for pod in self.api.list(POD).items)

    def recorded_events(self) -> list[tuple[str, str]]:
        """Return reason and message of all Events."""
        while self.recorder.write_one():
            pass
        return [(event["reason"], event["message"]) for event in self.api.list(EVENT).items]


@pytest.fixture
def shell() -> Iterator[Shell]:
    shell = Shell()
    yield shell
    shell.informers.stop()
    shell.context.pool.shutdown()


def orphan(shell: Shell, name: str = "a") -> dict[str, Any]:
    return shell.api.create(POD, {"metadata": {"name": name, "namespace": SPACE, "labels": {"app": "web"}}})


def test_creations_start_slowly_and_stop_at_the_first_refusal(shell: Shell):
    calls: list[int] = []
    create = shell.api.create

    def refuse_the_fifth(kind: Any, obj: Any, **options: Any) -> Any:
        if kind == POD:
            calls.append(1)
            if len(calls) == 5:
                raise Forbidden(POD, objects.name(obj), "exceeded quota")
        return create(kind, obj, **options)

    shell.api.create = refuse_the_fifth  # type: ignore[method-assign]  # the quota is full at the fifth
    (failure,) = shell.acting.take(shell.owner, [new_pod(shell.owner.obj)] * 100)
    assert isinstance(failure.error, Forbidden)
    assert len(calls) == 7, "batches of 1, 2 and 4, and none after the refusal"
    result = shell.recorded_events()
    assert len([each for each in result if each[0] == "SuccessfulCreate"]) == 6
    assert any(reason == "FailedCreate" and "exceeded quota" in message for reason, message in result)


def test_names_are_made_as_generate_name_makes_them(shell: Shell):
    shell.acting.take(shell.owner, [new_pod(shell.owner.obj)])
    (pod,) = shell.api.list(POD).items
    assert pod["metadata"]["generateName"] == "web-"
    assert len(objects.name(pod)) == len("web-") + 5
    assert shell.recorded_events() == [("SuccessfulCreate", f"Created pod: {objects.name(pod)}")]


def test_an_answer_that_was_lost_makes_no_second_pod(shell: Shell):
    create = shell.api.create

    def lose_the_answer(kind: Any, obj: Any, **options: Any) -> Any:
        create(kind, obj, **options)
        raise ApiUnreachable("cut")

    shell.api.create = lose_the_answer  # type: ignore[method-assign]  # made, but nobody is told
    assert shell.acting.take(shell.owner, [new_pod(shell.owner.obj)])
    assert not shell.expectations.fulfilled(shell.owner.key)
    shell.api.create = create  # type: ignore[method-assign]
    shell.acting.settle(shell.owner)
    shell.informers.of(POD)
    shell.informers.start()
    until(lambda: shell.expectations.fulfilled(shell.owner.key))
    assert len(shell.pods()) == 1


def test_what_was_not_made_is_not_waited_for(shell: Shell):
    shell.api.fail(ApiUnreachable("refused"))
    assert shell.acting.take(shell.owner, [new_pod(shell.owner.obj)])
    shell.acting.settle(shell.owner)
    assert shell.expectations.fulfilled(shell.owner.key)
    assert shell.pods() == []


def test_while_nobody_can_tell_nothing_is_decided(shell: Shell):
    shell.api.fail(ApiUnreachable("refused"))
    shell.acting.take(shell.owner, [new_pod(shell.owner.obj)])
    shell.api.fail(ApiUnreachable("still away"))
    with pytest.raises(ApiUnreachable):
        shell.acting.settle(shell.owner)
    assert not shell.expectations.fulfilled(shell.owner.key)


def test_adoption_and_release_change_one_reference(shell: Shell):
    made = orphan(shell)
    assert shell.acting.take(shell.owner, [Adopt(POD, made)]) == []
    adopted = shell.api.get(POD, "a", SPACE)
    assert (objects.controller_of(adopted) or {})["uid"] == objects.uid(shell.owner.obj)
    assert shell.acting.take(shell.owner, [Release(POD, adopted)]) == []
    assert objects.owner_references(shell.api.get(POD, "a", SPACE)) == []


def test_an_owner_that_is_gone_adopts_nothing(shell: Shell):
    made = orphan(shell)
    shell.api.delete(REPLICA_SET, "web", SPACE)
    shell.acting.take(shell.owner, [Adopt(POD, made)])
    assert objects.owner_references(shell.api.get(POD, "a", SPACE)) == []


def test_what_has_changed_since_it_was_seen_is_not_written(shell: Shell):
    made = orphan(shell)
    shell.api.patch(POD, "a", SPACE, {"metadata": {"labels": {"app": "other"}}})
    (failure,) = shell.acting.take(shell.owner, [Patch(POD, made, {"metadata": {"labels": {"x": "y"}}})])
    assert isinstance(failure.error, Conflict)


def test_a_pod_of_the_same_name_is_not_deleted(shell: Shell):
    made = orphan(shell)
    other = {**made, "metadata": {**made["metadata"], "uid": "the one before"}}
    assert shell.acting.take(shell.owner, [Delete(POD, other)]) == []
    assert shell.pods() == ["a"]


def test_again_is_heeded_behind_a_failure(shell: Shell):
    shell.api.fail(ApiUnreachable("away"))
    steps: list[Step] = [Create(POD, {"metadata": {"name": "x", "namespace": SPACE}}), Again(7.0)]
    assert shell.acting.take(shell.owner, steps)
    assert shell.again == [7.0]


def test_a_namespace_that_is_being_deleted_is_no_failure(shell: Shell):
    refusal = Forbidden(POD, "x", "being terminated")
    refusal.details["causes"] = [{"reason": "NamespaceTerminating", "message": "x", "field": "metadata.namespace"}]
    shell.api.fail(refusal)
    assert shell.acting.take(shell.owner, [new_pod(shell.owner.obj)]) == []
    assert shell.recorded_events() == []


def test_in_a_namespace_that_is_being_deleted_an_owner_tries_one_creation_and_no_other(shell: Shell):
    """Each of hundreds of missing Pods cost a refused request, again with each Pod that went."""
    tried = []

    def refuse(kind: Any, obj: Any, **_more: Any) -> Any:
        tried.append(obj)
        refusal = Forbidden(POD, "x", "being terminated")
        refusal.details["causes"] = [{"reason": "NamespaceTerminating", "message": "x", "field": "metadata.namespace"}]
        raise refusal

    create = shell.api.create
    shell.api.create = refuse  # type: ignore[method-assign]
    wanted = [new_pod(shell.owner.obj)] * 20
    assert shell.acting.take(shell.owner, wanted) == []
    assert shell.acting.take(shell.owner, wanted) == []
    assert len(tried) == 1
    # one by the same name, in a namespace by the same name, is another
    shell.api.create = create  # type: ignore[method-assign]
    meta = {**shell.owner.obj["metadata"], "uid": "another"}
    shell.acting.take(shell.owner._replace(obj={**shell.owner.obj, "metadata": meta}), wanted[:2])
    assert len(shell.pods()) == 2


def test_in_a_namespace_that_is_known_to_be_being_deleted_nothing_is_tried(shell: Shell):
    """It cost a refused request for each owner and minute."""
    wanted = [new_pod(shell.owner.obj)] * 3
    assert shell.acting.take(shell.owner, wanted[:1]) == []
    assert len(shell.pods()) == 1
    end_of_namespace(shell)
    shell.api.calls.clear()
    assert shell.acting.take(shell.owner, wanted) == []
    assert shell.api.calls == []
    assert shell.again == [60.0], "1,000 owners of a namespace that does not go were looked at 200 times a second"


def test_an_owner_in_a_namespace_that_was_made_again_waits_for_no_copy_of_it(shell: Shell):
    end_of_namespace(shell)
    made = shell.api.create(REPLICA_SET, workload(REPLICA_SET, {"replicas": 3, "age": 0}, name="again"))
    assert shell.acting.take(Owner(REPLICA_SET, made), [new_pod(made)] * 3) == []
    assert len(shell.pods()) == 3
    assert shell.again == []


def end_of_namespace(shell: Shell) -> None:
    """Delete the namespace, which stays, at the time NOW, and wait until the copy shows it."""
    shell.clock.advance((NOW - shell.clock.now()).total_seconds())
    shell.api.create(NAMESPACE, {"metadata": {"name": SPACE, "finalizers": ["kubernetes"]}})
    shell.informers.start()
    copy = shell.informers.metadata_of(NAMESPACE)
    assert copy.wait_synced(60)
    shell.api.delete(NAMESPACE, SPACE)
    until(lambda: objects.is_deleting(copy.get("", SPACE) or {}))


def test_an_owner_that_met_a_namespace_being_deleted_is_tried_again_after_a_minute(shell: Shell):
    """A server that was behind refused for a namespace that was there again: the owner never had a Pod again."""
    refusal = Forbidden(POD, "x", "being terminated")
    refusal.details["causes"] = [{"reason": "NamespaceTerminating", "message": "x", "field": "metadata.namespace"}]
    shell.api.fail(refusal)
    wanted = [new_pod(shell.owner.obj)] * 3
    assert shell.acting.take(shell.owner, wanted) == []
    assert shell.again == [60.0]
    shell.clock.advance(59.0)
    assert shell.acting.take(shell.owner, wanted) == []
    assert shell.pods() == []
    shell.clock.advance(1.0)
    assert shell.acting.take(shell.owner, wanted) == []
    assert len(shell.pods()) == 3


def replicas(api: FakeApi, wanted: int) -> bool:
    return len([pod for pod in api.list(POD, SPACE).items if not objects.is_deleting(pod)]) == wanted


def test_a_controller_that_begins_anew_goes_on_where_the_killed_one_stopped(shell: Shell):
    first = ReplicaSetController(shell.context)
    shell.informers.start()
    first.start()
    until(lambda: replicas(shell.api, 3))
    first.stop()
    # an hour passes: pods fail, sizes change, nobody looks
    shell.api.patch(REPLICA_SET, "web", SPACE, {"spec": {"replicas": 7}})
    for name in shell.pods()[:2]:
        shell.api.patch(POD, name, SPACE, {"status": {"phase": "Failed"}}, subresource="status")
    shell.clock.advance(3600)
    second = ReplicaSetController(shell.context)
    second.start()
    until(lambda: replicas(shell.api, 9))
    until(lambda: objects.status(shell.api.get(REPLICA_SET, "web", SPACE)).get("replicas") == 7)
    second.stop()


def test_while_pods_cannot_be_read_none_is_made(shell: Shell):
    """W-R2 of the original: a failed read was taken for "there are none", and a full set was made."""
    listed = shell.api.list

    def fail_for_pods(kind: Any, *rest: Any, **more: Any) -> Any:
        if kind == POD:
            raise ApiUnreachable("cut")
        return listed(kind, *rest, **more)

    shell.api.list = fail_for_pods  # type: ignore[method-assign]  # of two lists one fails
    controller = ReplicaSetController(shell.context)
    shell.informers.start()
    controller.start()
    until(lambda: shell.context.informers.of(REPLICA_SET).get(SPACE, "web") is not None)
    assert not any(call[:2] == ("create", "pods") for call in shell.api.calls)
    shell.api.list = listed  # type: ignore[method-assign]
    until(lambda: replicas(shell.api, 3))
    controller.stop()


def test_the_key_of_an_owner_is_found_by_reference_or_selector(shell: Shell):
    controller = ReplicaSetController(shell.context)
    assert controller.own is shell.informers.of(REPLICA_SET)
    shell.informers.start()
    controller.start()
    until(lambda: replicas(shell.api, 3))
    orphan(shell, "late")
    until(lambda: replicas(shell.api, 3) and len(shell.pods()) == 3)
    assert all(objects.controller_of(pod) for pod in shell.api.list(POD, SPACE).items)
    assert Key(SPACE, "web") == shell.owner.key
    controller.stop()


def test_a_deletion_of_what_was_seen_leaves_alone_what_has_changed_since(shell: Shell):
    seen, copies = orphan(shell), shell.informers.of(POD)
    shell.informers.start()
    until(copies.list)
    shell.api.patch(POD, objects.name(seen), SPACE, {"status": {"phase": "Running"}}, subresource="status")
    assert not shell.acting.take(shell.owner, [Delete(POD, seen, unchanged=True)])
    assert shell.pods() == [objects.name(seen)]
    assert shell.expectations.fulfilled(shell.owner.key)  # nothing is waited for that does not come
    assert not shell.acting.take(shell.owner, [Delete(POD, shell.api.list(POD).items[0], unchanged=True)])
    assert shell.pods() == []
