"""Objects whose parts have wrong types, put into the store by hand, are nobody's misfortune but their own.

For each kind, objects are made along its type, and each has one value of another type somewhere. Every verb is then
sent to each, through every subresource: no answer is a 5xx. Beside them the rest goes on: others list, write and are
authorized. At last each is deleted.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any, cast

import orjson
import pytest
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Response

from minik8s_modules.api.defaulting.conversion import stored_kind
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import CLUSTER_ROLE, KINDS, NODE, POD, ROLE, ROLE_BINDING
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.schema.shapes import kind_shape
from minik8s_modules.apiserver.access.carriers import CarrierAuthorizer
from minik8s_modules.apiserver.access.node_access import NodeAuthorizer
from minik8s_modules.apiserver.aggregation.directory import Directory
from minik8s_modules.apiserver.aggregation.forwarding import Aggregation
from minik8s_modules.apiserver.authorization.authorization import Access
from minik8s_modules.apiserver.authorization.identity import ALL_AUTHENTICATED, MASTERS, User
from minik8s_modules.apiserver.authorization.policy import Rbac
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.settings import Limits
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.intake.limits import Admission
from minik8s_modules.apiserver.reads.hub import Hub
from minik8s_modules.apiserver.serving.app import make_app
from minik8s_modules.apiserver.serving.bootstrap import defaults
from minik8s_modules.apiserver.serving.resources import VERBS, Call, Services
from minik8s_modules.apiserver.serving.startup import ensure_policy
from minik8s_modules.apiserver.verbs.patching import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.base.metrics import Registry
from minik8s_modules.store import readable
from tests.support.wrong_types import WRONG, made, places, put

JSON = "application/json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
ADMIN = User("admin", (MASTERS, ALL_AUTHENTICATED))
JANE = User("jane", (ALL_AUTHENTICATED,))
WORKER = User("system:node:d0", ("system:nodes", ALL_AUTHENTICATED))
EACH = 5
"""Objects of a kind that are wrong somewhere deep."""
STORED = [kind for kind in KINDS.all() if kind.stored and "list" in kind.verbs and kind.group != "metrics.k8s.io"]


class Server:
    """The application on a memory store; ``user`` is who asks."""

    def __init__(self, backend: Backend, hub: Hub) -> None:
        self.backend, self.user = backend, ADMIN
        rbac = Rbac(backend.cache)
        access = Access(rbac, [NodeAuthorizer(backend.cache)], [CarrierAuthorizer(backend.cache, rbac)])
        aggregation = Aggregation(Directory(backend.cache), *[cast("Any", None)] * 3)  # nobody is asked
        services = Services(backend, hub, access, aggregation=aggregation)
        self._app = make_app(services, lambda _environ: self.user, {"livez": {}, "readyz": {}})

    def ask(self, method: str, path: str, body: Any = None, media: str = "", accept: str = "") -> tuple[int, Any]:
        """Return the answer's code and body."""
        data = orjson.dumps(body) if body is not None else None
        environ = EnvironBuilder(path, method=method, data=data, content_type=media or JSON).get_environ()
        environ["HTTP_ACCEPT"] = accept or JSON
        told: list[int] = []
        found = b"".join(self._app(environ, lambda status, *_: told.append(int(status.split()[0]))))
        return told[0], orjson.loads(found or b"{}")


@pytest.fixture
def server(backend: Backend, clock: FakeClock) -> Iterator[Server]:
    """A server where jane may read Pods in ``default``."""
    hub = Hub(clock, backend.cache, Admission(Limits(), Registry()))
    hub.start()
    found = Server(backend, hub)
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
    assert found.ask("POST", path_of(ROLE), {"metadata": {"name": "reads"}, "rules": rules})[0] == 201
    role = {"apiGroup": ROLE.group, "kind": ROLE.kind, "name": "reads"}
    subjects = [{"apiGroup": ROLE.group, "kind": "User", "name": "jane"}]
    binding = {"metadata": {"name": "jane"}, "roleRef": role, "subjects": subjects}
    assert found.ask("POST", path_of(ROLE_BINDING), binding)[0] == 201
    yield found
    hub.stop()


