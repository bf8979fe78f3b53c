"""``advise``: what is used beside what is requested."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any

import pytest
import yaml

from minik8s_modules.api.errors import Forbidden, ServiceUnavailable
from minik8s_modules.api.kinds import POD, POD_METRICS, REPLICA_SET, Kind
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.cli import advising
from minik8s_modules.cli.advising import SampledPods, Watched, Workload, observe, rows, workload_of
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.client.interface import ObjectList

EVERYTHING = Watched("", "")


def owned(kind: str, name: str) -> list[Any]:
    version = "v1" if kind == "Node" else "apps/v1"
    return [{"apiVersion": version, "kind": kind, "name": name, "uid": f"{kind}-{name}", "controller": True}]


def pod(name: str, requests: Any = None, created: str = "2026-01-01T00:00:00Z", **more: Any) -> Any:
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "creationTimestamp": created, **more}
    return {"metadata": meta, "spec": {"containers": [{"name": "app", "resources": {"requests": requests or {}}}]}}


def used(name: str, second: int, cpu: str, memory: str = "1Mi", container: str = "app") -> Any:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "timestamp": f"2026-01-01T00:00:{second:02}Z",
        "containers": [{"name": container, "usage": {"cpu": cpu, "memory": memory}}],
    }


def advice(seen: SampledPods, name: str = "web") -> Any:
    return rows(seen, dict.fromkeys(seen.samples, Workload("default", "Deployment", name)))


class Api:
    """Answers lists one after another; errors are raised."""

    def __init__(self, *metrics: Any, pods: Any = (), sets: Any = ()) -> None:
        self.metrics, self.pods, self.sets = list(metrics), list(pods), {one["metadata"]["name"]: one for one in sets}
        self.asked: list[str] = []

    def list(self, kind: Kind, namespace: str = "", label_selector: str = "", *_: Any) -> ObjectList:
        """Return pods, or the next metrics; the last ones for ever."""
        self.asked.append(f"{kind.kind} {namespace} {label_selector}")
        if kind == POD:
            return ObjectList(self.pods, "1")
        assert kind == POD_METRICS
        found = self.metrics.pop(0) if len(self.metrics) > 1 else self.metrics[0]
        if isinstance(found, Exception):
            raise found
        return ObjectList(found, "1")

    def get(self, kind: Kind, name: str, _namespace: str = "") -> Any:
        """Return a ReplicaSet."""
        assert kind == REPLICA_SET
        if name not in self.sets:
            raise Forbidden(POD, "a", "no")
        return self.sets[name]


def observed(api: Any, for_s: float) -> SampledPods:
    seen = SampledPods()
    observe(seen, api, EVERYTHING, for_s, FakeClock())
    return seen


def test_ranks_are_of_all_samples_of_a_workloads_pods():
    seen = SampledPods()
    seen.take([pod("a"), pod("b")], [used("a", 0, "10m", "100Mi"), used("b", 0, "20m", "200Mi")])
    for second in range(1, 9):
        seen.take([pod("a")], [used("a", second, f"{100 * second}m", f"{second}Mi")])
    (row,) = advice(seen)
    assert (row.pods, row.samples, row.container) == (2, 10, "app")
    assert row.resources["cpu"] == {"request": "", "p50": "300m", "p90": "700m", "peak": "800m"}
    assert row.resources["memory"] == {"request": "", "p50": "5Mi", "p90": "100Mi", "peak": "200Mi"}


def test_a_sample_that_is_read_twice_counts_once():
    seen = SampledPods()
    for _ in range(3):
        seen.take([pod("a")], [used("a", 0, "10m")])
    assert advice(seen)[0].samples == 1


def test_amounts_are_rounded_up_to_whole_millicores_and_mebibytes():
    seen = SampledPods()
    seen.take([pod("a")], [used("a", 0, "1n", "1")])
    resources = advice(seen)[0].resources
    assert (resources["cpu"]["peak"], resources["memory"]["peak"]) == ("1m", "1Mi")


def test_the_newest_pod_says_what_is_requested():
    seen = SampledPods()
    old, new = pod("a", {"cpu": "0.1"}), pod("b", {"cpu": "0.25", "memory": "64Mi"}, created="2026-01-02T00:00:00Z")
    seen.take([old, new], [used("a", 0, "1m"), used("b", 0, "1m")])
    resources = advice(seen)[0].resources
    assert (resources["cpu"]["request"], resources["memory"]["request"]) == ("250m", "64Mi")


def test_a_metric_of_a_pod_that_is_not_listed_is_left_out():
    seen = SampledPods()
    seen.take([], [used("a", 0, "1m")])
    assert advice(seen) == []
    assert seen.window == ("", "")


def test_what_owns_itself_is_looked_at_once():
    sets = [pod("a", ownerReferences=owned("ReplicaSet", "b")), pod("b", ownerReferences=owned("ReplicaSet", "a"))]
    api: Any = Api(sets=sets)
    found = workload_of(pod("p", ownerReferences=owned("ReplicaSet", "a")), api, {})
    assert (found.kind, found.name) == ("ReplicaSet", "b")


def test_pods_belong_to_what_makes_them_in_the_end():
    known: dict[str, Any] = {}
    api: Any = Api(sets=[pod("web-1", ownerReferences=owned("Deployment", "web")), pod("bare")])

    def of(**more: Any) -> tuple[str, str]:
        found = workload_of(pod("p", **more), api, known)
        return found.kind, found.name

    # the deployment itself cannot be read here, and need not be
    api.get = lambda kind, name, _space: Api.get(api, kind, name) if kind == REPLICA_SET else _refuse()
    assert of(ownerReferences=owned("ReplicaSet", "web-1")) == ("Deployment", "web")
    assert of(ownerReferences=owned("ReplicaSet", "bare")) == ("ReplicaSet", "bare")
    assert of(ownerReferences=owned("ReplicaSet", "secret")) == ("ReplicaSet", "secret")
    assert of(ownerReferences=owned("Node", "n1")) == ("Pod", "p"), "a static pod's mirror"
    assert of() == ("Pod", "p")


def _refuse() -> Any:
    raise Forbidden(POD, "a", "no")


def test_it_looks_until_the_time_is_over():
    api = Api(*([used("a", second, "1m")] for second in range(0, 40, 5)), pods=[pod("a")])
    assert len(observed(api, 20).samples["uid-a"]) == 5
    assert len(observed(Api([used("a", 1, "1m")], pods=[pod("a")]), 0).samples["uid-a"]) == 1


def test_a_server_that_is_away_for_a_while_ends_nothing():
    api = Api([used("a", 0, "1m")], ServiceUnavailable("away"), [used("a", 9, "1m")], pods=[pod("a")])
    assert len(observed(api, 15).samples["uid-a"]) == 2


def test_what_may_not_be_read_or_never_answers_is_told():
    with pytest.raises(Forbidden):
        observed(Api(Forbidden(POD, "a", "no"), pods=[pod("a")]), 300)
    with pytest.raises(ServiceUnavailable):
        observed(Api(ServiceUnavailable("away"), pods=[pod("a")]), 15)


def options(**more: Any) -> Namespace:
    given = {"time": "0", "all_namespaces": False, "namespace": "shop", "selector": "app=web", "output": ""}
    return Namespace(**{**given, **more})


def test_the_table_says_what_it_is_of(capsys: pytest.CaptureFixture[str]):
    api: Any = Api([used("a", 7, "12m", "30Mi")], pods=[pod("a", {"cpu": "100m"})])
    assert advising.advise(api, options()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["default", "pod/a", "app", "cpu", "100m", "12m", "12m", "12m", "1", "1"]
    assert lines[2].split() == ["default", "pod/a", "app", "memory", "<none>", "30Mi", "30Mi", "30Mi", "1", "1"]
    assert lines[-1] == "measured from 2026-01-01T00:00:07Z to 2026-01-01T00:00:07Z"
    assert api.asked == ["Pod shop app=web", "PodMetrics shop app=web"]


def test_programs_get_the_same(capsys: pytest.CaptureFixture[str]):
    api: Any = Api([used("a", 7, "12m", "30Mi")], pods=[pod("a", {"cpu": "100m"})])
    advising.advise(api, options(output="json", all_namespaces=True))
    found = json.loads(capsys.readouterr().out)
    assert found["window"] == {"from": "2026-01-01T00:00:07Z", "to": "2026-01-01T00:00:07Z"}
    (item,) = found["items"]
    assert item["workload"] == {"kind": "Pod", "name": "a"}
    assert item["resources"]["cpu"] == {"request": "100m", "p50": "12m", "p90": "12m", "peak": "12m"}
    advising.advise(api, options(output="yaml"))
    assert yaml.safe_load(capsys.readouterr().out) == found
    assert api.asked[:2] == ["Pod  app=web", "PodMetrics  app=web"]


def test_where_nothing_is_measured_it_says_so(capsys: pytest.CaptureFixture[str]):
    api: Any = Api([], pods=[pod("a")])
    assert advising.advise(api, options()) == 1
    assert "nothing was measured" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "5", "m", "-5m", "5m 3s", "0s", "abc", "5d"])
def test_a_time_that_is_none_is_refused(text: str):
    with pytest.raises(UsageError, match="write a time as 90s"):
        advising.advise(Api([]), options(time=text))  # type: ignore[arg-type]  # it is not asked
