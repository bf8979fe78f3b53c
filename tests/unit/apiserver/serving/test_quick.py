"""Which requests the intake answers itself: none that might wait for somebody."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from minik8s_modules.api.custom.kinds import kinds_of
from minik8s_modules.api.kind import Kinds
from minik8s_modules.api.kinds import (
    API_SERVICE,
    CONFIG_MAP,
    HORIZONTAL_POD_AUTOSCALER,
    KINDS,
    LIMIT_RANGE,
    NODE,
    POD,
    RESOURCE_QUOTA,
    ROLE,
    ROLE_BINDING,
    SECRET,
    VALIDATING_WEBHOOK_CONFIGURATION,
    Kind,
)
from minik8s_modules.apiserver.access.carriers import CarrierAuthorizer
from minik8s_modules.apiserver.access.node_access import NodeAuthorizer
from minik8s_modules.apiserver.aggregation.directory import Directory
from minik8s_modules.apiserver.authorization.authorization import Access
from minik8s_modules.apiserver.authorization.identity import ALL_AUTHENTICATED, CERTIFIED, MASTERS, User
from minik8s_modules.apiserver.authorization.policy import Rbac
from minik8s_modules.apiserver.http import presenting
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.board import Board, Place
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.intake.framing import Whole
from minik8s_modules.apiserver.intake.heads import environ_of
from minik8s_modules.apiserver.serving.quick import LONGEST_BYTES, Quick
from minik8s_modules.apiserver.verbs import writing
from minik8s_modules.store.cache import WatchCache

WEB = "/api/v1/namespaces/default/pods/web"
KUBELET_PORT = 10250
ADMIN = User("admin", (MASTERS, ALL_AUTHENTICATED))
JANE = User("jane", (ALL_AUTHENTICATED,))
SETTINGS = "/api/v1/namespaces/default/configmaps/settings"


def quick_of(backend: Backend) -> Quick:
    rbac = Rbac(backend.cache)
    access = Access(rbac, [NodeAuthorizer(backend.cache)], [CarrierAuthorizer(backend.cache, rbac)])
    return Quick(backend, Directory(backend.cache), access, KUBELET_PORT)


@pytest.fixture
def quick(backend: Backend) -> Quick:
    return quick_of(backend)


def environ(
    path: str, *headers: str, method: str = "GET", host: str = "localhost:6443", user: User | None = ADMIN
) -> dict[str, Any]:
    head = "\r\n".join((f"{method} {path} HTTP/1.1", f"Host: {host}", *headers, "", ""))
    made = environ_of(Whole(head.encode("latin-1"), b""), ("192.0.2.1", 40_000), ("192.0.2.2", 6443))
    return {**made, CERTIFIED: user}


def make(backend: Backend, kind: Kind, name: str, **fields: object) -> None:
    options = Options(dry_run=False, validation="Strict", warnings=[])
    target = Target(kind, "default" if kind.namespaced else "")
    writing.create(backend, target, {"metadata": {"name": name}, **fields}, options)


def let(backend: Backend, user: User, resources: str, verb: str = "get") -> None:
    """Make a role for ``user``."""
    name = f"{user.name}-{verb}".replace(":", "-")
    make(backend, ROLE, name, rules=[{"verbs": [verb], "apiGroups": [""], "resources": resources.split()}])
    subjects = [{"kind": "User", "name": user.name, "apiGroup": "rbac.authorization.k8s.io"}]
    make(backend, ROLE_BINDING, name, roleRef={"kind": "Role", "name": name}, subjects=subjects)


@pytest.mark.parametrize(
    "path",
    [
        WEB,
        "/api/v1/nodes/n1",
        "/api/v1/namespaces/default",
        "/apis/apps/v1/namespaces/default/deployments/web",
        f"{WEB}/",
    ],
)
def test_one_object_is_read_at_once(quick: Quick, path: str):
    assert quick.read(environ(path))


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/api/v1/pods", {}),
        ("/api/v1/namespaces/default/pods", {}),
        (f"{WEB}?resourceVersion=99999999", {}),  # waits until that is known
        (f"{WEB}?watch=true", {}),
        (f"{WEB}/log", {}),  # asks the node
        (f"{WEB}/proxy", {}),
        (f"{WEB}/proxy/api/v1/namespaces/default/pods/web", {}),
        ("/api/v1/nodes/n1/proxy/metrics", {}),
        (f"{WEB}/status", {}),
        ("/apis/metrics.k8s.io/v1beta1/nodes/n1", {}),  # asks gateways
        ("/apis/wardle.example.com/v1/flunders/x", {}),
        ("/api/v1/namespaces/default/pods/%C3%A4", {}),
        ("/api/v1/no-such-kind/x", {}),
        ("/readyz", {}),  # asks etcd
        ("/metrics", {}),
        ("//api/v1/nodes/n1", {}),
        (WEB, {"method": "DELETE"}),
        (WEB, {"method": "PUT"}),
        (WEB, {"host": f"192.0.2.9:{KUBELET_PORT}"}),  # a node's address: its gateway is asked
    ],
)
def test_what_may_wait_for_somebody_is_left_to_a_thread(quick: Quick, path: str, fields: dict[str, Any]):
    assert not quick.read(environ(path, **fields))


def test_an_upgrade_is_left_to_a_thread(quick: Quick):
    assert not quick.read(environ(WEB, "Connection: Upgrade", "Upgrade: websocket"))


def custom_kinds(*versions: str) -> Sequence[Kind]:
    """Return the kind Foo of e.io in some versions."""
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}},
    }
    declared = [
        {"name": each, "served": True, "storage": each == versions[0], "schema": {"openAPIV3Schema": schema}}
        for each in versions
    ]
    names = {"plural": "foos", "kind": "Foo"}
    served = [{"type": each, "status": "True"} for each in ("NamesAccepted", "Established")]
    return kinds_of(
        {
            "metadata": {"name": "foos.e.io", "uid": "u"},
            "spec": {"group": "e.io", "scope": "Namespaced", "names": names, "versions": declared},
            "status": {"acceptedNames": names, "conditions": served},
        }
    )


def with_custom(backend: Backend, kinds: Sequence[Kind]) -> Backend:
    return replace(backend, kinds=Kinds(KINDS.with_custom(kinds)))


def test_what_an_extension_answers_is_left_to_a_thread_also_where_the_kind_is_known_here(backend: Backend):
    path = "/apis/e.io/v1/namespaces/default/foos/a"
    quick = quick_of(with_custom(backend, custom_kinds("v1")))
    assert quick.read(environ(path))  # there is none
    spec = {
        "group": "e.io", "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 10,
        "service": {"namespace": "other", "name": "api"},
    }  # fmt: skip
    make(backend, API_SERVICE, "v1.e.io", spec=spec)
    assert not quick.read(environ(path))
    assert quick.read(environ("/api/v1/nodes/n1"))


def test_a_custom_object_is_read_at_once_only_in_the_version_in_which_it_is_known(backend: Backend):
    kinds = custom_kinds("v1", "v2")
    backend = with_custom(backend, kinds)
    quick = quick_of(backend)
    make(backend, kinds[0], "a", spec={"a": "y"})
    paths = [f"/apis/{kind.api_version}/namespaces/default/foos/a" for kind in kinds]
    item = backend.get(Target(kinds[0], "default", "a"))
    for kind, path in zip(kinds, paths, strict=True):
        presenting.bytes_of(kind, item)
        assert [quick.read(environ(each)) for each in paths] == [each == path for each in paths]


def test_what_looks_otherwise_than_it_is_stored_is_left_to_a_thread(backend: Backend, quick: Quick):
    other = next(kind for kind in KINDS.all() if kind.id == HORIZONTAL_POD_AUTOSCALER.id and kind.storage)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    make(backend, HORIZONTAL_POD_AUTOSCALER, "a", spec={"maxReplicas": 2, "scaleTargetRef": target})
    stored, shown = (
        f"/apis/{kind.api_version}/namespaces/default/{kind.plural}/a" for kind in (HORIZONTAL_POD_AUTOSCALER, other)
    )
    assert quick.read(environ(stored))
    assert not quick.read(environ(shown))


def test_a_long_object_is_left_to_a_thread(backend: Backend, quick: Quick):
    make(backend, CONFIG_MAP, "settings", data={"a": "x" * 10_000})
    make(backend, CONFIG_MAP, "long", data={"a": "x" * LONGEST_BYTES})
    assert quick.read(environ(SETTINGS))
    assert not quick.read(environ("/api/v1/namespaces/default/configmaps/long"))


@pytest.mark.parametrize(
    "accept",
    [
        "application/json;as=Table;v=v1;g=meta.k8s.io, application/json",
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "application/yaml",
    ],
)
def test_other_forms_than_the_object_are_left_to_a_thread(quick: Quick, accept: str):
    assert not quick.read(environ(WEB, f"Accept: {accept}"))


def test_the_object_may_be_asked_for_in_several_ways(quick: Quick):
    for accept in ("application/json", "*/*", "application/json, */*"):
        assert quick.read(environ(WEB, f"Accept: {accept}", "Accept-Encoding: gzip"))


@pytest.mark.parametrize("header", ["Impersonate-User: jane", "Impersonate-Group: people", "Impersonate-Extra-A: b"])
def test_who_acts_as_another_has_a_thread(quick: Quick, header: str):
    assert not quick.read(environ(WEB, header))


def test_who_has_no_certificate_has_a_thread(quick: Quick):
    assert not quick.read(environ(WEB, "Authorization: Bearer abc", user=None))


def test_who_has_a_role_is_answered_at_once_unless_the_policy_has_changed(backend: Backend, quick: Quick):
    access = quick._access
    assert not quick.read(environ(WEB, user=JANE))
    let(backend, JANE, "pods")
    assert not quick.read(environ(WEB, user=JANE))  # would have to be compiled
    access.rbac.policy()
    assert quick.read(environ(WEB, user=JANE))
    assert not quick.read(environ(SETTINGS, user=JANE))  # a refusal: others would be asked
    let(backend, User("joe", ()), "pods")
    assert not quick.read(environ(WEB, user=JANE))
    assert quick.read(environ(WEB))  # an administrator may without any policy
    access.rbac.policy()
    assert quick.read(environ(WEB, user=JANE))


def test_who_has_bound_very_many_roles_to_himself_has_a_thread(backend: Backend, quick: Quick):
    many = [{"verbs": ["get"], "apiGroups": [""], "resources": [f"kind-{n}"]} for n in range(513)]
    let(backend, JANE, "pods")
    make(backend, ROLE, "many", rules=many)
    quick._access.rbac.policy()
    assert quick.read(environ(WEB, user=JANE))
    subjects = [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}]
    make(backend, ROLE_BINDING, "many", roleRef={"kind": "Role", "name": "many"}, subjects=subjects)
    quick._access.rbac.policy()
    assert not quick.read(environ(WEB, user=JANE))


PODS, CONFIG_MAPS = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize(
    "path",
    [
        PODS,
        CONFIG_MAPS,
        f"{PODS}/",
        "/api/v1/namespaces/default/events",
        "/apis/events.k8s.io/v1/namespaces/default/events",
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
        "/apis/apps/v1/namespaces/default/replicasets",
        "/apis/apps/v1/namespaces/default/controllerrevisions",
        "/apis/batch/v1/namespaces/default/jobs",
        "/apis/minik8s.io/v1/podaddresses",
    ],
)
def test_a_short_create_is_made_in_the_loop(quick: Quick, path: str):
    assert quick.write(environ(path, method="POST"))
    assert quick.write(environ(path, "Content-Type: application/json; charset=utf-8", method="POST"))
    assert not quick.read(environ(path, method="POST"))


def test_what_kubectl_says_with_a_create_makes_it_no_longer_one(quick: Quick):
    for query in ("fieldManager=kubectl-create&fieldValidation=Strict", "fieldValidation=Ignore", "fieldManager=a%20b"):
        assert quick.write(environ(f"{PODS}?{query}", method="POST")) is ("%" not in query)
        assert not quick.read(environ(f"{WEB}?{query}"))


@pytest.mark.parametrize(
    ("path", "headers", "fields"),
    [
        (PODS, [], {"method": "PUT"}),
        (PODS, [], {"method": "GET"}),
        (PODS, [], {"method": "DELETE"}),
        (f"{PODS}?dryRun=All", [], {}),
        (f"{PODS}?fieldManager=a&dryRun=All", [], {}),
        (f"{PODS}?fieldManager=a;dryRun=All", [], {}),
        (f"{PODS}?pretty=true", [], {}),
        (f"{PODS}/web", [], {}),
        (f"{PODS}/web/binding", [], {}),
        (f"{PODS}/web/eviction", [], {}),  # looks at budgets, and deletes
        ("/api/v1/namespaces/default/services", [], {}),  # has addresses to be found
        ("/api/v1/namespaces/default/secrets", [], {}),
        ("/apis/apps/v1/namespaces/default/deployments", [], {}),
        ("/api/v1/namespaces", [], {}),
        ("/api/v1/pods", [], {}),  # names no namespace
        ("/api/v1/namespaces/none/pods", [], {}),
        ("/apis/authentication.k8s.io/v1/tokenreviews", [], {}),
        (PODS, ["Content-Type: application/yaml"], {}),
        (PODS, ["Content-Type: application/vnd.kubernetes.protobuf"], {}),
        (PODS, ["Accept: application/json;as=Table;v=v1;g=meta.k8s.io"], {}),
        (PODS, ["Impersonate-User: jane"], {}),
        (PODS, ["Connection: Upgrade", "Upgrade: websocket"], {}),
        (PODS, ["Authorization: Bearer abc"], {"user": None}),
        (PODS, [], {"host": f"192.0.2.9:{KUBELET_PORT}"}),
        (PODS, [], {"user": User("system:node:n1", ("system:nodes", ALL_AUTHENTICATED))}),
        (PODS, [], {"user": JANE}),  # has no role: a refusal is a thread's
    ],
)
def test_other_writes_have_a_thread(quick: Quick, path: str, headers: list[str], fields: dict[str, Any]):
    assert not quick.write(environ(path, *headers, **{"method": "POST", **fields}))


def test_who_may_create_by_a_role_is_served_in_the_loop_unless_the_policy_has_changed(backend: Backend, quick: Quick):
    let(backend, JANE, "pods", "create")
    assert not quick.write(environ(PODS, method="POST", user=JANE))
    quick._access.rbac.policy()
    assert quick.write(environ(PODS, method="POST", user=JANE))
    assert not quick.write(environ(CONFIG_MAPS, method="POST", user=JANE))


def test_a_pod_that_long_limits_are_compared_with_has_a_thread(backend: Backend, quick: Quick):
    def limits(count: int) -> list[dict[str, Any]]:
        return [{"type": "Container", "max": {f"example.com/thing-{n}": "1" for n in range(count)}}]

    make(backend, LIMIT_RANGE, "short", spec={"limits": limits(20)})
    assert quick.write(environ(PODS, method="POST"))
    make(backend, LIMIT_RANGE, "long", spec={"limits": limits(300)})
    assert not quick.write(environ(PODS, method="POST"))
    assert quick.write(environ(CONFIG_MAPS, method="POST"))


def test_what_a_quota_counts_has_a_thread(backend: Backend, quick: Quick):
    make(backend, RESOURCE_QUOTA, "q", spec={"hard": {"pods": "5"}})
    assert not quick.write(environ(PODS, method="POST"))


def test_a_create_that_a_webhook_looks_at_has_a_thread(backend: Backend, quick: Quick):
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    hook = {
        "name": "h.example.com", "clientConfig": {"url": "https://h.example.com/"}, "rules": [rule],
        "sideEffects": "None", "admissionReviewVersions": ["v1"],
    }  # fmt: skip
    make(backend, VALIDATING_WEBHOOK_CONFIGURATION, "hooks", webhooks=[hook])
    assert not quick.write(environ(PODS, method="POST"))
    assert quick.write(environ(CONFIG_MAPS, method="POST"))


def test_a_create_in_a_group_that_an_extension_answers_has_a_thread(backend: Backend):
    path = "/apis/e.io/v1/namespaces/default/foos"
    assert not quick_of(with_custom(backend, custom_kinds("v1"))).write(environ(path, method="POST"))


def names_called(function: Callable[[], object]) -> set[str]:
    """Return the names of all Python functions that ``function`` calls."""
    found = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            found.add(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize("kind", [CONFIG_MAP, SECRET, POD, NODE])
def test_rights_that_follow_from_all_pods_are_not_worked_out(backend: Backend, quick: Quick, kind: Kind):
    """Those of nodes and of carriers; who carries nodes is answered at once what his role gives him."""
    node, carrier = User("system:node:n1", ("system:nodes", ALL_AUTHENTICATED)), User("carrier", (ALL_AUTHENTICATED,))
    let(backend, node, "pods nodes configmaps secrets")
    let(backend, carrier, "pods")
    quick._access.rbac.policy()
    where = "namespaces/default/" if kind.namespaced else ""
    path = f"/api/v1/{where}{kind.plural}/n1"

    def ask() -> None:
        assert not quick.read(environ(path, user=node))
        assert quick.read(environ(path, user=carrier)) is (kind is POD)

    assert not [each for each in names_called(ask) if each.startswith(("Following.", "NodeAuthorizer.", "Carrier"))]


def test_a_worker_that_does_not_know_yet_what_another_has_written_leaves_it_to_a_thread(backend: Backend):
    board = Board(2)
    quick = quick_of(replace(backend, place=Place(board, 0)))
    other = Place(board, 1)
    other.tell(backend.cache.revision)
    assert quick.read(environ(WEB))
    other.tell(backend.cache.revision + 1)
    assert not quick.read(environ(WEB))
    assert not quick.write(environ(PODS, method="POST"))
    board.close()


def test_a_server_that_has_not_loaded_its_objects_leaves_it_to_a_thread(backend: Backend):
    cache = WatchCache(backend.store)
    assert not quick_of(replace(backend, cache=cache)).read(environ(WEB))
    assert not quick_of(replace(backend, cache=cache)).write(environ(PODS, method="POST"))
