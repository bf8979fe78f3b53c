"""Plans over nodes in memory: what is answered is what the later apply does; nothing is stored or changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from minik8s_modules.api.kinds import CONFIG_MAP, ENDPOINT_SLICE, NODE, POD, SECRET, SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mirror_pods import MIRROR
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.controllers.simulation.simulated_cluster import placeholder_uid
from minik8s_modules.reconcile.loop.section_changes import Request
from minik8s_modules.reconcile.planning.plan import WITHIN_S, Planner
from minik8s_modules.reconcile.planning.plan_lists import listed
from minik8s_modules.reconcile.planning.questions import parse_question
from minik8s_modules.reconcile.planning.simulated_services import imagined_slices
from minik8s_modules.reconcile.values.items import Outcome
from tests.unit.reconcile.loop.test_loop import NAME, Cluster, running, until
from tests.unit.reconcile.worlds import IMAGE


@pytest.fixture
def cluster():
    made = Cluster()
    made.start()
    until(lambda: made.service is not None and made.service.loop.basis(NAME) is not None)
    until(lambda: ("containers", "full") in made.node.calls)
    until(lambda: ask(made, ("create", pod()))["messages"] == [])  # the node's readiness has reached the planner
    yield made
    made.stop()


def pod(name: str = "web", **spec: Any) -> JsonObject:
    containers = [{"name": "app", "image": IMAGE}]
    body = {"restartPolicy": "Always", "containers": containers, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": body}


def ask(cluster: Cluster, *operations: tuple[str, JsonObject], nodes: tuple[str, ...] = ()) -> JsonObject:
    assert cluster.service is not None
    body = {"objects": [{"operation": kind, "object": obj} for kind, obj in operations], "nodes": [*nodes]}
    return told(cluster.service.plan(parse_question(body)))


def told(answer: JsonObject) -> JsonObject:
    """The answer with the texts of its messages alone."""
    return answer | {"messages": [each["text"] for each in answer["messages"]]}


def without_pod(value: Any, uid: str) -> Any:
    return json.loads(json.dumps(value).replace(uid, "UID"))


def test_a_plan_is_what_the_apply_does(cluster: Cluster):
    answer = ask(cluster, ("create", pod()))
    created = cluster.create()
    until(lambda: running(cluster))
    planned = answer["nodes"][NAME]["diff"]
    assert sorted(planned) == ["containers", "sandboxes"]
    uid = created["metadata"]["uid"]
    for section, diff in planned.items():
        after = without_pod(diff["after"], placeholder_uid("default", "web"))
        assert after == without_pod(cluster.node.documents[section], uid)
    assert answer["messages"] == []


def test_a_plan_stores_and_changes_nothing(cluster: Cluster):
    before = dict(cluster.node.documents)
    ask(cluster, ("create", pod()))
    assert cluster.node.documents == before
    assert cluster.node.containers == {}
    assert cluster.api.list(POD).items == []
    assert cluster.addresses() == []


def test_an_api_server_that_admits_is_told_the_pods_of_workloads_first(cluster: Cluster):
    assert cluster.service is not None
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod()["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    made = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": pod()["metadata"], "spec": spec}
    body: JsonObject = {"objects": [{"operation": "create", "object": made}]}
    first = cluster.service.plan(parse_question({**body, "admits": True}))
    assert first.keys() == {"nodes", "messages", "made", "around"}
    ((key, form),) = first["made"].items()  # both are of one form
    limited = {**form["spec"], "containers": [{**form["spec"]["containers"][0], "command": ["admitted"]}]}
    admission = {"pods": {key: {"pod": {**form, "spec": limited}}}, "quotas": []}
    answer = cluster.service.plan(parse_question({**body, "admission": admission}))
    after = answer["nodes"][NAME]["diff"]["containers"]["after"]
    assert [json.dumps(one).count("admitted") for one in after.values()] == [1, 1]
    refusing = {"pods": {key: {"refused": "no"}}, "quotas": []}
    answer = told(cluster.service.plan(parse_question({**body, "admission": refusing})))
    assert answer["messages"] == ["ReplicaSet default/web: at least 2 Pods would be refused: no"]
    assert "order" not in answer


def test_the_same_question_has_the_same_answer(cluster: Cluster):
    assert ask(cluster, ("create", pod())) == ask(cluster, ("create", pod()))


def test_a_plan_of_one_pod_leaves_the_others_out(cluster: Cluster):
    cluster.create("other")
    until(lambda: running(cluster, "other"))
    diff = ask(cluster, ("create", pod()))["nodes"][NAME]["diff"]
    assert [key.partition("/")[0] for key in diff["containers"]["after"]] == [placeholder_uid("default", "web")]
    assert diff["sandboxes"]["after"][placeholder_uid("default", "web")]["ip"] == "10.244.0.3"


def test_a_plan_takes_nothing_away_while_it_is_not_known_what_a_node_has(cluster: Cluster):
    cluster.create("other")
    until(lambda: running(cluster, "other"))
    cluster.node.effects_left = 0
    cluster.create("failing")

    def is_unknown() -> bool:
        assert cluster.service is not None
        basis = cluster.service.loop.basis(NAME)
        return basis is not None and not basis.busy and basis.confirmed["containers"] is None

    until(is_unknown)
    answer = ask(cluster, ("create", pod()))
    diff = answer["nodes"][NAME]["diff"]
    assert f"{placeholder_uid('default', 'web')}/app" in diff["containers"]["after"]
    (undone,) = [text for text in answer["messages"] if "undone" in text]
    unknown = undone.partition(" has of ")[2].partition(", as after ")[0].split(", ")
    assert "containers" in unknown
    assert set(unknown) <= set(diff)
    assert None not in [entry for each in diff.values() for entry in each["after"].values()]


def test_two_new_pods_get_two_addresses(cluster: Cluster):
    diff = ask(cluster, ("create", pod("a")), ("create", pod("b")))["nodes"][NAME]["diff"]
    assert sorted(one["ip"] for one in diff["sandboxes"]["after"].values()) == ["10.244.0.2", "10.244.0.3"]


def test_a_deletion_shows_what_goes(cluster: Cluster):
    cluster.create()
    until(lambda: running(cluster))
    uid = cluster.pod()["metadata"]["uid"]
    going = cluster.pod()
    going["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30}
    answer = ask(cluster, ("update", going))
    assert answer["nodes"][NAME]["diff"]["containers"]["after"] == {f"{uid}/app": None}
    assert answer["messages"] == ["Pod default/web: its containers get up to 30 s to stop first"]
    assert running(cluster)


def test_a_unit_that_a_virtual_node_would_have_is_part_of_the_plan(cluster: Cluster):
    labels = {"type": "virtual-kubelet", "ansible.minik8s.io/group": "web"}
    metadata = {"name": "web", "labels": labels, "annotations": {"ansible.minik8s.io/users": "app"}}
    cluster.api.create(NODE, {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": {}})
    unit = pod("unit", nodeName="web")
    unit["spec"]["containers"] = [{"name": "app", "image": "minik8s/host", "command": ["sleep", "60"]}]
    until(lambda: "web" in ask(cluster, ("create", unit))["nodes"])
    answer = ask(cluster, ("create", unit))
    assert [step["action"] for step in answer["nodes"]["web"]["steps"]] == ["write", "start"]
    assert "User=app" in answer["nodes"]["web"]["diff"]["units"]["after"]["default/unit"]["unit"]
    assert answer["messages"] == []
    made = cluster.api.create(POD, unit)
    made["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30}
    until(lambda: ask(cluster, ("update", made))["nodes"].get("web", {}).get("steps"))
    going = ask(cluster, ("update", made))["nodes"]["web"]["steps"]
    assert [step["action"] for step in going] == ["stop", "remove"]


def steered(obj: JsonObject, policy: str) -> JsonObject:
    return {**obj, "metadata": {**obj["metadata"], "annotations": {"minik8s.io/drift": policy}}}


def held(cluster: Cluster) -> bool:
    cluster.node.event("update", cluster.node.find("app"))
    assert cluster.service is not None
    basis = cluster.service.loop.basis(NAME)
    return basis is not None and not basis.busy and bool(basis.held.get("containers"))


def test_what_another_policy_would_put_right_is_planned_and_a_pass_for_another_pod_puts_nothing_right(cluster: Cluster):
    uid = cluster.create()["metadata"]["uid"]
    until(lambda: running(cluster))
    cluster.api.patch(POD, "web", "default", steered({"metadata": {}}, "report"))
    step = {"action": "update", "key": f"{uid}/app", "detail": "memory"}
    cluster.node.meddled["containers"] = [step]
    until(lambda: held(cluster))
    cluster.create("other")
    until(lambda: running(cluster, "other"))
    assert cluster.node.meddled["containers"] == [step]
    steps = {}
    for policy in ("heal", "ignore"):
        steps[policy] = ask(cluster, ("update", steered(cluster.pod(), policy)))["nodes"][NAME]["steps"]
    assert [one["action"] for one in steps["heal"]] == ["update"]
    assert steps["ignore"] == []
    cluster.api.patch(POD, "web", "default", steered({"metadata": {}}, "heal"))
    until(lambda: cluster.node.meddled["containers"] == [])


def test_a_nodes_other_policy_is_planned_too(cluster: Cluster):
    uid = cluster.create()["metadata"]["uid"]
    until(lambda: running(cluster))
    cluster.api.patch(NODE, NAME, "", steered({"metadata": {}}, "containers=ignore"))
    cluster.node.meddled["containers"] = [{"action": "update", "key": f"{uid}/app", "detail": "memory"}]
    until(lambda: held(cluster))
    node = {**cluster.api.get(NODE, NAME), "apiVersion": "v1", "kind": "Node"}
    for policy, found in (("containers=heal", ["update"]), ("containers=ignore,network=report", [])):
        steps = ask(cluster, ("update", steered(node, policy)))["nodes"][NAME]["steps"]
        assert [one["action"] for one in steps] == found


def service(**selector: str) -> JsonObject:
    metadata = {"name": "web", "namespace": "default"}
    ports = [{"port": 80, "targetPort": 8080, "protocol": "TCP"}]
    spec = {"type": "ClusterIP", "clusterIP": "100.0.0.7", "ports": ports, "selector": selector}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def test_new_pods_are_behind_their_service_as_if_they_were_ready(cluster: Cluster):
    web = pod()
    web["metadata"]["labels"] = {"app": "web"}
    answer = ask(cluster, ("create", service(app="web")), ("create", web))
    rules = answer["nodes"][NAME]["diff"]["services"]["after"]
    assert rules["default/web:80"]["endpoints"] == [["10.244.0.2", 8080]]
    assert answer["messages"] == ["rules, names and paths are shown as they will be when 1 new pod is ready"]


def test_a_pod_that_cannot_start_is_behind_no_service(cluster: Cluster):
    container = {"name": "app", "image": IMAGE, "envFrom": [{"configMapRef": {"name": "settings"}}]}
    web = pod(containers=[container])
    web["metadata"]["labels"] = {"app": "web"}
    answer = ask(cluster, ("create", service(app="web")), ("create", web))
    assert "services" not in answer["nodes"][NAME]["diff"], "nftables has no rule of a service without endpoints"
    assert answer["messages"] == ['Pod default/web: app: CreateContainerConfigError configmap "settings" not found']


def test_a_namespace_that_goes_takes_its_pods_and_rules_along_and_nobody_elses(cluster: Cluster):
    for namespace in ("default", "shop"):
        for kind, obj in ((POD, pod()), (SERVICE, service(app="web"))):
            obj["metadata"] = {"name": "web", "namespace": namespace, "labels": {"app": "web"}}
            obj["spec"] |= {"nodeName": NAME, "terminationGracePeriodSeconds": 7} if kind is POD else {}
            obj["spec"] |= {"clusterIP": f"100.0.0.{len(namespace)}"} if kind is SERVICE else {}
            cluster.api.create(kind, obj)
    until(lambda: all(cluster.api.get(POD, "web", one)["status"].get("podIP") for one in ("default", "shop")))
    for namespace in ("default", "shop"):
        ip = cluster.api.get(POD, "web", namespace)["status"]["podIP"]
        (step,) = imagined_slices(
            service(app="web") | {"metadata": {"name": "web", "namespace": namespace}},
            [cluster.api.get(POD, "web", namespace) | {"status": ready_at(ip)}],
        )
        cluster.api.create(ENDPOINT_SLICE, step)
    until(lambda: len(cluster.node.documents.get("services", {})) == 3)  # with the dataplane
    uid = cluster.api.get(POD, "web", "shop")["metadata"]["uid"]
    going = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "deletionTimestamp": "x"}}
    other = pod("new")
    other["metadata"]["namespace"] = "shop"
    calls = len(cluster.api.calls)

    answer = ask(cluster, ("create", other), ("update", going))

    assert {verb for verb, *_ in cluster.api.calls[calls:]} <= {"list", "get", "watch"}
    diff = answer["nodes"][NAME]["diff"]
    assert diff["containers"]["after"] == {f"{uid}/app": None}
    assert diff["services"]["after"] == {"shop/web:80": None}
    about = [{"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web"}]
    (step,) = answer["order"]
    place = {"action": "delete", "pod": "shop/web", "node": NAME, "owner": "Namespace/shop", "turn": 1}
    assert step == {**place, "about": about}
    assert answer["messages"] == ["Namespace shop: its pods go first; their containers get up to 7 s to stop"]


def ready_at(ip: str) -> JsonObject:
    return {"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]}


def test_a_static_pod_goes_on_when_the_namespace_of_its_mirror_goes(cluster: Cluster):
    mirror = {
        "metadata": {"name": f"web-{NAME}", "namespace": "default", "annotations": {MIRROR: "0123456789abcdef" * 2}}
    }
    cluster.api.create(POD, mirror | {"spec": {**pod()["spec"], "nodeName": NAME}, "status": {}})
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    answer = ask(cluster, ("delete", namespace))
    assert (answer["nodes"][NAME]["steps"], "order" in answer) == ([], False)
    assert answer["messages"] == [
        f"Pod default/web-{NAME}: it is static and keeps running; its manifest is on its node"
    ]


def test_init_containers_are_shown_with_what_follows_them(cluster: Cluster):
    diff = ask(cluster, ("create", pod(initContainers=[{"name": "one", "image": IMAGE}])))["nodes"][NAME]["diff"]
    states = {key.partition("/")[2]: one["state"] for key, one in diff["containers"]["after"].items()}
    assert states == {"one": "running", "app": "running"}


def test_an_image_to_pull_and_what_is_missing_are_named(cluster: Cluster):
    missing = {"name": "app", "image": "example.com/x:1", "envFrom": [{"configMapRef": {"name": "settings"}}]}
    answer = ask(cluster, ("create", pod(containers=[missing])))
    assert answer["messages"] == [
        "Pod default/web: image example.com/x:1 would be pulled to node n1",
        'Pod default/web: app: CreateContainerConfigError configmap "settings" not found',
    ]


def test_a_config_map_planned_along_counts(cluster: Cluster):
    made = {"kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "default"}, "data": {"A": "1"}}
    container = {"name": "app", "image": IMAGE, "envFrom": [{"configMapRef": {"name": "settings"}}]}
    answer = ask(cluster, ("create", pod(containers=[container])), ("create", made))
    assert answer["messages"] == []
    (entry,) = answer["nodes"][NAME]["diff"]["containers"]["after"].values()
    assert entry["env"] == [["A", "1"]]


def test_the_authorities_of_a_namespace_that_is_new_count_as_published(cluster: Cluster):
    data = {"ca.crt": "PEM"}
    published = {"metadata": {"name": "kube-root-ca.crt", "namespace": "kube-system"}, "data": data}
    cluster.api.create(CONFIG_MAP, published)
    web = pod()
    web["metadata"]["namespace"] = "new"
    items = [{"key": "ca.crt", "path": "ca.crt"}]
    sources = [{"configMap": {"name": "kube-root-ca.crt", "items": items}}]
    web["spec"]["volumes"] = [{"name": "access", "projected": {"sources": sources, "defaultMode": 420}}]
    web["spec"]["containers"][0]["volumeMounts"] = [{"name": "access", "mountPath": "/access"}]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}}
    answer = ask(cluster, ("create", namespace), ("create", web))
    assert [note for note in answer["messages"] if "kube-root-ca" in note] == []
    assert {step["section"] for step in answer["nodes"][NAME]["steps"]} >= {"volumes", "sandboxes", "containers"}


def test_a_pod_of_its_own_has_its_place_in_the_order(cluster: Cluster):
    big = {"name": "app", "image": IMAGE, "resources": {"requests": {"cpu": "500"}}}
    answer = ask(cluster, ("create", pod("nowhere", containers=[big])), ("create", pod()))
    assert [(step["action"], step["pod"], step["node"]) for step in answer["order"]] == [
        ("create", "default/nowhere", ""),
        ("create", "default/web", NAME),
    ]
    assert answer["nodes"][NAME]["steps"], "what fits nowhere hides nothing of the rest"


class Slow:
    """Nodes that answer at the last moment, and that something came between: they are to be asked again."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def run(self, node: str, requests: Mapping[str, Request], timeout_s: float) -> Outcome:
        """Return an answer on another base."""
        self._clock.advance(timeout_s)
        answer = {"base_mismatch": True, "changed": False, "differences": {}, "steps": []}
        return Outcome("slow", node, "ok", dict.fromkeys(requests, answer), "")


