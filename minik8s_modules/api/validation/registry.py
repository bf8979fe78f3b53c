"""Which function validates which kind: ``CREATE`` looks at an object alone, ``UPDATE`` at the new and the old one.

``CREATE_ONLY`` is not asked again when the object changes; ``STATUS`` looks at what its status subresource writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from minik8s_modules.api.custom import definitions
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.validation import (
    autoscalers,
    csi,
    jobs,
    networking,
    originals,
    others,
    policies,
    quotas,
    rbac,
    services,
    storage,
    workloads,
)
from minik8s_modules.api.validation.extensions import admission_policies, api_services, webhooks
from minik8s_modules.api.validation.pods import mirrors, pods


def _definition(definition: JsonObject) -> list[Cause]:
    return definitions.validate(definition) + webhooks.conversion(definition)


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
    ("minik8s.io", "PodCIDR"): others.validate_pod_cidr,
    ("minik8s.io", "HostGrant"): others.validate_host_grant,
    ("minik8s.io", "Plan"): others.validate_plan,
    ("authorization.k8s.io", "SelfSubjectAccessReview"): others.validate_access_review,
    ("authorization.k8s.io", "SubjectAccessReview"): rbac.validate_subject_review,
    ("authorization.k8s.io", "LocalSubjectAccessReview"): rbac.validate_local_review,
    ("authorization.k8s.io", "SelfSubjectRulesReview"): rbac.validate_rules_review,
    ("rbac.authorization.k8s.io", "Role"): rbac.validate_role,
    ("rbac.authorization.k8s.io", "ClusterRole"): rbac.validate_cluster_role,
    ("rbac.authorization.k8s.io", "RoleBinding"): rbac.validate_role_binding,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): rbac.validate_cluster_role_binding,
    ("apps", "ReplicaSet"): workloads.validate_replica_set,
    ("", "ReplicationController"): workloads.validate_replication_controller,
    ("", "PodTemplate"): workloads.validate_pod_template,
    ("apps", "Deployment"): workloads.validate_deployment,
    ("apps", "StatefulSet"): workloads.validate_stateful_set,
    ("apps", "DaemonSet"): workloads.validate_daemon_set,
    ("apps", "ControllerRevision"): workloads.validate_controller_revision,
    ("batch", "Job"): jobs.validate_job,
    ("batch", "CronJob"): jobs.validate_cron_job,
    ("autoscaling", "HorizontalPodAutoscaler"): autoscalers.validate_autoscaler,
    ("policy", "PodDisruptionBudget"): policies.validate_budget,
    ("", "ResourceQuota"): quotas.validate_quota,
    ("", "LimitRange"): policies.validate_limit_range,
    ("scheduling.k8s.io", "PriorityClass"): policies.validate_priority_class,
    ("node.k8s.io", "RuntimeClass"): policies.validate_runtime_class,
    ("certificates.k8s.io", "CertificateSigningRequest"): policies.validate_signing_request,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    ("apiregistration.k8s.io", "APIService"): api_services.validate,
    ("", "PersistentVolume"): storage.validate_volume,
    ("", "PersistentVolumeClaim"): storage.validate_claim,
    ("storage.k8s.io", "StorageClass"): storage.validate_storage_class,
    ("storage.k8s.io", "CSIDriver"): csi.validate_driver,
    ("storage.k8s.io", "CSINode"): csi.validate_node,
    ("storage.k8s.io", "VolumeAttachment"): csi.validate_attachment,
    ("storage.k8s.io", "CSIStorageCapacity"): csi.validate_capacity,
    ("networking.k8s.io", "Ingress"): networking.validate_ingress,
    ("networking.k8s.io", "IngressClass"): networking.validate_ingress_class,
    ("networking.k8s.io", "NetworkPolicy"): networking.validate_network_policy,
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): webhooks.validate_configuration,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): webhooks.validate_configuration,
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): admission_policies.validate_policy,
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"): admission_policies.validate_policy_binding,
    ("", "DNS"): originals.validate_dns,
    ("", "VirtualService"): originals.validate_virtual_service,
    ("", "Subset"): originals.validate_subset,
    ("", "RollingUpdate"): originals.validate_rolling_update,
    ("", "SidecarMapping"): originals.validate_sidecar_mapping,
    ("", "HorizontalPodAutoscaler"): originals.validate_autoscaler,
    ("", "Job"): originals.validate_job,
}
OF_SPEC = frozenset({("", "Pod")})
"""Kinds whose check looks at nothing but ``spec``, and what no update changes: one that leaves it has nothing new.

A Pod's check also looks at ``metadata.resourceVersion``, which says that it is one of an update: some fields of the
spec may come by an update alone, and those are there by then.
"""
CREATE_ONLY: Mapping[tuple[str, str], Callable[[JsonObject], list[Cause]]] = {
    ("", "Pod"): mirrors.validate_new,
    ("networking.k8s.io", "Ingress"): networking.validate_new_ingress,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): definitions.validate_new,
}
STATUS: Mapping[tuple[str, str], Callable[[JsonObject], list[Cause]]] = {
    ("", "Node"): others.validate_node_status,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): definitions.validate_status,
}
UPDATE: Mapping[tuple[str, str], Callable[[JsonObject, JsonObject], list[Cause]]] = {
    ("", "Pod"): pods.validate_pod_update,
    ("", "Service"): services.validate_service_update,
    ("discovery.k8s.io", "EndpointSlice"): services.validate_endpoint_slice_update,
    ("", "ConfigMap"): others.validate_config_map_update,
    ("", "Secret"): others.validate_secret_update,
    ("", "Node"): others.validate_node_update,
    ("minik8s.io", "PodAddress"): others.validate_pod_address_update,
    ("minik8s.io", "PodCIDR"): others.validate_pod_cidr_update,
    ("rbac.authorization.k8s.io", "RoleBinding"): rbac.validate_binding_update,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): rbac.validate_binding_update,
    ("apps", "ReplicaSet"): workloads.spec_immutable("selector"),
    ("apps", "Deployment"): workloads.spec_immutable("selector"),
    ("apps", "DaemonSet"): workloads.spec_immutable("selector"),
    ("apps", "StatefulSet"): workloads.validate_stateful_set_update,
    ("apps", "ControllerRevision"): workloads.validate_controller_revision_update,
    ("batch", "Job"): jobs.validate_job_update,
    ("", "Job"): originals.validate_job_update,
    ("", "ResourceQuota"): quotas.validate_quota_update,
    ("scheduling.k8s.io", "PriorityClass"): policies.validate_priority_class_update,
    ("node.k8s.io", "RuntimeClass"): policies.validate_runtime_class_update,
    ("certificates.k8s.io", "CertificateSigningRequest"): policies.validate_signing_request_update,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): definitions.validate_update,
    ("", "PersistentVolume"): storage.validate_volume_update,
    ("", "PersistentVolumeClaim"): storage.validate_claim_update,
    ("storage.k8s.io", "StorageClass"): storage.validate_storage_class_update,
    ("storage.k8s.io", "CSIDriver"): csi.validate_driver_update,
    ("storage.k8s.io", "CSINode"): csi.validate_node_update,
    ("storage.k8s.io", "VolumeAttachment"): csi.validate_attachment_update,
    ("storage.k8s.io", "CSIStorageCapacity"): csi.validate_capacity_update,
    ("networking.k8s.io", "IngressClass"): workloads.spec_immutable("controller"),
    ("", "RollingUpdate"): workloads.spec_immutable("serviceRef", "port", "newPodSpec"),
}