def path_of(kind: Kind, name: str = "") -> str:
    """Return where objects of a kind are, or one of them."""
    root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    below = f"{root}/namespaces/default/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    return f"{below}/{name}" if name else below


def damaged(kind: Kind, seed: str) -> list[JsonObject]:
    """Return objects of a kind that have one value of another type each, and one without metadata."""
    dice, sound = random.Random(seed), made(kind_shape(kind))
    sound |= {"apiVersion": kind.api_version, "kind": kind.kind}
    sound["metadata"] = {"namespace": "default"} if kind.namespaced else {}
    sound["metadata"] |= {"uid": "u", "labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["e.io/f"]}
    sound["metadata"] |= {"creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [{"kind": "x", "name": "x"}]}
    top = [path for path in ((name,) for name in sound) if path not in {("apiVersion",), ("kind",)}]
    deep = [path for path in places(sound) if len(path) > 1]
    found: list[JsonObject] = []
    for path in [
        *top,
        *top,
        ("metadata", "labels"),
        ("metadata", "finalizers"),
        *dice.sample(deep, min(EACH, len(deep))),
    ]:
        obj = copy.deepcopy(sound)
        obj["metadata"]["name"] = f"d{len(found)}"
        put(obj, path, dice.choice(WRONG))
        found.append(obj)
    bare = copy.deepcopy(sound)
    del bare["metadata"]
    return [*found, bare]


def requests(kind: Kind, name: str, sound: JsonObject) -> Iterator[tuple[str, str, Any, str, str]]:
    """Yield what is asked of an object: method, path, body, media type and what is accepted."""
    path, labelled = path_of(kind, name), {"metadata": {"labels": {"x": "y"}}}
    typed = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name, "labels": {"x": "y"}}}
    whole = {**sound, "metadata": {"name": name}}
    for accept in ("", TABLE, "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"):
        yield "GET", path, None, "", accept
    yield "GET", f"{path_of(kind)}?fieldSelector=metadata.name%3D{name}", None, "", TABLE
    for below in ("", *(f"/{each}" for each in kind.subresources if each in {"status", "resize", "scale"})):
        yield "GET", f"{path}{below}", None, "", ""
        for media, body in ((MERGE_PATCH, labelled), (STRATEGIC_MERGE_PATCH, labelled)):
            yield "PATCH", f"{path}{below}", body, media, ""
        yield "PATCH", f"{path}{below}", [{"op": "add", "path": "/metadata/labels", "value": {}}], JSON_PATCH, ""
        yield "PATCH", f"{path}{below}?fieldManager=me&force=true", typed, APPLY_PATCH, ""
        yield "PATCH", f"{path}{below}", {"spec": {"replicas": 1}, "status": {}}, MERGE_PATCH, ""
        scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}, "spec": {"replicas": 1}}
        yield "PUT", f"{path}{below}", scale if below == "/scale" else whole, "application/json", ""
    named = {"metadata": {"name": name}}
    subresources: tuple[tuple[str, JsonObject], ...] = (
        ("binding", {**named, "target": {"kind": "Node", "name": "n"}}),
        ("eviction", named),
    )
    for below, body in subresources:
        if below in kind.subresources:
            yield "POST", f"{path}/{below}?dryRun=All", body, "application/json", ""
    yield "DELETE", f"{path}?dryRun=All", None, "application/json", ""


