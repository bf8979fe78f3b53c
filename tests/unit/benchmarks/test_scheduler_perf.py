"""Each operation of scheduler_perf's YAML does what upstream's does, on few objects; what is unknown is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    CSI_NODE,
    NAMESPACE,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    PRIORITY_CLASS,
    SERVICE,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.leader import Token
from minik8s_modules.scheduler.running.scheduler import Scheduler
from tests.benchmarks.deciding.scheduler_perf.operations import FIELDS, VOLUMES, NotUnderstood, read
from tests.benchmarks.deciding.scheduler_perf.templates import template
from tests.benchmarks.deciding.scheduler_perf.workload import Workload
from tests.support.waiting import until

Run = Callable[..., Workload]
PATIENCE_S = 60.0


def pod(name: str = "", **spec: Any) -> JsonObject:
    meta = {"name": name} if name else {"generateName": "pod-"}
    containers = [{"name": "pause", "image": "pause", "resources": {"requests": {"cpu": "1"}}}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers, **spec}}


def labelled(made: JsonObject, **labels: str) -> JsonObject:
    return {**made, "metadata": {**made["metadata"], "labels": labels}}


FILES: dict[str, JsonObject] = {
    "pod.yaml": pod(),
    "zoned.yaml": pod(nodeSelector={"zone": "b"}),
    "low.yaml": pod(terminationGracePeriodSeconds=0),
    "high.yaml": pod(priority=10),
    "nowhere.yaml": labelled(pod(nodeSelector={"zone": "none"}), type="unsched"),
    "gated.yaml": pod(schedulingGates=[{"name": "a.b/c"}]),
    "named.yaml": pod("p-{{ .Index }}", nodeSelector={"zone": "new"}),
    "named-open.yaml": pod("p-{{ .Index }}"),
    "service.yaml": {"apiVersion": "v1", "kind": "Service", "metadata": {"generateName": "s-"}, "spec": {}},
    "space.yaml": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "x", "labels": {"a": "b"}}},
    "volume.yaml": {"apiVersion": "v1", "kind": "PersistentVolume", "spec": {"csi": {"driver": "a.b"}}},
    "claim.yaml": {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "spec": {},
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "true"}},
    },
    "strange.yaml": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "{{ range .Index }}"}},
}


@pytest.fixture
def api() -> Iterator[FakeApi]:
    api = FakeApi()
    recorder, lost = EventRecorder(api, "default-scheduler"), threading.Event()
    scheduler = Scheduler(api, recorder)
    recorder.start()
    scheduler.start()
    leading = threading.Thread(target=scheduler.lead, args=(Token(0, 1), lost))
    leading.start()
    yield api
    lost.set()
    leading.join(PATIENCE_S)
    scheduler.stop()
    recorder.stop()
    assert not leading.is_alive()


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Write a configuration with one case, and the templates beside it."""
    (tmp_path / "templates").mkdir()
    for name, made in FILES.items():
        (tmp_path / "templates" / name).write_text(yaml.safe_dump(made))

    def write(*operations: JsonObject, params: JsonObject | None = None, **case: Any) -> Path:
        given = [{**one} for one in operations]
        for one in given:
            for field in ("podTemplatePath", "templatePath", "namespaceTemplatePath", *VOLUMES):
                if field in one:
                    one[field] = f"../templates/{one[field]}"
        (tmp_path / "misc").mkdir(exist_ok=True)
        file = tmp_path / "misc" / "performance-config.yaml"
        workloads = [{"name": "small", "params": params or {}}]
        file.write_text(yaml.safe_dump([{"name": "C", "workloadTemplate": given, "workloads": workloads, **case}]))
        return file

    return write


@pytest.fixture
def run(api: FakeApi, written: Callable[..., Path]) -> Run:
    def begin(*operations: JsonObject, until_so: Callable[[], object] = lambda: True, **more: Any) -> Workload:
        case = read(written(*operations, **more), "C", "small")
        workload = Workload(api, case, PATIENCE_S, lambda _: until(until_so, PATIENCE_S))
        workload.run()
        return workload

    return begin


