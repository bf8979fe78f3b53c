"""``canary``: weights, when errors end it, and that what was before comes back; sidecars and pilot are played."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD, SUBSET, VIRTUAL_SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.sidecars import with_sidecar
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.cli.commands import build_parser
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.mesh.canary import (
    MOST,
    Leading,
    Steps,
    Watching,
    exceeds,
    follow,
    read_steps,
    since,
    weights_for,
)
from minik8s_modules.cli.mesh.sidecars import Counts, Unanswered
from minik8s_modules.client.fake import FakeApi

BEFORE = [{"name": "v1", "weight": 3}, {"name": "v2", "weight": 0}]
META = {"namespace": "shop"}


@pytest.mark.parametrize(
    ("before", "percent", "after"),
    [
        ({"v1": 1, "v2": 0}, 10, {"v1": 9, "v2": 1}),
        ({"v1": 1, "v2": 0}, 0, {"v1": 1, "v2": 0}),
        ({"v1": 1, "v2": 0}, 100, {"v1": 0, "v2": 1}),
        ({"v1": 2, "v3": 1, "v2": 5}, 40, {"v1": 2, "v3": 1, "v2": 2}),
        ({"v1": 0, "v3": 0, "v2": 5}, 50, {"v1": 1, "v3": 1, "v2": 2}),
        ({"v1": 1}, 25, {"v1": 3, "v2": 1}),
    ],
)
def test_a_version_gets_its_percent_and_the_others_keep_their_proportions(
    before: dict[str, int], percent: int, after: dict[str, int]
):
    result = weights_for([{"name": name, "weight": weight} for name, weight in before.items()], "v2", percent)
    assert {one["name"]: one["weight"] for one in result} == after


def test_large_weights_stay_an_int32_each():
    before = {"a": 10**9, "b": 10**9 + 7, "v2": 1}
    result = weights_for([{"name": name, "weight": weight} for name, weight in before.items()], "v2", 33)
    weights = {one["name"]: one["weight"] for one in result}
    assert max(weights.values()) <= MOST
    assert weights["v2"] / sum(weights.values()) == pytest.approx(0.33, abs=0.001)


@pytest.mark.parametrize(
    ("requests", "errors", "is_last", "ends"),
    [(100, 2, False, True), (100, 1, False, False), (5, 5, False, False), (5, 5, True, True), (0, 0, True, False)],
)
def test_errors_end_it_once_there_are_enough_requests(requests: int, errors: int, is_last: bool, ends: bool):  # noqa: FBT001
    assert exceeds(Counts(requests, errors), Fraction(1, 100), is_last=is_last) == ends


def test_a_sidecar_that_began_again_counts_from_zero():
    assert since(Counts(10, 1), Counts(7, 1)) == Counts(3, 0)
    assert since(Counts(2, 1), Counts(7, 0)) == Counts(2, 1)
    assert since(None, Counts(0, 0)) == since(Counts(0, 0), None) == Counts(0, 0)


def options(*words: str) -> Any:
    return build_parser().parse_args(["canary", "reviews", "--to", "v2", "-n", "shop", *words])


def test_the_steps_are_read():
    given = options("--weight", "10", "--step", "40", "--pause", "2m", "--abort-on", "error-rate > 0.5%")
    assert read_steps(given) == Steps([10, 50, 90, 100], 120, Fraction(1, 200))
    assert read_steps(options("--weight", "0")).percents == [0]


@pytest.mark.parametrize(
    "words",
    ["--weight 101", "--weight -1", "--weight 5 --step -2", "--weight 5 --pause soon",
     "--weight 5 --abort-on latency>1s", "--weight 5 --abort-on error-rate>100%"],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(words: str):
    with pytest.raises(UsageError):
        read_steps(options(*words.split()))


class Shop:
    """Two versions of a Service, a client with a sidecar, and what that counts."""

    def __init__(self, subsets: list[JsonObject] | None = None) -> None:
        self.api = FakeApi()
        for name, pods in (("v1", ["a"]), ("v2", ["b"]), ("none", [])):
            self.api.create(SUBSET, {"metadata": {"name": name, **META}, "spec": {"pods": pods}})
        spec = {"serviceRef": "reviews", "port": 80, "subsets": subsets or BEFORE}
        self.api.create(VIRTUAL_SERVICE, {"metadata": {"name": "x", **META}, "spec": spec})
        for name, ip in (("a", "10.0.0.1"), ("b", "10.0.0.2"), ("client", "10.0.0.3")):
            app: JsonObject = {"containers": [{"name": "app", "image": "i"}]}
            made = self.api.create(
                POD, {"metadata": {"name": name, **META}, "spec": with_sidecar(app) if name == "client" else app}
            )
            status = {"phase": "Running", "podIP": ip}
            self.api.update(POD, {**made, "status": status}, subresource="status")
        self.requests, self.errors, self.fails_at = 0, 0, 200
        self.deaf = False

    def ask(self, _pod: JsonObject, _path: str) -> Any:
        """Answer as the client's sidecar: 100 requests more at each look, and errors once v2 has so much weight."""
        if self.deaf:
            raise Unanswered("no")
        self.requests += 100
        self.errors += 10 if self.percent() >= self.fails_at else 0
        hosts = [host("10.0.0.1", 10**6, 10**6), host("10.0.0.2", self.requests, self.errors)]
        return {"cluster_statuses": [{"name": "reviews", "host_statuses": hosts}]}

    def weights(self) -> list[JsonObject]:
        """Return the Subsets of the VirtualService."""
        found: list[JsonObject] = objects.spec(self.api.get(VIRTUAL_SERVICE, "x", "shop"))["subsets"]
        return found

    def percent(self) -> float:
        """Return how many percent v2 has."""
        weights = {one["name"]: one["weight"] for one in self.weights()}
        return float(100 * weights["v2"] / sum(weights.values()))

    def follow(self, *percents: int, limit: Fraction | None = Fraction(1, 100)) -> int:
        """Lead over to v2, by these steps of 10 s."""
        leading = Leading(self.api, "shop", "reviews", "v2", 0)
        watching = Watching(self.api, self.ask, "shop", leading.pods)
        return follow(leading, watching, Steps(percents, 10.0, limit), FakeClock())


