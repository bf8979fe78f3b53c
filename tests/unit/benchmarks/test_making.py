"""Objects of a workload are made again where a server asks for that, and only there."""

from __future__ import annotations

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import AlreadyExists, Forbidden, StatusError, TooManyRequests, from_status
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.fake import FakeApi
from tests.benchmarks.deciding.scheduler_perf.making import create

# what kube-apiserver 1.20 answers where another object has the name that it drew
TAKEN = {
    "kind": "Status", "status": "Failure", "reason": "ServerTimeout", "code": 500,
    "message": "The POST operation against Pod could not be completed at this time, please try again.",
}  # fmt: skip
GENERATED: JsonObject = {"metadata": {"generateName": "pod-", "namespace": "default"}}
NAMED: JsonObject = {"metadata": {"name": "pod", "namespace": "default"}}


@pytest.mark.parametrize(
    ("error", "made", "tries"),
    [
        (from_status(TAKEN), GENERATED, 3),
        (TooManyRequests(), NAMED, 3),
        (AlreadyExists(POD, "pod-abcde", generated=True), GENERATED, 3),
        (AlreadyExists(POD, "pod"), NAMED, 1),
        (Forbidden(POD, "", "no"), GENERATED, 1),
    ],
)
def test_what_the_server_asks_to_try_again_is_tried_again(error: StatusError, made: JsonObject, tries: int):
    api, paused = FakeApi(), list[float]()
    api.fail(error, error)
    if tries == 1:
        with pytest.raises(type(error)):
            create(api, POD, made, paused.append)
        assert paused == []
        return
    assert objects.namespace(create(api, POD, made, paused.append)) == "default"
    assert paused == [0.1, pytest.approx(0.3)]


def test_a_server_that_asks_for_ever_is_believed_at_last():
    api, paused = FakeApi(), list[float]()
    api.fail(*[from_status(TAKEN)] * 6)
    with pytest.raises(StatusError, match="could not be completed at this time"):
        create(api, POD, GENERATED, paused.append)
    assert len(paused) == 5