def pods(api: FakeApi, namespace: str) -> list[JsonObject]:
    return api.list(POD, namespace).items


def placed(api: FakeApi, namespace: str) -> int:
    return sum(bool(objects.spec(one).get("nodeName")) for one in pods(api, namespace))


SLEEP = {"opcode": "sleep", "duration": "1m30s"}
NODES = {"opcode": "createNodes", "count": 3}
PODS = {"opcode": "createPods", "count": 4, "podTemplatePath": "pod.yaml"}


def test_nodes_are_dealt_the_labels_in_turn(api: FakeApi, run: Run):
    dealt = {"labelKey": "zone", "labelValues": ["a", "b"]}
    run({**NODES, "labelNodePrepareStrategy": dealt})
    nodes = api.list(NODE).items
    assert sorted(objects.labels(one)["zone"] for one in nodes) == ["a", "a", "b"]
    assert all(objects.labels(one)["kubernetes.io/hostname"] == objects.name(one) for one in nodes)
    assert {one["status"]["allocatable"]["pods"] for one in nodes} == {"110"}
    run({**NODES, "uniqueNodeLabelStrategy": {"labelKey": "own"}})
    assert len({objects.labels(one).get("own") for one in api.list(NODE).items}) == 4


def test_namespaces_are_made_by_their_template(api: FakeApi, run: Run):
    run({"opcode": "createNamespaces", "prefix": "ns", "count": 2, "namespaceTemplatePath": "space.yaml"})
    made = {objects.name(one): objects.labels(one) for one in api.list(NAMESPACE).items}
    assert made == {"ns-0": {"a": "b"}, "ns-1": {"a": "b"}}


def test_pods_are_made_and_waited_for_and_measured(api: FakeApi, run: Run):
    done = run(
        NODES, {"opcode": "createPods", "countParam": "$many", "collectMetrics": True},
        params={"many": 5}, defaultPodTemplatePath="../templates/pod.yaml",
    )  # fmt: skip
    assert placed(api, "namespace-1") == 5
    assert [sampler.average > 0 and sampler.overall > 0 for sampler in done.samplers] == [True]


def test_pod_sets_are_pods_in_a_namespace_each(api: FakeApi, run: Run):
    inner = {"opcode": "createPods", "count": 2, "podTemplatePath": "../templates/pod.yaml"}
    run(NODES, {"opcode": "createPodSets", "count": 2, "namespacePrefix": "set", "createPodsOp": inner})
    assert (placed(api, "set-0"), placed(api, "set-1")) == (2, 2)


def test_a_barrier_waits_for_what_was_not_waited_for(api: FakeApi, run: Run):
    run(NODES, {**PODS, "skipWaitToCompletion": True}, {"opcode": "barrier"})
    assert placed(api, "namespace-1") == 4


def test_a_barrier_waits_until_pods_were_tried(api: FakeApi, run: Run):
    hopeless = {**PODS, "podTemplatePath": "nowhere.yaml", "skipWaitToCompletion": True, "namespace": "n"}
    run(NODES, hopeless, {"opcode": "barrier", "stageRequirement": "Attempted", "namespaces": ["n"]})
    listed = [objects.condition(one, "PodScheduled") for one in pods(api, "n")]
    assert [(one or {}).get("status") for one in listed] == ["False"] * 4


def test_a_barrier_waits_for_labels_and_knows_its_namespaces(api: FakeApi, written: Callable[..., Path], run: Run):
    hopeless = {**PODS, "podTemplatePath": "nowhere.yaml", "skipWaitToCompletion": True, "namespace": "n"}
    barrier = {"opcode": "barrier", "namespaces": ["n"], "labelSelector": {"type": "unsched"}}
    case = read(written(NODES, hopeless, barrier), "C", "small")
    with pytest.raises(TimeoutError, match="only 0 of 4 pods of n have a node"):
        Workload(api, case, 0.3).run()
    with pytest.raises(NotUnderstood, match="no namespace other was made"):
        run({"opcode": "barrier", "namespaces": ["other"]})


