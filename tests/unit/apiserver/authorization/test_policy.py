"""Roles and bindings compiled: who is allowed, when changes count, and what the default ones say."""

from __future__ import annotations

import pytest

from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.authorization.attributes import Attributes
from minik8s_modules.apiserver.authorization.authorization import Access, Requester
from minik8s_modules.apiserver.authorization.identity import MASTERS, User
from minik8s_modules.apiserver.authorization.policy import Rbac, subject_key
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.serving import bootstrap
from minik8s_modules.apiserver.serving.startup import ensure_policy
from minik8s_modules.apiserver.verbs import writing
from minik8s_modules.apiserver.verbs.collecting_access import CollectingAuthorizer

JANE = User("jane", ("people", "system:authenticated"))
GET_POD = Attributes("get", "", "pods", "default", "web")


@pytest.fixture
def access(backend: Backend) -> Access:
    return Access(Rbac(backend.cache))


def make(backend: Backend, kind: Kind, name: str, requester: Requester | None = None, **fields: object) -> None:
    options = Options(dry_run=False, validation="Strict", warnings=[], requester=requester)
    target = Target(kind, "default" if kind.namespaced else "")
    writing.create(backend, target, {"metadata": {"name": name}, **fields}, options)


def rules(verbs: str, resources: str) -> list[JsonObject]:
    return [{"verbs": verbs.split(), "apiGroups": [""], "resources": resources.split()}]


def bound(backend: Backend, kind: Kind, ref: Kind, role: str, subject: JsonObject, **more: Requester) -> None:
    name = f"{role}-{subject['name']}".replace(":", "-")
    make(backend, kind, name, roleRef={"kind": ref.kind, "name": role}, subjects=[subject], **more)


USER = {"kind": "User", "name": "jane"}


def test_nothing_is_allowed_without_a_role(access: Access):
    assert not access.allowed(JANE, GET_POD)
    with pytest.raises(Forbidden, match='pods "web" is forbidden: User "jane" cannot get resource "pods" in API group'):
        access.check(JANE, GET_POD)
    assert access.allowed(User("anybody", (MASTERS,)), GET_POD)


def test_a_role_counts_at_once_and_only_in_its_namespace(backend: Backend, access: Access):
    make(backend, ROLE, "reader", rules=rules("get", "pods"))
    assert not access.allowed(JANE, GET_POD)
    bound(backend, ROLE_BINDING, ROLE, "reader", USER)
    assert (
        access.why(JANE, GET_POD)
        == 'RBAC: allowed by RoleBinding "reader-jane/default" of Role "reader" to User "jane"'
    )
    assert not access.allowed(JANE, GET_POD._replace(namespace="kube-system"))
    assert not access.allowed(JANE, GET_POD._replace(namespace=""))
    writing.change(
        backend,
        Target(ROLE, "default", "reader"),
        lambda old: {**old, "rules": rules("list", "pods")},
        Options(dry_run=False, validation="Strict", warnings=[]),
    )
    assert not access.allowed(JANE, GET_POD)


def test_thousands_of_names_are_one_look_up(backend: Backend):
    rbac = Rbac(backend.cache)
    make(backend, ROLE, "some", rules=[{**rules("get", "pods")[0], "resourceNames": ["web", "db"]}])
    bound(backend, ROLE_BINDING, ROLE, "some", USER)
    allowed = {name for name in (*map(str, range(3000)), "web", "db") if rbac.why(JANE, GET_POD._replace(name=name))}
    assert allowed == {"web", "db"}
    assert rbac.policy().looked_up == 1


