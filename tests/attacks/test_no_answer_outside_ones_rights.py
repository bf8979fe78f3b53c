"""Nobody gets an answer outside his rights, whatever he asks for: random rights and requests, compared with a model.

Users get random roles and bindings (verbs, groups, wildcards, subresources, resourceNames, namespaces, aggregation),
two nodes have what nodes have. They get, list, watch and delete collections (dry runs), with selectors that are
contradictory, negated, escaped or broken, by pages, and in every form. Each object in each answer, and in each event of
a watch, must be one that ``rights_model`` lets them see; of every request that it knows whole, status and names must be
its own.
``MINIK8S_RIGHTS_CASES`` is the number of requests, ``MINIK8S_RIGHTS_SEED`` says which: `make test` asks the same ones
each time, `make test-long` others.
"""

from __future__ import annotations

import json
import os
import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import pytest

from tests.attacks.rights_model import (
    GROUPS,
    Case,
    Known,
    Node,
    Place,
    Rule,
    User,
    random_case,
    random_rule,
)
from tests.integration.apiserver.conftest import pod
from tests.support.api_watch import ApiWatch
from tests.support.apiserver import Answer, ApiServerProcess

CASES = int(os.environ.get("MINIK8S_RIGHTS_CASES", "500"))
SEED = int(os.environ.get("MINIK8S_RIGHTS_SEED", "1"))
A_ROUND = 100
RBAC = "rbac.authorization.k8s.io"
FORMS = ("", "", "", "Table", "PartialObjectMetadata")
MERGE = {"Content-Type": "application/merge-patch+json"}
OK, BAD, FORBIDDEN = 200, 400, 403
Asker = User | Node
Seen = frozenset[tuple[str, str]]
"""Namespaces and names."""


class Opened(NamedTuple):
    """A watch that is to be read when everything has changed."""

    asker: Asker
    case: Case
    watch: ApiWatch
    told: str


