"""When a node is asked for its CSI drivers, and what becomes of the answer."""

from __future__ import annotations

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.housekeeping.driver_registration import EVERY_S, LOOK_S, registers
from minik8s_modules.reconcile.pods.observed import ObservedContainer
from tests.unit.reconcile.housekeeping.test_housekeeper import _Kept
from tests.unit.reconcile.worlds import observations

REGISTRY = "/var/lib/kubelet/plugins_registry"
SAID: JsonObject = {"drivers": {"d.example.com": {"node_id": "n1", "max_volumes": 0, "topology": {}}}, "errors": {}}


def pod(*paths: str) -> JsonObject:
    volumes = [{"name": f"v{number}", "hostPath": {"path": path}} for number, path in enumerate(paths)]
    return {"metadata": {"name": "d", "uid": "u"}, "spec": {"volumes": volumes}, "status": {"phase": "Running"}}


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ((REGISTRY,), True), ((f"{REGISTRY}/",), True), (("/x", "/var/lib/kubelet"), True), ((), False),
        (("/var/lib/kubelet/plugins",), False), ((f"{REGISTRY}-other",), False),
    ],
)  # fmt: skip
def test_who_can_register_a_driver(paths: tuple[str, ...], expected: bool):  # noqa: FBT001
    assert registers(pod(*paths)) == expected


def registering(kept: _Kept) -> list[str]:
    return [section for section in kept.asked() if section == "plugins"]


def test_a_node_without_registrars_is_never_asked():
    kept = _Kept()
    for _ in range(3):
        assert registering(kept) == []
        kept.clock.advance(EVERY_S + LOOK_S)
    assert kept.world.found == [{}]


def test_a_registrars_node_is_asked_when_it_comes_every_minute_and_when_it_goes():
    kept = _Kept()
    kept.world.api = [pod(REGISTRY)]
    assert registering(kept) == ["plugins"]
    assert kept.options()["known"] == []
    kept.answer({"drivers": {}, "errors": {"d.sock": "nobody answers"}})
    assert registering(kept) == []
    assert (kept.world.found, kept.world.told) == ([{}], ["FailedDriverRegistration"])
    kept.clock.advance(LOOK_S)
    assert registering(kept) == ["plugins"]
    kept.answer(SAID)
    registering(kept)
    assert kept.world.found[-1] == SAID["drivers"]
    kept.clock.advance(LOOK_S)
    assert registering(kept) == []
    kept.clock.advance(EVERY_S)
    assert registering(kept) == ["plugins"]
    assert kept.options()["known"] == ["d.example.com"]
    kept.answer(SAID)
    registering(kept)
    kept.world.seen = [next(iter(_containers()))]
    kept.clock.advance(LOOK_S)
    assert registering(kept) == ["plugins"]
    assert kept.options()["known"] == [], "a new registrar has been told nothing"


def test_what_never_answers_is_asked_ever_less_often():
    kept = _Kept()
    kept.world.api = [pod(REGISTRY)]
    asked = 0
    for _ in range(int(600 / LOOK_S)):
        if registering(kept):
            asked += 1
            kept.answer({"drivers": {}, "errors": {"left-over.sock": "nobody answers"}})
            registering(kept)
        kept.clock.advance(LOOK_S)
    assert asked <= 4 + 600 / EVERY_S + 1
    assert asked > 600 / EVERY_S / 2


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("No Name", {}), ("x" * 64, {}), ("b.example.com", {"node_id": "i" * 193}),
        ("b.example.com", {"topology": {"not a key": "east"}}),
        ("b.example.com", {"topology": {"zone": "not a value"}}),
    ],
)  # fmt: skip
def test_a_driver_that_the_api_would_refuse_keeps_no_other_from_being_registered(name: str, changes: JsonObject):
    kept = _Kept()
    kept.world.api = [pod(REGISTRY)]
    registering(kept)
    good = SAID["drivers"]["d.example.com"]
    kept.answer({"drivers": {"d.example.com": good, name: {**good, **changes}}, "errors": {}})
    registering(kept)
    assert kept.world.found == [{"d.example.com": good}]
    assert kept.world.told == ["FailedDriverRegistration"]


def _containers() -> list[ObservedContainer]:
    seen = observations([{"container": "registrar", "state": "running", "created": 1}])
    return [one._replace(pod_uid="u") for one in seen.attempts()]