def test_a_cluster_role_holds_where_it_is_bound(backend: Backend, access: Access):
    make(backend, CLUSTER_ROLE, "reader", rules=rules("get", "pods nodes"))
    bound(backend, ROLE_BINDING, CLUSTER_ROLE, "reader", USER)
    assert access.allowed(JANE, GET_POD)
    assert not access.allowed(JANE, Attributes("get", "", "nodes", name="n1"))
    bound(backend, CLUSTER_ROLE_BINDING, CLUSTER_ROLE, "reader", {"kind": "Group", "name": "people"})
    assert access.allowed(JANE, Attributes("get", "", "nodes", name="n1"))


def test_subjects_are_users_groups_and_accounts(backend: Backend, access: Access):
    make(backend, ROLE, "reader", rules=rules("get", "pods"))
    bound(backend, ROLE_BINDING, ROLE, "reader", {"kind": "ServiceAccount", "name": "robot", "namespace": "ci"})
    assert access.allowed(User("system:serviceaccount:ci:robot", ()), GET_POD)
    assert not access.allowed(User("system:serviceaccount:default:robot", ()), GET_POD)
    assert subject_key({"kind": "Group", "name": "a"}, "x") == "Group:a"
    assert subject_key(USER, "x") != subject_key({"kind": "Group", "name": "jane"}, "x")


def test_nobody_gives_what_he_does_not_have(backend: Backend, access: Access):
    requester = Requester(JANE, access, {})
    make(backend, ROLE, "reader", rules=rules("get", "pods"))
    bound(backend, ROLE_BINDING, ROLE, "reader", USER)
    make(backend, ROLE, "same", rules=rules("get", "pods"), requester=requester)
    with pytest.raises(Forbidden) as refused:
        make(backend, ROLE, "more", rules=rules("get delete", "pods"), requester=requester)
    assert refused.value.message == (
        'roles.rbac.authorization.k8s.io "more" is forbidden: user "jane" (groups=["people" "system:authenticated"]) '
        "is attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}'
    )
    make(backend, ROLE, "owner", rules=rules("delete", "pods"))
    joe = {"kind": "User", "name": "joe"}
    bound(backend, ROLE_BINDING, ROLE, "same", joe, requester=requester)
    with pytest.raises(Forbidden, match="not currently held"):
        bound(backend, ROLE_BINDING, ROLE, "owner", joe, requester=requester)
    with pytest.raises(Forbidden, match="not found"):
        bound(backend, ROLE_BINDING, ROLE, "nothing", joe, requester=requester)


def test_escalate_and_bind_are_verbs_that_may_be_given(backend: Backend, access: Access):
    group = "rbac.authorization.k8s.io"
    wanted = [{"verbs": ["escalate", "bind"], "apiGroups": [group], "resources": ["roles"], "resourceNames": ["more"]}]
    make(backend, ROLE, "grantor", rules=wanted)
    bound(backend, ROLE_BINDING, ROLE, "grantor", USER)
    make(backend, ROLE, "more", rules=rules("*", "pods"), requester=Requester(JANE, access, {}))
    bound(backend, ROLE_BINDING, ROLE, "more", {"kind": "User", "name": "joe"}, requester=Requester(JANE, access, {}))
    assert access.allowed(User("joe", ()), GET_POD)


def test_the_default_roles_are_made_kept_and_aggregated(backend: Backend, access: Access):
    ensure_policy(backend)
    admin = backend.get(Target(CLUSTER_ROLE, "", "admin")).object
    assert any("roles" in rule["resources"] for rule in admin["rules"])
    assert any("pods/log" in rule["resources"] for rule in admin["rules"]), "view's rules come through edit"
    revision = backend.store.revision()
    ensure_policy(backend)
    assert backend.store.revision() == revision
    bound(backend, ROLE_BINDING, CLUSTER_ROLE, "edit", USER)
    assert access.allowed(JANE, Attributes("create", "apps", "deployments", "default"))
    assert not access.allowed(JANE, Attributes("create", "rbac.authorization.k8s.io", "roles", "default"))


