"""What a plan is made over, as the API lists it: all pods, nodes and workloads, whoever runs them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    DNS,
    ENDPOINTS,
    INGRESS,
    LEASE,
    NAMESPACE,
    NETWORK_POLICY,
    NODE,
    POD,
    POD_DISRUPTION_BUDGET,
    SERVICE,
    SUBSET,
    VIRTUAL_SERVICE,
)
from minik8s_modules.api.network.authorization import AUTHORIZATION_POLICY
from minik8s_modules.api.network.gateway_api import GATEWAY_KINDS
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.client.interface import Reader
from minik8s_modules.reconcile.housekeeping.static_pods import as_static
from minik8s_modules.reconcile.planning.questions import Operation, Question
from minik8s_modules.reconcile.planning.simulated_autoscalers import SimulatedScaling, simulated_scaling
from minik8s_modules.reconcile.planning.simulated_rollouts import if_served, workload_kind, workloads
from minik8s_modules.reconcile.planning.simulated_services import Cluster
from minik8s_modules.reconcile.planning.simulated_storage import storage
from minik8s_modules.reconcile.planning.simulation import is_gone
from minik8s_modules.reconcile.planning.standalone_plans import certificates_of
from minik8s_modules.scheduler.profiles.deciding import SPREAD_BY, Profiles, Scene
from minik8s_modules.scheduler.profiles.published import NAMESPACE as NAMESPACE_OF_LEASES
from minik8s_modules.scheduler.profiles.published import read_published

_PATIENCE_S = 10.0


def scene_of(api: Any) -> Scene:
    """Return what the scheduler looks at besides pods and nodes; raises as the API does."""
    return Scene(
        Profiles(read_published(api.list(LEASE, NAMESPACE_OF_LEASES).items), api),
        tuple(api.list(NAMESPACE).items),
        tuple(one for kind in SPREAD_BY for one in api.list(kind).items),
        tuple(api.list(POD_DISRUPTION_BUDGET).items),
    )


def listed(api: Reader, question: Question, names: tuple[str, ...]) -> Cluster:
    """Return the cluster without Services and addresses, which a shard knows; raises as the API does.

    Args:
        api: lists.
        question: what is asked decides what is needed.
        names: the shard's nodes.
    """
    pods = tuple(map(as_static, api.list(POD).items))
    scaling = _scaling(question, pods, api)
    known = workloads((*(each.object for each in question.operations), *scaling.scaled), api)
    ingresses = api.list(INGRESS).items if question.others else []
    certificates = frozenset(key for one in ingresses for key in certificates_of(one))
    nodes, endpoints = tuple(api.list(NODE).items), _written(api, question)
    scene = scene_of(api) if question.operations else None
    found = Cluster(pods, nodes, names, known, certificates=certificates, endpoints=endpoints, scene=scene)
    asked = [*(each.object for each in question.operations), *scaling.scaled]
    pods_change = any(obj.get("kind") == POD.kind or workload_kind(obj) is not None for obj in asked)
    policies = tuple(api.list(NETWORK_POLICY).items) if question.operations else ()
    kept = storage(asked, api, pods_change=pods_change)
    gateways = _gateways(api) if question.operations else ()
    return found._replace(
        storage=kept, scaling=scaling, policies=policies, mesh=_mesh(api, question), gateways=gateways
    )


def _gateways(api: Reader) -> tuple[JsonObject, ...]:
    """Return all objects of Gateway API; none where its definitions are not there."""
    return tuple({**one, "kind": kind.kind} for kind in GATEWAY_KINDS for one in if_served(api, kind))


def _mesh(api: Reader, question: Question) -> tuple[JsonObject, ...]:
    """Return VirtualServices, Subsets if there are such, and AuthorizationPolicies, where something changes.

    Raises:
        StatusError: as the API does.
    """
    virtual = api.list(VIRTUAL_SERVICE).items if question.operations else []
    asked = any(each.object.get("kind") == VIRTUAL_SERVICE.kind for each in question.operations)
    subsets = api.list(SUBSET).items if virtual or asked else []
    policies = if_served(api, AUTHORIZATION_POLICY) if question.operations else []
    found = ((VIRTUAL_SERVICE, virtual), (SUBSET, subsets), (AUTHORIZATION_POLICY, policies))
    return tuple({**one, "kind": kind.kind} for kind, items in found for one in items)


def _scaling(question: Question, pods: Iterable[JsonObject], api: Any) -> SimulatedScaling:
    """Return what autoscalers would do about the objects of a question; raises as the API does."""
    gone = [each.object for each in question.operations if is_gone(each)]
    applied = [each.object for each in question.operations if not is_gone(each)]
    return simulated_scaling(applied, gone, pods, api, SystemClock())


def _written(api: Reader, question: Question) -> dict[str, JsonObject]:
    """Return the Endpoints that people may have written for the Services of a question; raises as the API does."""
    services = [one.object for one in question.operations if one.object.get("kind") == SERVICE.kind]
    bare = {str(objects.key(one)) for one in services if not objects.spec(one).get("selector")}
    found = api.list(ENDPOINTS).items if bare else []
    return {str(objects.key(one)): one for one in found if str(objects.key(one)) in bare}


_CONTENT = (SERVICE, INGRESS, DNS, NETWORK_POLICY)
"""What nodes see of a namespace besides its pods; slices go with their Services."""


def with_content(question: Question, api: Reader) -> Question:
    """Return the question with what goes when a namespace of it goes; raises as the API does.

    Pods are ``simulation.py``'s to take. What would be made in such a namespace is left out.
    """
    gone = {objects.name(one.object) for one in question.operations if _is_namespace(one) and is_gone(one)}
    if not gone:
        return question
    kept = [one for one in question.operations if objects.namespace(one.object) not in gone]
    content = [
        Operation("delete", {**obj, "apiVersion": kind.api_version, "kind": kind.kind})
        for namespace in sorted(gone)
        for kind in _CONTENT
        for obj in api.list(kind, namespace).items
    ]
    return question._replace(operations=(*kept, *content))


def _is_namespace(operation: Operation) -> bool:
    return bool(operation.object.get("kind") == "Namespace")