class Game:
    """A server, two namespaces full of objects, and what the model knows of them."""

    def __init__(self, server: ApiServerProcess, seed: int) -> None:
        self.server, self.dice = server, random.Random(seed)
        self.tag = uuid.uuid4().hex[:6]
        self.spaces = (f"ra-{self.tag}", f"rb-{self.tag}")
        self.nodes = (f"n1-{self.tag}", f"n2-{self.tag}")
        self.world: dict[Place, Known] = {}
        self._tokens: list[str] = []
        self._connection = server.connection()
        self._fill()

    def send(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        """Send a request as the administrator, or as whom ``headers`` impersonate."""
        data = None if body is None else json.dumps(body).encode()
        self._connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
        response = self._connection.getresponse()
        return Answer(response.status, {}, response.read())

    def made(self, path: str, body: Any) -> None:
        """Create an object."""
        answer = self.send("POST", path, body)
        assert answer.code == 201, answer.body

    def _fill(self) -> None:
        for name in self.nodes:
            self.made("/api/v1/nodes", {"metadata": {"name": name}})
            self.world[Place("nodes", "", name)] = Known({"spec.unschedulable": "false"}, {})
        for number, space in enumerate(self.spaces):
            self.made("/api/v1/namespaces", {"metadata": {"name": space}})
            for name in ("a", "b", "mounted"):
                labels = {"app": "xy"[len(name) % 2]} if name != "b" else {}
                self._put("secrets", space, name, labels, {"type": "Opaque"})
                self._put("configmaps", space, name, labels, {})
                self._put_deployment(space, name, labels)
            self._put_pod(space, "a", self.nodes[0], {"secret": {"secretName": "mounted"}})
            self._put_pod(space, "b", self.nodes[1], {"secret": {"secretName": ("a", "b")[number]}})
            self._put_pod(space, "mounted", self.nodes[number], {"configMap": {"name": "mounted"}})

    def _put(self, plural: str, space: str, name: str, labels: Mapping[str, str], fields: Mapping[str, str]) -> None:
        self.made(path_of(plural, space), {"metadata": {"name": name, "labels": labels}})
        self.world[Place(plural, space, name)] = Known(fields, labels)

    def _put_deployment(self, space: str, name: str, labels: Mapping[str, str]) -> None:
        containers = [{"name": "c", "image": "busybox"}]
        template = {"metadata": {"labels": {"d": name}}, "spec": {"containers": containers}}
        spec = {"selector": {"matchLabels": {"d": name}}, "template": template}
        self.made(path_of("deployments", space), {"metadata": {"name": name, "labels": labels}, "spec": spec})
        self.world[Place("deployments", space, name)] = Known({}, labels)

    def _put_pod(self, space: str, name: str, node: str, source: dict[str, Any]) -> None:
        body = pod(name, nodeName=node, volumes=[{"name": "v", **source}])
        self.made(path_of("pods", space), body)
        plural = "secrets" if "secret" in source else "configmaps"
        named = source.get("secret", {}).get("secretName") or source["configMap"]["name"]
        # what every pod mounts besides
        root = Place("configmaps", space, "kube-root-ca.crt")
        fields = {"spec.nodeName": node, "status.phase": "Pending"}
        self.world[Place("pods", space, name)] = Known(fields, {}, frozenset({Place(plural, space, named), root}))

    def askers(self, number: int) -> list[Asker]:
        """Return new users, whose roles the server knows, and the nodes."""
        found: list[Asker] = [Node(name) for name in self.nodes]
        for each in range(5):
            name = f"u{number}-{each}-{self.tag}"
            rules = tuple(random_rule(self.dice, self.spaces) for _ in range(self.dice.randint(0, 4)))
            for index, rule in enumerate(rules):
                self._bind(f"{name}-{index}", name, rule)
            found.append(User(name, rules))
        return found

    def _bind(self, name: str, user: str, rule: Rule) -> None:
        """Grant a rule: by a Role, a ClusterRole or an aggregated one, everywhere or in a namespace."""
        base = f"/apis/{RBAC}/v1"
        inside = f"{base}/namespaces/{rule.scope}" if rule.scope else base
        kind = "Role" if rule.scope and self.dice.random() < 0.5 else "ClusterRole"
        aggregated = kind == "ClusterRole" and self.dice.random() < 0.25
        role: dict[str, Any] = {"metadata": {"name": name}, "rules": [rule.row()]}
        if aggregated:
            part = {"metadata": {"name": f"{name}-part", "labels": {"part-of": name}}, "rules": [rule.row()]}
            self.made(f"{base}/clusterroles", part)
            selectors = [{"matchLabels": {"part-of": name}}]
            role = {"metadata": {"name": name}, "aggregationRule": {"clusterRoleSelectors": selectors}}
        self.made(f"{inside}/roles" if kind == "Role" else f"{base}/clusterroles", role)
        subject = {"kind": "User", "name": user, "apiGroup": RBAC}
        ref = {"kind": kind, "name": name, "apiGroup": RBAC}
        binding = {"metadata": {"name": name}, "subjects": [subject], "roleRef": ref}
        self.made(f"{inside}/{'rolebindings' if rule.scope else 'clusterrolebindings'}", binding)

    def play(self, asker: Asker, case: Case, message: str) -> Opened | None:
        """Ask, and check the answer; a watch that has begun is checked later."""
        if case.verb == "watch":
            return self._watch(asker, case, message)
        form = self.dice.choice(FORMS)
        if self._tokens and case.verb == "list" and self.dice.random() < 0.1:
            case = case._replace(exact=False)
            foreign = f"&limit=2&continue={quote(self.dice.choice(self._tokens))}"
            answer = self._ask(asker, case, form, foreign)
            self._sound(asker, case, names_of(answer.json) if answer.code == OK else frozenset(), message)
            return None
        paged = case.verb == "list" and self.dice.random() < 0.3
        answer, seen = self._pages(asker, case, form) if paged else self._whole(asker, case, form)
        self._judge(asker, case, answer.code, seen, f"{message}: {answer.body[:300]!r}")
        return None

    def _ask(self, asker: Asker, case: Case, form: str, more: str = "") -> Answer:
        many = "List" if form.startswith("Partial") and case.verb == "list" else ""
        headers = {**impersonating(asker), **accepting(f"{form}{many}")}
        method = "DELETE" if case.verb == "deletecollection" else "GET"
        return self.send(method, query_of(case) + more, headers=headers)

    def _whole(self, asker: Asker, case: Case, form: str) -> tuple[Answer, Seen]:
        plain = case.verb == "deletecollection" or "/" in case.resource
        answer = self._ask(asker, case, "" if plain else form, "&dryRun=All")
        return answer, names_of(answer.json) if answer.code == OK else frozenset()

    def _pages(self, asker: Asker, case: Case, form: str) -> tuple[Answer, Seen]:
        seen: set[tuple[str, str]] = set()
        token = "&limit=2"
        while True:
            answer = self._ask(asker, case, form, token)
            if answer.code != OK:
                return answer, frozenset(seen)
            found = answer.json
            seen |= names_of(found)
            if not found["metadata"].get("continue"):
                return answer, frozenset(seen)
            self._tokens.append(found["metadata"]["continue"])
            token = f"&limit=2&continue={quote(self._tokens[-1])}"

    def _watch(self, asker: Asker, case: Case, message: str) -> Opened | None:
        headers = {**impersonating(asker), **accepting(self.dice.choice(FORMS))}
        watch = ApiWatch(self.server, f"{query_of(case)}&timeoutSeconds=3", headers)
        if watch.response.status == OK:
            return Opened(asker, case, watch, message)
        self._judge(asker, case, watch.response.status, frozenset(), message)
        watch.close()
        return None

    def touch(self) -> None:
        """Change every object, so that each watch that may see it has something to tell."""
        patch = {"metadata": {"annotations": {"turn": uuid.uuid4().hex}}}
        for place in self.world:
            path = f"{path_of(place.resource, place.namespace)}/{place.name}"
            assert self.send("PATCH", path, patch, MERGE).code == OK

    def read(self, opened: Opened) -> None:
        """Read a watch to its end and check what it told."""
        seen: set[tuple[str, str]] = set()
        while line := opened.watch.response.readline():
            seen |= names_of(json.loads(line)["object"])
        opened.watch.close()
        self._judge(opened.asker, opened.case, OK, frozenset(seen), opened.told)

    def _judge(self, asker: Asker, case: Case, code: int, seen: Seen, message: str) -> None:
        self._sound(asker, case, seen, message)
        if not case.exact:
            return
        if not asker.may(case, self.world):
            assert code == FORBIDDEN, message
        elif not case.readable:
            assert code == BAD, message
        elif case.verb == "get" and Place(case.resource.partition("/")[0], case.namespace, case.name) not in self.world:
            assert code == 404, message
        else:
            wanted = {(one.namespace, one.name) for one, known in self.world.items() if case.selects(one, known)}
            ours = {one for one in seen if one in self._ours(case)}
            assert (code, ours) == (OK, wanted), message

    def _ours(self, case: Case) -> set[tuple[str, str]]:
        plural = case.resource.partition("/")[0]
        return {(one.namespace, one.name) for one in self.world if one.resource == plural}

    def _sound(self, asker: Asker, case: Case, seen: Seen, message: str) -> None:
        outside = [one for one in seen if not asker.holds(case.verb, Place(case.resource, *one), self.world)]
        assert not outside, f"{message}: shows {outside}"

    def review(self, asker: Asker, case: Case, message: str) -> None:
        """Check that reviews say what requests are answered: the administrator's of the user, and the user's own."""
        plural, _, sub = case.resource.partition("/")
        attributes = {"verb": case.verb, "group": GROUPS[plural], "resource": plural, "subresource": sub}
        attributes |= {"namespace": case.namespace, "name": case.name}
        allowed = asker.may(case._replace(terms=(), fields=""), self.world)
        path = "/apis/authorization.k8s.io/v1"
        spec: dict[str, Any] = {"resourceAttributes": attributes}
        own = self.send("POST", f"{path}/selfsubjectaccessreviews", {"spec": spec}, impersonating(asker))
        other = {**spec, "user": asker.name, "groups": [*asker.groups, "system:authenticated"]}
        answers = [own, self.send("POST", f"{path}/subjectaccessreviews", {"spec": other})]
        assert [one.json["status"]["allowed"] for one in answers] == [allowed, allowed], f"{message}: {answers}"

    def close(self) -> None:
        """Take everything away."""
        for name in self.nodes:
            self.send("DELETE", f"/api/v1/nodes/{name}")
        for space in self.spaces:
            self.send("DELETE", f"/api/v1/namespaces/{space}")
        self._connection.close()


def path_of(resource: str, namespace: str) -> str:
    """Return the path of a collection."""
    group = GROUPS[resource.partition("/")[0]]
    base = f"/apis/{group}/v1" if group else "/api/v1"
    return f"{base}/namespaces/{namespace}/{resource}" if namespace else f"{base}/{resource}"


def query_of(case: Case) -> str:
    """Return the path and query of a request, but for what its form adds."""
    plural, _, sub = case.resource.partition("/")
    path = "/".join(filter(None, (path_of(plural, case.namespace), case.name, sub)))
    watch = "1" if case.verb == "watch" else ""
    query = {"fieldSelector": case.fields, "labelSelector": case.label_selector, "watch": watch}
    return f"{path}?{urlencode({key: value for key, value in query.items() if value})}"


def impersonating(asker: Asker) -> dict[str, str]:
    """Return the headers that let the administrator ask as somebody else."""
    groups = {"Impersonate-Group": ",".join(asker.groups)} if asker.groups else {}
    return {"Impersonate-User": asker.name, **groups}


def accepting(form: str) -> dict[str, str]:
    """Return the header that asks for a form."""
    return {"Accept": f"application/json;as={form};v=v1;g=meta.k8s.io"} if form else {}


def names_of(found: Any) -> Seen:
    """Return the objects that an answer of any form shows."""
    if found["kind"] == "Table":
        return frozenset().union(*(names_of(row["object"]) for row in found["rows"]))
    if "items" in found:
        return frozenset(place_of(one) for one in found["items"])
    return frozenset({place_of(found)})


def place_of(obj: Any) -> tuple[str, str]:
    """Return an object's namespace and name."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


@pytest.fixture
def game(server: ApiServerProcess) -> Iterator[Game]:
    made = Game(server, SEED)
    yield made
    made.close()


def test_no_answer_is_outside_ones_rights(game: Game):
    for first in range(0, CASES, A_ROUND):
        askers: Sequence[Asker] = game.askers(first)
        opened = []
        for number in range(first, min(first + A_ROUND, CASES)):
            asker = game.dice.choice(askers)
            case = random_case(game.dice, game.spaces, game.nodes, asker)
            text = f"MINIK8S_RIGHTS_SEED={SEED}, case {number}: {asker} asks {case}"
            if case.exact and game.dice.random() < 0.2:
                game.review(asker, case, text)
            opened.append(game.play(asker, case, text))
        game.touch()
        for each in filter(None, opened):
            game.read(each)
    print(f"{CASES} requests with seed {SEED}")