def test_the_daemons_roles_are_no_wider_than_told(backend: Backend, access: Access):
    ensure_policy(backend)
    scheduler, gateway = User("system:kube-scheduler", ()), User("system:minik8s:gateway", ())
    assert access.allowed(scheduler, Attributes("create", "", "pods/binding", "default", "web"))
    assert not access.allowed(scheduler, Attributes("list", "", "secrets"))
    leases = Attributes("update", "coordination.k8s.io", "leases", "kube-node-lease", "n1")
    assert access.allowed(gateway, leases)
    assert not access.allowed(scheduler, leases)
    assert not access.allowed(gateway, leases._replace(namespace="default"))


def test_the_pilot_reads_what_a_mesh_is_made_of_and_writes_what_it_decided(backend: Backend, access: Access):
    ensure_policy(backend)
    pilot = User("system:minik8s:pilot", ())
    for group, resource in (("", "services"), ("discovery.k8s.io", "endpointslices"), ("", "virtualservices")):
        assert access.allowed(pilot, Attributes("watch", group, resource))
        assert not access.allowed(pilot, Attributes("update", group, resource, "default", "web"))
    assert access.allowed(pilot, Attributes("update", "", "virtualservices/status", "default", "web"))
    assert access.allowed(pilot, Attributes("update", "", "rollingupdates/status", "default", "to-2"))
    assert not access.allowed(pilot, Attributes("update", "", "rollingupdates", "default", "to-2"))
    assert access.allowed(pilot, Attributes("delete", "", "sidecarmappings", "default", "mesh"))
    assert access.allowed(pilot, Attributes("create", "authentication.k8s.io", "tokenreviews"))
    assert access.allowed(pilot, Attributes("update", "coordination.k8s.io", "leases", "kube-system", "minik8s-pilot"))
    # certificates are read by what Gateways name, not by the role (access/gateway_secrets.py)
    assert access.allowed(pilot, Attributes("serve", "gateway.networking.k8s.io", "gateways"))
    assert not access.allowed(pilot, Attributes("get", "", "secrets", "default", "web"))
    # which Pods speak TLS is read off Pods and Namespaces; both are written by others
    for resource in ("pods", "namespaces"):
        assert access.allowed(pilot, Attributes("watch", "", resource))
        assert not access.allowed(pilot, Attributes("update", "", resource, "default", "web"))
    for group, resource in (("", "secrets"), ("", "pods/exec"), ("", "serviceaccounts/token")):
        for verb in ("list", "watch", "create", "update"):
            assert not access.allowed(pilot, Attributes(verb, group, resource, "default", "web")), resource
    for resource in ("pods/exec", "serviceaccounts/token"):
        assert not access.allowed(pilot, Attributes("get", "", resource, "default", "web")), resource


def test_workload_controllers_write_what_they_own_and_the_reconciler_reads_it_for_plans(
    backend: Backend, access: Access
):
    ensure_policy(backend)
    controllers, reconciler = User("system:kube-controller-manager", ()), User("system:minik8s:reconciler", ())
    for resource in ("replicasets", "replicasets/status", "deployments/status", "controllerrevisions"):
        assert access.allowed(controllers, Attributes("update", "apps", resource, "default", "web"))
        assert not access.allowed(reconciler, Attributes("update", "apps", resource, "default", "web"))
    replication = Attributes("update", "", "replicationcontrollers/status", "default", "web")
    assert access.allowed(controllers, replication)
    assert not access.allowed(controllers, replication._replace(resource="replicationcontrollers"))
    assert access.allowed(reconciler, Attributes("list", "", "replicationcontrollers"))
    assert access.allowed(controllers, Attributes("create", "", "pods", "default"))
    assert access.allowed(controllers, Attributes("update", "", "resourcequotas/status", "default", "q"))
    assert access.allowed(controllers, Attributes("update", "policy", "poddisruptionbudgets/status", "default", "b"))
    assert not access.allowed(controllers, Attributes("update", "networking.k8s.io", "ingresses", "default", "i"))
    assert not access.allowed(controllers, Attributes("create", "rbac.authorization.k8s.io", "roles", "default"))
    assert not access.allowed(controllers, Attributes("create", "", "secrets", "default"))
    assert access.allowed(reconciler, Attributes("list", "apps", "deployments"))