def test_a_plan_is_answered_in_time_with_what_is_known(cluster: Cluster):
    assert cluster.service is not None
    clock = FakeClock(cluster.clock.now())
    question = parse_question({"objects": [{"operation": "create", "object": pod()}]})
    planner = Planner(cluster.service.loop, cluster.api, Slow(clock), cluster.settings, clock)
    answer = told(planner.answer(question, listed(cluster.api, question, (NAME,))))
    assert clock.monotonic() <= WITHIN_S + 1
    assert [step["pod"] for step in answer["order"]] == ["default/web"]
    assert any("kept changing while it was asked" in text for text in answer["messages"])


def test_no_value_of_a_secret_is_in_an_answer(cluster: Cluster):
    cluster.api.create(SECRET, {"metadata": {"name": "s", "namespace": "default"}, "data": {"p": "aHVudGVyMg=="}})
    container = {"name": "app", "image": IMAGE, "envFrom": [{"secretRef": {"name": "s"}}]}
    answer = json.dumps(ask(cluster, ("create", pod(containers=[container]))))
    assert "default/s" in answer
    assert "hunter2" not in answer
    assert "aHVudGVyMg" not in answer


def test_a_pod_that_fits_nowhere_is_told(cluster: Cluster):
    big = {"name": "app", "image": IMAGE, "resources": {"requests": {"cpu": "500"}}}
    answer = ask(cluster, ("create", pod(containers=[big])))
    assert answer["nodes"][NAME]["steps"] == []
    assert "Insufficient cpu" in answer["messages"][0]


def test_no_objects_ask_for_drift(cluster: Cluster):
    cluster.create()
    until(lambda: running(cluster))
    assert ask(cluster)["nodes"][NAME]["steps"] == []
    cluster.node.documents["containers"] = {}
    steps = ask(cluster)["nodes"][NAME]["steps"]
    assert [one["section"] for one in steps] == ["containers"]
    assert ask(cluster, nodes=("elsewhere",))["nodes"] == {}


def test_a_node_that_does_not_answer_is_named(cluster: Cluster):
    cluster.link.cut()
    answer = ask(cluster, ("create", pod()))
    assert answer["nodes"] == {}
    assert answer["messages"] == ["node n1 does not answer; what would change there is not known"]


def test_a_virtual_service_says_which_sidecars_would_send_requests_elsewhere(cluster: Cluster):
    spec = {"serviceRef": "web", "port": 80, "subsets": [{"name": "v1", "weight": 1}]}
    virtual = {"apiVersion": "v1", "kind": "VirtualService", "metadata": {"name": "x", "namespace": "default"}}
    assert ask(cluster, ("create", {**virtual, "spec": spec}))["messages"] == [
        "VirtualService default/x: ServiceNotFound: there is no Service web with an address in this namespace"
    ]