def host(ip: str, requests: int, errors: int) -> JsonObject:
    stats = [{"name": "rq_total", "value": str(requests)}, {"name": "rq_error", "value": str(errors)}, {"name": "x"}]
    return {"address": {"socket_address": {"address": ip, "port_value": 80}}, "stats": stats}


def test_it_goes_up_step_by_step_while_nothing_fails():
    shop = Shop()
    assert shop.follow(10, 50, 100) == 0
    assert shop.percent() == 100


def test_errors_of_the_version_bring_back_what_was_before(capsys: pytest.CaptureFixture[str]):
    shop = Shop()
    shop.fails_at = 50
    assert shop.follow(10, 50, 100) == 1
    assert shop.weights() == BEFORE
    assert capsys.readouterr().out.splitlines()[-1].startswith("aborted: 10 of 100 requests failed")


def test_without_any_statistics_nothing_is_begun():
    shop = Shop()
    shop.deaf = True
    with pytest.raises(UsageError, match="nothing is known"):
        shop.follow(10, 100)
    assert shop.weights() == BEFORE
    assert shop.follow(10, limit=None) == 0


def test_weights_that_somebody_else_changes_stay_as_they_are():
    shop = Shop()
    leading = Leading(shop.api, "shop", "reviews", "v2", 0)
    leading.lead(10)
    theirs = [{"name": "v1", "weight": 1}, {"name": "v2", "weight": 1}]
    shop.api.patch(VIRTUAL_SERVICE, "x", "shop", {"spec": {"subsets": theirs}})
    for act in (leading.settle, leading.give_back):
        with pytest.raises(UsageError, match="somebody else"):
            act()
    assert shop.weights() == theirs


def test_one_that_no_pilot_accepts_is_given_back():
    shop = Shop()
    made = shop.api.get(VIRTUAL_SERVICE, "x", "shop")
    conditions = [{"type": "Accepted", "status": "False", "reason": "Conflicted", "message": "m"}]
    shop.api.update(VIRTUAL_SERVICE, {**made, "status": {"conditions": conditions}}, subresource="status")
    assert shop.follow(10) == 1
    assert shop.weights() == BEFORE


@pytest.mark.parametrize(
    ("subsets", "service", "to", "said"),
    [
        (BEFORE, "nobody", "v2", "no VirtualService splits Service nobody"),
        ([{"name": "v1", "url": "/"}], "reviews", "v2", "by path"),
        ([{"name": "v2", "weight": 1}], "reviews", "v2", "no other Subset"),
        (BEFORE, "reviews", "none", "has no Pods"),
    ],
)
def test_what_cannot_be_led_over_says_what_to_do(subsets: list[JsonObject], service: str, to: str, said: str):
    with pytest.raises(UsageError, match=said):
        Leading(Shop(subsets).api, "shop", service, to, 0)