def test_drivers_of_volumes_are_registered_by_the_reconciler_and_attached_by_the_controllers(
    backend: Backend, access: Access
):
    ensure_policy(backend)
    controllers, reconciler = User("system:kube-controller-manager", ()), User("system:minik8s:reconciler", ())
    scheduler, group = User("system:kube-scheduler", ()), "storage.k8s.io"
    assert access.allowed(reconciler, Attributes("update", group, "csinodes", name="n1"))
    assert not access.allowed(scheduler, Attributes("update", group, "csinodes", name="n1"))
    assert access.allowed(scheduler, Attributes("watch", group, "csinodes"))
    assert access.allowed(reconciler, Attributes("watch", group, "volumeattachments"))
    assert access.allowed(controllers, Attributes("create", group, "volumeattachments"))
    for user in (reconciler, scheduler):
        assert not access.allowed(user, Attributes("create", group, "volumeattachments"))
    assert not access.allowed(controllers, Attributes("update", group, "volumeattachments/status", name="v"))


@pytest.mark.parametrize("verb", ["get", "list", "watch", "patch", "delete", "deletecollection"])
def test_objects_of_every_kind_are_collected_and_nothing_below_them(verb: str):
    collecting, controllers = CollectingAuthorizer(), User("system:kube-controller-manager", ())
    for group, resource in (("networking.k8s.io", "ingresses"), ("", "secrets"), ("example.com", "widgets")):
        assert collecting.why(controllers, Attributes(verb, group, resource, "default", "i"))
        assert not collecting.why(controllers, Attributes(verb, group, f"{resource}/status", "default", "i"))
        assert not collecting.why(User("system:kube-scheduler", ()), Attributes(verb, group, resource, "default", "i"))
    assert not collecting.why(controllers, Attributes("update", "", "secrets", "default", "i"))
    assert not collecting.why(controllers, Attributes(verb, path="/metrics"))


def test_what_is_behind_services_and_routes_is_the_controllers_to_write_and_the_reconcilers_to_read(
    backend: Backend, access: Access
):
    ensure_policy(backend)
    controllers, reconciler = User("system:kube-controller-manager", ()), User("system:minik8s:reconciler", ())
    for group, resource in (
        ("", "endpoints"),
        ("discovery.k8s.io", "endpointslices"),
        ("", "dns/status"),
        ("networking.k8s.io", "ingresses/status"),
    ):
        asked = Attributes("update", group, resource, "default", "web")
        assert access.allowed(controllers, asked), resource
        assert not access.allowed(reconciler, asked), resource
        assert not access.allowed(User("system:minik8s:gateway", ()), asked), resource
    assert not access.allowed(controllers, Attributes("update", "", "dns", "default", "web"))
    for group, resource in (
        ("", "services"),
        ("", "dns"),
        ("discovery.k8s.io", "endpointslices"),
        ("networking.k8s.io", "ingresses"),
        ("networking.k8s.io", "ingressclasses"),
        ("minik8s.io", "hostgrants"),
    ):
        assert access.allowed(reconciler, Attributes("watch", group, resource)), resource
        assert not access.allowed(reconciler, Attributes("patch", group, resource, "default", "web")), resource


@pytest.mark.parametrize("role", ["view", "edit", "admin"])
def test_grants_of_hosts_are_read_by_who_sees_the_whole_cluster_and_written_by_its_administrators(
    backend: Backend, access: Access, role: str
):
    ensure_policy(backend)
    bound(backend, CLUSTER_ROLE_BINDING, CLUSTER_ROLE, role, USER)
    assert access.allowed(JANE, Attributes("list", "minik8s.io", "hostgrants"))
    for verb in ("create", "update", "patch", "delete", "deletecollection"):
        assert not access.allowed(JANE, Attributes(verb, "minik8s.io", "hostgrants", "", "default")), verb


