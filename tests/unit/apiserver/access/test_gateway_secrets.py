"""Attack: read Secrets by Gateways that one may make, without being the pilot, or by a Gateway that is not its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING
from minik8s_modules.api.network.gateway_api import CONTROLLER, GATEWAY_KINDS, GROUP
from minik8s_modules.apiserver.access.gateway_secrets import GatewaySecrets
from minik8s_modules.apiserver.authorization.attributes import Attributes
from minik8s_modules.apiserver.authorization.identity import User
from minik8s_modules.apiserver.authorization.policy import Rbac
from minik8s_modules.store.cache import WatchCache
from minik8s_modules.store.memory import MemoryStore

PILOT, OPERATOR = User("system:minik8s:pilot", ()), User("operator", ())
GET = Attributes("get", "", "secrets", "shop", "tls")


class World:
    """Secrets by what is stored."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.cache = WatchCache(self.store)
        self.cache.start()
        assert self.cache.wait_ready(20)
        self.secrets = GatewaySecrets(self.cache, Rbac(self.cache))

    def put(self, kind: Kind, name: str, space: str = "shop", **fields: Any) -> None:
        """Make an object, in the namespace shop or another."""
        meta = {"name": name, **({"namespace": space} if kind.namespaced else {})}
        value = json.dumps({"metadata": meta, **fields}).encode()
        assert self.cache.wait_for(self.store.create(kind.key(space, name), value), 60)

    def let(self, user: User, *verbs: str) -> None:
        """Give a user verbs on all of Gateway API."""
        name = user.name
        rule = {"verbs": [*verbs], "apiGroups": [GROUP], "resources": ["*"]}
        self.put(CLUSTER_ROLE, name, rules=[rule])
        ref = {"kind": "ClusterRole", "name": name}
        self.put(CLUSTER_ROLE_BINDING, name, roleRef=ref, subjects=[{"kind": "User", "name": name}])

    def gateway(self, name: str, of_class: str, space: str = "") -> None:
        """Make a Gateway that names the certificate, in its namespace or another."""
        ref = {"certificateRefs": [{"name": "tls", **({"namespace": space} if space else {})}]}
        spec = {"gatewayClassName": of_class, "listeners": [{"name": "s", "port": 443, "tls": ref}]}
        self.put(GATEWAY_KINDS.gateways, name, spec=spec)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    made.put(GATEWAY_KINDS.classes, "ours", spec={"controllerName": CONTROLLER})
    made.put(GATEWAY_KINDS.classes, "foreign", spec={"controllerName": "example.com/gateways"})
    yield made
    made.cache.stop()
    made.store.close()


def test_who_may_do_everything_with_gateways_reads_no_secrets(world: World):
    world.let(OPERATOR, "*")
    world.let(PILOT, "serve")
    world.gateway("edge", "ours")
    assert world.secrets.why(PILOT, GET) == "Gateway shop/edge names it"
    assert world.secrets.why(OPERATOR, GET) == ""


def test_the_pilot_needs_its_role(world: World):
    world.gateway("edge", "ours")
    assert world.secrets.why(PILOT, GET) == ""


def test_a_gateway_of_a_foreign_class_or_of_none_counts_for_nothing(world: World):
    world.let(PILOT, "serve")
    world.gateway("theirs", "foreign")
    world.gateway("lost", "gone")
    assert world.secrets.why(PILOT, GET) == ""
    world.gateway("edge", "ours")
    assert world.secrets.why(PILOT, GET)
    assert world.secrets.why(PILOT, GET._replace(name="other")) == ""


@pytest.mark.parametrize("spec", ["text", {"from": "text"}, {"from": [5]}, {"from": 5, "to": []}])
def test_a_grant_that_cannot_be_read_allows_nothing_and_ends_no_other(world: World, spec: object):
    world.let(PILOT, "serve")
    world.gateway("edge", "ours", "vault")
    wanted = GET._replace(namespace="vault")
    world.put(GATEWAY_KINDS.grants, "a-broken-one", "vault", spec=spec)
    assert world.secrets.why(PILOT, wanted) == ""
    source = {"group": GROUP, "kind": "Gateway", "namespace": "shop"}
    world.put(GATEWAY_KINDS.grants, "b", "vault", spec={"from": [source], "to": [{"group": "", "kind": "Secret"}]})
    assert world.secrets.why(PILOT, wanted) == "Gateway shop/edge names it"