def test_pods_are_deleted_at_a_rate_beside(api: FakeApi, run: Run):
    gated = {"opcode": "createPods", "podTemplatePath": "gated.yaml", "count": 3, "namespace": "old"}
    run(
        NODES, {**gated, "skipWaitToCompletion": True},
        {"opcode": "deletePods", "namespace": "old", "deletePodsPerSecond": 100, "skipWaitToCompletion": True},
        PODS, SLEEP, until_so=lambda: not pods(api, "old"),
    )  # fmt: skip
    assert (pods(api, "old"), placed(api, "namespace-3")) == ([], 4)


def test_pods_are_deleted_by_label(api: FakeApi, run: Run):
    waiting = {"opcode": "createPods", "count": 1, "namespace": "n", "skipWaitToCompletion": True}
    run(
        {**waiting, "podTemplatePath": "nowhere.yaml"}, {**waiting, "podTemplatePath": "gated.yaml"},
        {"opcode": "deletePods", "namespace": "n", "labelSelector": {"type": "unsched"}},
    )  # fmt: skip
    assert [objects.labels(one) for one in pods(api, "n")] == [{}]


def churned(api: FakeApi) -> list[str]:
    return [verb for verb, plural, *_ in api.calls if plural == "services" and verb in {"create", "delete"}]


def test_churn_creates_up_to_a_number(api: FakeApi, run: Run):
    churn = {"opcode": "churn", "mode": "create", "number": 2, "intervalMilliseconds": 20, "namespace": "c"}
    services = {**churn, "templatePaths": ["../templates/service.yaml"]}
    run(services, SLEEP, until_so=lambda: len(churned(api)) > 1)
    assert churned(api) == ["create", "create"]
    assert len(api.list(SERVICE, "c").items) == 2


def test_churn_recreates_in_turns_of_as_many(api: FakeApi, run: Run):
    churn = {"opcode": "churn", "mode": "recreate", "number": 2, "intervalMilliseconds": 20}
    services = {**churn, "templatePaths": ["../templates/service.yaml"]}
    run(services, SLEEP, until_so=lambda: len(churned(api)) >= 8)
    assert churned(api)[:8] == ["create", "create", "delete", "delete"] * 2


def test_unschedulable_pods_churn_beside_those_that_are_measured(api: FakeApi, run: Run):
    churn = {"opcode": "churn", "mode": "create", "intervalMilliseconds": 10}
    hopeless = {**churn, "templatePaths": ["../templates/nowhere.yaml"]}
    run(NODES, hopeless, PODS, SLEEP, until_so=lambda: pods(api, "namespace-1"))
    assert placed(api, "namespace-2") == 4
    assert placed(api, "namespace-1") == 0


def test_pods_of_priority_preempt_by_a_class_of_their_value(api: FakeApi, run: Run):
    low = {"opcode": "createPods", "count": 12, "podTemplatePath": "low.yaml"}
    high = {**low, "count": 2, "podTemplatePath": "high.yaml", "skipWaitToCompletion": True}
    gone = {"opcode": "deletePods", "namespace": "namespace-1", "deletePodsPerSecond": 0}
    run(NODES, low, high, {"opcode": "barrier", "stageRequirement": "Attempted"}, gone)
    assert [(objects.name(one), one["value"]) for one in api.list(PRIORITY_CLASS).items] == [("priority-10", 10)]
    assert {objects.spec(one)["priorityClassName"] for one in pods(api, "namespace-2")} == {"priority-10"}


def test_pods_have_volumes_of_their_own_of_which_a_node_has_so_many(api: FakeApi, run: Run):
    room = {"nodeAllocatable": {"own": "7"}, "csiNodeAllocatable": {"a.b": {"count": 2}}}
    files = {"persistentVolumeTemplatePath": "volume.yaml", "persistentVolumeClaimTemplatePath": "claim.yaml"}
    run({**NODES, "nodeAllocatableStrategy": room}, {**PODS, **files})
    assert {one["status"]["allocatable"]["own"] for one in api.list(NODE).items} == {"7"}
    assert [one["spec"]["drivers"][0]["allocatable"] for one in api.list(CSI_NODE).items] == [{"count": 2}] * 3
    assert placed(api, "namespace-1") == 4
    claims = {objects.name(one): objects.spec(one)["volumeName"] for one in api.list(PERSISTENT_VOLUME_CLAIM).items}
    volumes = {objects.name(one): objects.spec(one)["claimRef"]["name"] for one in api.list(PERSISTENT_VOLUME).items}
    assert {volumes[volume]: volume for volume in claims.values()} == claims
    assert claims["pvc-3"] == "namespace-1-vol-3"