def test_ranges_of_pod_addresses_are_claimed_by_those_who_give_them_and_freed_by_neither_reconciler_nor_node(
    backend: Backend, access: Access
):
    ensure_policy(backend)
    controllers, reconciler = User("system:kube-controller-manager", ()), User("system:minik8s:reconciler", ())
    claim = Attributes("create", "minik8s.io", "podcidrs")
    assert access.allowed(controllers, claim)
    assert access.allowed(reconciler, claim)
    assert access.allowed(controllers, Attributes("update", "minik8s.io", "podcidrs/status", "", "10.244.1.0-24"))
    node = User("system:node:n1", ("system:nodes",))
    for who in (reconciler, node):
        assert not access.allowed(who, Attributes("delete", "minik8s.io", "podcidrs", "", "10.244.1.0-24"))


def test_tokens_of_newcomers_are_claimed_by_the_signer_and_settings_shared_by_the_reconciler(
    backend: Backend, access: Access
):
    ensure_policy(backend)
    signer, reconciler = User("system:minik8s:certificates", ()), User("system:minik8s:reconciler", ())
    token = Attributes("update", "", "secrets", "kube-system", "bootstrap-token-abcdef")
    assert access.allowed(signer, token)
    assert not access.allowed(signer, token._replace(namespace="default"))
    assert not access.allowed(signer, token._replace(verb="list"))
    lease = Attributes("get", "coordination.k8s.io", "leases", "kube-node-lease", "n1")
    assert access.allowed(signer, lease)
    assert not access.allowed(signer, lease._replace(verb="update"))
    shared = Attributes("update", "", "configmaps", "kube-system", "minik8s-nodes")
    assert access.allowed(reconciler, shared)
    assert not access.allowed(reconciler, shared._replace(name="minik8s-cluster"))
    kind = Attributes("create", "certificates.k8s.io", "certificatesigningrequests/nodeclient")
    assert access.allowed(User("system:bootstrap:abcdef", ("system:bootstrappers",)), kind)
    node = User("system:node:n1", ("system:nodes",))
    assert not access.allowed(node, kind)
    for own in ("selfnodeclient", "selfnodeserver"):
        assert access.allowed(node, kind._replace(resource=f"certificatesigningrequests/{own}"))
    info = Attributes("get", "", "configmaps", "kube-public", "cluster-info")
    nobody = User("system:anonymous", ("system:unauthenticated",))
    assert access.allowed(nobody, info)
    assert not access.allowed(nobody, info._replace(name="kube-root-ca.crt"))


def test_reconciling_takes_back_that_a_pilot_reads_every_secret():
    default = next(each for each in bootstrap.defaults() if each.name == "system:minik8s:pilot" and "rules" in each.obj)
    withdrawn = {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}
    upgraded = bootstrap.reconciled({**default.obj, "rules": [withdrawn, *default.obj["rules"]]}, default)
    assert upgraded["rules"] == default.obj["rules"]
    assert not any("secrets" in rule["resources"] for rule in upgraded["rules"])


def test_reconciling_puts_back_what_is_missing_and_keeps_what_was_added():
    default = next(each for each in bootstrap.defaults() if each.name == "system:basic-user" and "rules" in each.obj)
    added = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
    present = {**default.obj, "rules": [added, default.obj["rules"][0]]}
    assert bootstrap.reconciled(present, default)["rules"] == [added, *default.obj["rules"]]
    assert bootstrap.reconciled(default.obj, default) is default.obj
    frozen = {**present, "metadata": {"annotations": {bootstrap.AUTO_UPDATE: "false"}}}
    assert bootstrap.reconciled(frozen, default) is frozen