def others(kind: Kind) -> Iterator[tuple[User, str, str, Any]]:
    """Yield what must work beside such objects: who asks, method, path and body."""
    pod = {"metadata": {"generateName": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    yield ADMIN, "POST", f"{path_of(POD)}?dryRun=All", pod
    service = {"metadata": {"generateName": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}
    yield ADMIN, "POST", "/api/v1/namespaces/default/services?dryRun=All", service
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}
    claim_of = {"metadata": {"generateName": "c"}, "spec": claim}
    yield ADMIN, "POST", "/api/v1/namespaces/default/persistentvolumeclaims?dryRun=All", claim_of
    rule = {"host": "h.e.io", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": BACKEND}]}}
    ingress = {"metadata": {"generateName": "i"}, "spec": {"rules": [rule]}}
    yield ADMIN, "POST", "/apis/networking.k8s.io/v1/namespaces/default/ingresses?dryRun=All", ingress
    yield ADMIN, "POST", f"{path_of(CLUSTER_ROLE)}?dryRun=All", {"metadata": {"generateName": "r"}, "rules": []}
    yield ADMIN, "GET", path_of(kind), None
    yield ADMIN, "GET", f"{path_of(kind)}?labelSelector=a%3Db,c!%3Dd", None
    yield JANE, "GET", path_of(POD), None
    yield WORKER, "GET", path_of(NODE, "d0"), None


BACKEND = {"service": {"name": "s", "port": {"number": 80}}}


@pytest.mark.parametrize("kind", STORED, ids=lambda kind: f"{kind.plural}.{kind.group}-{kind.version}")
def test_an_object_of_wrong_types_is_answered_and_stops_nobody(server: Server, kind: Kind) -> None:
    kept, store = stored_kind(kind), server.backend.store
    objs = damaged(kept, kind.plural)
    names = [f"d{number}" for number in range(len(objs))]
    revisions = [
        store.create(kept.key("default", name), orjson.dumps(obj)) for name, obj in zip(names, objs, strict=True)
    ]
    server.backend.settle(revisions[-1])
    failures: list[object] = []
    for who, method, path, body in others(kind):
        server.user = who
        code, answer = server.ask(method, path, body)
        if code not in {200, 201} and (who is not WORKER or code not in {403, 404}):
            failures.append((method, path, code, answer.get("message")))
    server.user = ADMIN
    code, table = server.ask("GET", path_of(kind), accept=TABLE)
    if code != 200 or not set(names) <= {row["object"]["metadata"]["name"] for row in table["rows"]}:
        failures.append(("GET", "table", code, table.get("message")))
    for name in names:
        for method, path, body, media, accept in requests(kind, name, made(kind_shape(kind))):
            code, answer = server.ask(method, path, body, media, accept)
            if code >= 500:
                stored = store.get(kept.key("default", name))
                failures.append((method, path, media, answer.get("message"), stored and stored.value[:3000]))
    assert not failures, "\n".join(map(str, failures[:6]))
    for name in names:
        assert server.ask("DELETE", path_of(kind, name), {"gracePeriodSeconds": 0})[0] in {200, 404}, name
        clear = [{"op": "add", "path": "/metadata/finalizers", "value": []}]
        server.ask("PATCH", path_of(kind, name), clear, JSON_PATCH)


def test_default_roles_and_bindings_that_cannot_be_read_are_made_again(backend: Backend) -> None:
    ensure_policy(backend)
    found = [each for each in defaults() if each.kind in {CLUSTER_ROLE, ROLE_BINDING}]
    for default in (found[0], found[-1]):
        item = backend.latest(Target(default.kind, default.namespace, default.name))
        obj = orjson.loads(item.data)
        wrong = {field: "text" for field in ("rules", "subjects", "roleRef") if field in obj}
        backend.settle(backend.store.update(item.key, orjson.dumps({**obj, **wrong}), item.revision))
        assert readable.why(default.kind, backend.latest(Target(default.kind, default.namespace, default.name)))
    ensure_policy(backend)
    for default in (found[0], found[-1]):
        assert readable.why(default.kind, backend.latest(Target(default.kind, default.namespace, default.name))) is None


@pytest.mark.parametrize(("part", "code"), [({"spec": "text"}, 400), ({}, 500)], ids=["unreadable", "sound"])
def test_an_error_beside_a_value_of_a_wrong_type_is_in_the_log(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, part: JsonObject, code: int
) -> None:
    meta = {"name": "p", "annotations": {"a": "null"}}
    pod = {"metadata": meta, "spec": {"containers": [{"name": "c", "image": "i"}]}, **part}
    server.backend.settle(server.backend.store.create(POD.key("default", "p"), orjson.dumps(pod)))

    def failing(_call: Call) -> Response:
        raise KeyError("an error of ours")

    monkeypatch.setitem(cast("dict[str, Any]", VERBS), "get", failing)
    assert server.ask("GET", path_of(POD, "p"))[0] == code
    assert "an error of ours" in caplog.text