def test_any_objects_are_made_and_updated_by_their_index(api: FakeApi, run: Run):
    made = {"opcode": "createAny", "namespace": "n", "templatePath": "named.yaml", "count": 2}
    update = {**made, "opcode": "updateAny", "templatePath": "named-open.yaml", "updatePerSecond": 100}
    run(NODES, made, update)
    assert [objects.name(one) for one in pods(api, "n")] == ["p-0", "p-1"]
    assert [objects.spec(one).get("nodeSelector") for one in pods(api, "n")] == [None, None]


def test_collecting_is_begun_and_ended_by_namespaces_and_labels(api: FakeApi, run: Run):
    begin = {"opcode": "startCollectingMetrics", "name": "x", "namespaces": ["n"], "labelSelector": {"type": "none"}}
    done = run(NODES, begin, {**PODS, "namespace": "n"}, {"opcode": "stopCollectingMetrics"})
    assert [sampler.average for sampler in done.samplers] == [0.0]
    with pytest.raises(NotUnderstood, match="two collections overlap"):
        run(begin, begin)


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ({"opcode": "createResourceDriver"}, "createResourceDriver is not understood; there are createNodes"),
        ({**PODS, "steadyState": True}, r"operation 0 \(createPods\): steadyState is not understood"),
        ({**NODES, "nodeAllocatableStrategy": {"swap": {}}}, "swap is not understood in nodeAllocatableStrategy"),
        ({**PODS, "persistentVolumeTemplatePath": "v.yaml"}, "persistentVolumeClaimTemplatePath belong together"),
        ({"opcode": "createPods"}, "count is missing"),
        ({"opcode": "createPods", "countParam": "$x"}, "countParam: the workload has no parameter x"),
        ({"opcode": "churn", "mode": "swap", "templatePaths": []}, "mode is swap, not create or recreate"),
        ({"opcode": "churn", "mode": "recreate", "templatePaths": []}, "number is missing"),
        ({"opcode": "sleep", "duration": "soon"}, "duration soon is none such as 500ms"),
        ({"opcode": "barrier", "stageRequirement": "Tried"}, "stageRequirement is Tried"),
        ({**PODS, "collectMetrics": True, "skipWaitToCompletion": True}, "exclude each other"),
    ],
)
def test_what_is_not_understood_is_refused_before_anything_is_done(
    written: Callable[..., Path], operation: JsonObject, message: str
):
    with pytest.raises(NotUnderstood, match=message):
        read(written(operation), "C", "small")


def test_a_template_and_a_case_are_refused_by_what_is_in_them(written: Callable[..., Path], run: Run):
    with pytest.raises(NotUnderstood, match=r"only \.Index and \.Count"):
        run({**PODS, "podTemplatePath": "strange.yaml"})
    with pytest.raises(NotUnderstood, match="schedulerConfigPath is not understood"):
        read(written(NODES, schedulerConfigPath="x"), "C", "small")
    with pytest.raises(NotUnderstood, match="parameters that nothing uses: left"):
        read(written(NODES, params={"left": 1}), "C", "small")
    with pytest.raises(NotUnderstood, match="has no workload big; there are small"):
        read(written(NODES), "C", "big")


def test_every_operation_has_a_test():
    message = Path(__file__).read_text()
    assert [code for code in FIELDS if f'"{code}"' not in message.replace("createNodes; there", "")] == []


def test_a_template_counts_with_index_count_and_numbers(tmp_path: Path):
    file = tmp_path / "t.yaml"
    file.write_text("a: {{ .Index }}\nb: {{.Count}}\nc: {{ mod .Index 12 }}\nd: {{ div 30000 .Count }}\n")
    assert template(file)(17, 20) == {"a": 17, "b": 20, "c": 5, "d": 1500}
