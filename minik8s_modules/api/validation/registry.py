"""Which function validates which kind: ``CREATE`` looks at an object alone, ``UPDATE`` at the new and the old one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.validation import others, pods, rbac, services

CREATE: Mapping[tuple[str, str], Callable[[JsonObject], list[Cause]]] = {
    ("", "Pod"): pods.validate_pod,
    ("", "Service"): services.validate_service,
    ("", "Endpoints"): services.validate_endpoints,
    ("discovery.k8s.io", "EndpointSlice"): services.validate_endpoint_slice,
    ("", "ConfigMap"): others.validate_config_map,
    ("", "Secret"): others.validate_secret,
    ("", "Namespace"): others.validate_namespace,
    ("", "Node"): others.validate_node,
    ("", "Event"): others.validate_event,
    ("events.k8s.io", "Event"): others.validate_event,
    ("coordination.k8s.io", "Lease"): others.validate_lease,
    ("minik8s.io", "PodAddress"): others.validate_pod_address,
    ("minik8s.io", "Plan"): others.validate_plan,
    ("authorization.k8s.io", "SelfSubjectAccessReview"): others.validate_access_review,
    ("authorization.k8s.io", "SubjectAccessReview"): rbac.validate_subject_review,
    ("authorization.k8s.io", "LocalSubjectAccessReview"): rbac.validate_local_review,
    ("authorization.k8s.io", "SelfSubjectRulesReview"): rbac.validate_rules_review,
    ("rbac.authorization.k8s.io", "Role"): rbac.validate_role,
    ("rbac.authorization.k8s.io", "ClusterRole"): rbac.validate_cluster_role,
    ("rbac.authorization.k8s.io", "RoleBinding"): rbac.validate_role_binding,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): rbac.validate_cluster_role_binding,
}
UPDATE: Mapping[tuple[str, str], Callable[[JsonObject, JsonObject], list[Cause]]] = {
    ("", "Pod"): pods.validate_pod_update,
    ("", "Service"): services.validate_service_update,
    ("discovery.k8s.io", "EndpointSlice"): services.validate_endpoint_slice_update,
    ("", "ConfigMap"): others.validate_config_map_update,
    ("", "Secret"): others.validate_secret_update,
    ("", "Node"): others.validate_node_update,
    ("minik8s.io", "PodAddress"): others.validate_pod_address_update,
    ("rbac.authorization.k8s.io", "RoleBinding"): rbac.validate_binding_update,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): rbac.validate_binding_update,
}
