"""The kinds that are served, as data.

Adding a kind is one declaration here, plus entries in ``defaults``, ``validation`` and ``tables`` where it needs them
(each looks up by ``(group, kind)``), plus its fields in ``coverage.yml``. Names, short names and categories are
Kubernetes' own. A kind whose ``stored`` is false is answered, never kept. A kind with ``storage`` is a view of another
kind's objects (``api/defaulting/conversion.py`` converts).
"""

from __future__ import annotations

from minik8s_modules.api.kind import ALL_VERBS, Registry
from minik8s_modules.api.kind import Kind as Kind  # noqa: PLC0414 - who takes a kind from here takes its type, too

_CORE = "io.k8s.api.core.v1."

POD = Kind(
    "", "v1", "Pod", "pods", f"{_CORE}Pod",
    short_names=("po",), categories=("all",),
    subresources=(
        "status", "binding", "ephemeralcontainers", "resize", "eviction", "log", "exec", "attach", "portforward",
        "proxy",
    ),
)  # fmt: skip
NODE = Kind(
    "", "v1", "Node", "nodes", f"{_CORE}Node", short_names=("no",), namespaced=False, subresources=("status", "proxy")
)
NAMESPACE = Kind(
    "", "v1", "Namespace", "namespaces", f"{_CORE}Namespace",
    short_names=("ns",), namespaced=False, subresources=("status", "finalize"),
    verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
)  # fmt: skip
EVENT = Kind("", "v1", "Event", "events", f"{_CORE}Event", short_names=("ev",), has_spec=False)
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", f"{_CORE}ConfigMap", short_names=("cm",), has_spec=False)
SECRET = Kind("", "v1", "Secret", "secrets", f"{_CORE}Secret", has_spec=False)
SERVICE_ACCOUNT = Kind(
    "", "v1", "ServiceAccount", "serviceaccounts", f"{_CORE}ServiceAccount",
    short_names=("sa",), subresources=("token",), has_spec=False,
)  # fmt: skip
SERVICE = Kind(
    "", "v1", "Service", "services", f"{_CORE}Service",
    short_names=("svc",), categories=("all",), subresources=("status", "proxy"),
)  # fmt: skip
ENDPOINTS = Kind(
    "", "v1", "Endpoints", "endpoints", f"{_CORE}Endpoints",
    singular="endpoints", short_names=("ep",), has_spec=False,
)  # fmt: skip
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases", "io.k8s.api.coordination.v1.Lease")
ENDPOINT_SLICE = Kind(
    "discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", "io.k8s.api.discovery.v1.EndpointSlice",
    has_spec=False,
)  # fmt: skip
EVENTS_EVENT = Kind(
    "events.k8s.io", "v1", "Event", "events", "io.k8s.api.events.v1.Event",
    short_names=("ev",), storage=("", "events"), has_spec=False,
)  # fmt: skip
POD_ADDRESS = Kind(
    "minik8s.io", "v1", "PodAddress", "podaddresses", "io.minik8s.v1.PodAddress",
    short_names=("pa",), namespaced=False,
)  # fmt: skip
POD_CIDR = Kind(
    "minik8s.io", "v1", "PodCIDR", "podcidrs", "io.minik8s.v1.PodCIDR",
    namespaced=False, subresources=("status",),
)  # fmt: skip
HOST_GRANT = Kind("minik8s.io", "v1", "HostGrant", "hostgrants", "io.minik8s.v1.HostGrant", namespaced=False)
PLAN = Kind(
    "minik8s.io", "v1", "Plan", "plans", "io.minik8s.v1.Plan",
    namespaced=False, verbs=("create",), stored=False,
)  # fmt: skip
SELF_SUBJECT_ACCESS_REVIEW = Kind(
    "authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews",
    "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
    namespaced=False, verbs=("create",), stored=False,
)  # fmt: skip
SELF_SUBJECT_REVIEW = Kind(
    "authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews",
    "io.k8s.api.authentication.v1.SelfSubjectReview",
    namespaced=False, verbs=("create",), stored=False, has_spec=False,
)  # fmt: skip

_RBAC, _AUTHORIZATION = "rbac.authorization.k8s.io", "io.k8s.api.authorization.v1."
ROLE = Kind(_RBAC, "v1", "Role", "roles", "io.k8s.api.rbac.v1.Role", has_spec=False)
ROLE_BINDING = Kind(_RBAC, "v1", "RoleBinding", "rolebindings", "io.k8s.api.rbac.v1.RoleBinding", has_spec=False)
CLUSTER_ROLE = Kind(
    _RBAC, "v1", "ClusterRole", "clusterroles", "io.k8s.api.rbac.v1.ClusterRole", namespaced=False, has_spec=False
)  # fmt: skip
CLUSTER_ROLE_BINDING = Kind(
    _RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", "io.k8s.api.rbac.v1.ClusterRoleBinding",
    namespaced=False, has_spec=False,
)  # fmt: skip
SUBJECT_ACCESS_REVIEW = Kind(
    "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", f"{_AUTHORIZATION}SubjectAccessReview",
    namespaced=False, verbs=("create",), stored=False,
)  # fmt: skip
LOCAL_SUBJECT_ACCESS_REVIEW = Kind(
    "authorization.k8s.io", "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews",
    f"{_AUTHORIZATION}LocalSubjectAccessReview", verbs=("create",), stored=False,
)  # fmt: skip
TOKEN_REVIEW = Kind(
    "authentication.k8s.io", "v1", "TokenReview", "tokenreviews", "io.k8s.api.authentication.v1.TokenReview",
    namespaced=False, verbs=("create",), stored=False,
)  # fmt: skip
SELF_SUBJECT_RULES_REVIEW = Kind(
    "authorization.k8s.io", "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews",
    f"{_AUTHORIZATION}SelfSubjectRulesReview", namespaced=False, verbs=("create",), stored=False,
)  # fmt: skip

# what nodes and pods use now; asked of the gateways, never kept (apiserver/nodes/metrics_api.py)
_METRICS = "metrics.k8s.io"
NODE_METRICS = Kind(
    _METRICS, "v1beta1", "NodeMetrics", "nodes", "io.k8s.metrics.v1beta1.NodeMetrics",
    namespaced=False, verbs=("get", "list"), stored=False, has_spec=False,
)  # fmt: skip
POD_METRICS = Kind(
    _METRICS, "v1beta1", "PodMetrics", "pods", "io.k8s.metrics.v1beta1.PodMetrics",
    verbs=("get", "list"), stored=False, has_spec=False,
)  # fmt: skip

# --- kinds that are kept and served before anything acts on them -----------------------------------------------------

_APPS, _BATCH, _POLICY = "io.k8s.api.apps.v1.", "io.k8s.api.batch.v1.", "io.k8s.api.policy.v1."
_NETWORKING, _AUTOSCALING = "io.k8s.api.networking.v1.", "io.k8s.api.autoscaling."
REPLICA_SET = Kind(
    "apps", "v1", "ReplicaSet", "replicasets", f"{_APPS}ReplicaSet",
    short_names=("rs",), categories=("all",), subresources=("status", "scale"),
)  # fmt: skip
DEPLOYMENT = Kind(
    "apps", "v1", "Deployment", "deployments", f"{_APPS}Deployment",
    short_names=("deploy",), categories=("all",), subresources=("status", "scale"),
)  # fmt: skip
STATEFUL_SET = Kind(
    "apps", "v1", "StatefulSet", "statefulsets", f"{_APPS}StatefulSet",
    short_names=("sts",), categories=("all",), subresources=("status", "scale"),
)  # fmt: skip
DAEMON_SET = Kind(
    "apps", "v1", "DaemonSet", "daemonsets", f"{_APPS}DaemonSet",
    short_names=("ds",), categories=("all",), subresources=("status",),
)  # fmt: skip
REPLICATION_CONTROLLER = Kind(
    "", "v1", "ReplicationController", "replicationcontrollers", f"{_CORE}ReplicationController",
    short_names=("rc",), categories=("all",), subresources=("status", "scale"),
)  # fmt: skip
POD_TEMPLATE = Kind("", "v1", "PodTemplate", "podtemplates", f"{_CORE}PodTemplate", has_spec=False)
CONTROLLER_REVISION = Kind(
    "apps", "v1", "ControllerRevision", "controllerrevisions", f"{_APPS}ControllerRevision", has_spec=False
)  # fmt: skip
JOB = Kind("batch", "v1", "Job", "jobs", f"{_BATCH}Job", categories=("all",), subresources=("status",))
CRON_JOB = Kind(
    "batch", "v1", "CronJob", "cronjobs", f"{_BATCH}CronJob",
    short_names=("cj",), categories=("all",), subresources=("status",),
)  # fmt: skip
HORIZONTAL_POD_AUTOSCALER = Kind(
    "autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers",
    f"{_AUTOSCALING}v2.HorizontalPodAutoscaler",
    short_names=("hpa",), categories=("all",), subresources=("status",), has_spec=False,
)  # fmt: skip
HORIZONTAL_POD_AUTOSCALER_V1 = Kind(
    "autoscaling", "v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers",
    f"{_AUTOSCALING}v1.HorizontalPodAutoscaler", short_names=("hpa",), categories=("all",), subresources=("status",),
    storage=("autoscaling", "horizontalpodautoscalers"), has_spec=False,
)  # fmt: skip
POD_DISRUPTION_BUDGET = Kind(
    "policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", f"{_POLICY}PodDisruptionBudget",
    short_names=("pdb",), subresources=("status",),
)  # fmt: skip
RESOURCE_QUOTA = Kind(
    "", "v1", "ResourceQuota", "resourcequotas", f"{_CORE}ResourceQuota",
    short_names=("quota",), subresources=("status",), has_spec=False,
)  # fmt: skip
LIMIT_RANGE = Kind(
    "", "v1", "LimitRange", "limitranges", f"{_CORE}LimitRange", short_names=("limits",), has_spec=False
)  # fmt: skip
PERSISTENT_VOLUME = Kind(
    "", "v1", "PersistentVolume", "persistentvolumes", f"{_CORE}PersistentVolume",
    short_names=("pv",), namespaced=False, subresources=("status",), has_spec=False,
)  # fmt: skip
PERSISTENT_VOLUME_CLAIM = Kind(
    "", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", f"{_CORE}PersistentVolumeClaim",
    short_names=("pvc",), subresources=("status",), has_spec=False,
)  # fmt: skip
INGRESS = Kind(
    "networking.k8s.io", "v1", "Ingress", "ingresses", f"{_NETWORKING}Ingress",
    short_names=("ing",), subresources=("status",),
)  # fmt: skip
INGRESS_CLASS = Kind(
    "networking.k8s.io", "v1", "IngressClass", "ingressclasses", f"{_NETWORKING}IngressClass", namespaced=False
)  # fmt: skip
NETWORK_POLICY = Kind(
    "networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", f"{_NETWORKING}NetworkPolicy",
    short_names=("netpol",),
)  # fmt: skip
STORAGE_CLASS = Kind(
    "storage.k8s.io", "v1", "StorageClass", "storageclasses", "io.k8s.api.storage.v1.StorageClass",
    short_names=("sc",), namespaced=False, has_spec=False,
)  # fmt: skip
CSI_DRIVER = Kind(
    "storage.k8s.io", "v1", "CSIDriver", "csidrivers", "io.k8s.api.storage.v1.CSIDriver",
    namespaced=False, has_spec=False,
)  # fmt: skip
CSI_NODE = Kind(
    "storage.k8s.io", "v1", "CSINode", "csinodes", "io.k8s.api.storage.v1.CSINode", namespaced=False, has_spec=False
)  # fmt: skip
VOLUME_ATTACHMENT = Kind(
    "storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", "io.k8s.api.storage.v1.VolumeAttachment",
    namespaced=False, subresources=("status",), has_spec=False,
)  # fmt: skip
CSI_STORAGE_CAPACITY = Kind(
    "storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities", "io.k8s.api.storage.v1.CSIStorageCapacity",
    has_spec=False,
)  # fmt: skip
PRIORITY_CLASS = Kind(
    "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", "io.k8s.api.scheduling.v1.PriorityClass",
    short_names=("pc",), namespaced=False, has_spec=False,
)  # fmt: skip
RUNTIME_CLASS = Kind(
    "node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", "io.k8s.api.node.v1.RuntimeClass",
    namespaced=False, has_spec=False,
)  # fmt: skip
CERTIFICATE_SIGNING_REQUEST = Kind(
    "certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests",
    "io.k8s.api.certificates.v1.CertificateSigningRequest",
    short_names=("csr",), namespaced=False, subresources=("approval", "status"), has_spec=False,
)  # fmt: skip

_ADMISSION, _ADMISSION_TYPES = "admissionregistration.k8s.io", "io.k8s.api.admissionregistration.v1."
MUTATING_WEBHOOK_CONFIGURATION = Kind(
    _ADMISSION, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations",
    f"{_ADMISSION_TYPES}MutatingWebhookConfiguration",
    namespaced=False, categories=("api-extensions",), has_spec=False,
)  # fmt: skip
VALIDATING_WEBHOOK_CONFIGURATION = Kind(
    _ADMISSION, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations",
    f"{_ADMISSION_TYPES}ValidatingWebhookConfiguration",
    namespaced=False, categories=("api-extensions",), has_spec=False,
)  # fmt: skip

VALIDATING_ADMISSION_POLICY = Kind(
    _ADMISSION, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies",
    f"{_ADMISSION_TYPES}ValidatingAdmissionPolicy",
    namespaced=False, categories=("api-extensions",), subresources=("status",),
)  # fmt: skip
VALIDATING_ADMISSION_POLICY_BINDING = Kind(
    _ADMISSION, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings",
    f"{_ADMISSION_TYPES}ValidatingAdmissionPolicyBinding",
    namespaced=False, categories=("api-extensions",),
)  # fmt: skip

# --- kinds of the original MiniK8s; those whose names Kubernetes uses elsewhere have plurals of their own ------------

_ORIGINAL = "io.minik8s.original.v1."
DNS = Kind("", "v1", "DNS", "dns", f"{_ORIGINAL}DNS", subresources=("status",))
VIRTUAL_SERVICE = Kind(
    "", "v1", "VirtualService", "virtualservices", f"{_ORIGINAL}VirtualService",
    short_names=("vs",), subresources=("status",),
)  # fmt: skip
SUBSET = Kind("", "v1", "Subset", "subsets", f"{_ORIGINAL}Subset", subresources=("status",))
ROLLING_UPDATE = Kind(
    "", "v1", "RollingUpdate", "rollingupdates", f"{_ORIGINAL}RollingUpdate",
    short_names=("ru",), subresources=("status",),
)  # fmt: skip
SIDECAR_MAPPING = Kind("", "v1", "SidecarMapping", "sidecarmappings", f"{_ORIGINAL}SidecarMapping")
LEGACY_REPLICA_SET = Kind(
    "", "v1", "ReplicaSet", "legacyreplicasets", f"{_ORIGINAL}ReplicaSet", singular="legacyreplicaset",
    subresources=("status", "scale"), storage=("apps", "replicasets"),
)  # fmt: skip
LEGACY_AUTOSCALER = Kind(
    "", "v1", "HorizontalPodAutoscaler", "legacyhorizontalpodautoscalers", f"{_ORIGINAL}HorizontalPodAutoscaler",
    singular="legacyhorizontalpodautoscaler",
)  # fmt: skip
LEGACY_JOB = Kind(
    "", "v1", "Job", "legacyjobs", f"{_ORIGINAL}Job", singular="legacyjob", subresources=("status",)
)  # fmt: skip
CUSTOM_RESOURCE_DEFINITION = Kind(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
    short_names=("crd", "crds"), namespaced=False, categories=("api-extensions",), subresources=("status",),
)  # fmt: skip

API_SERVICE = Kind(
    "apiregistration.k8s.io", "v1", "APIService", "apiservices",
    "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIService",
    namespaced=False, categories=("api-extensions",), subresources=("status",), has_spec=False,
)  # fmt: skip


KINDS = Registry(
    (
        POD,
        NODE,
        NAMESPACE,
        EVENT,
        CONFIG_MAP,
        SECRET,
        SERVICE_ACCOUNT,
        SERVICE,
        ENDPOINTS,
        LEASE,
        ENDPOINT_SLICE,
        EVENTS_EVENT,
        POD_ADDRESS,
        POD_CIDR,
        HOST_GRANT,
        PLAN,
        SELF_SUBJECT_ACCESS_REVIEW,
        SELF_SUBJECT_REVIEW,
        ROLE,
        ROLE_BINDING,
        CLUSTER_ROLE,
        CLUSTER_ROLE_BINDING,
        SUBJECT_ACCESS_REVIEW,
        LOCAL_SUBJECT_ACCESS_REVIEW,
        SELF_SUBJECT_RULES_REVIEW,
        TOKEN_REVIEW,
        NODE_METRICS,
        POD_METRICS,
        REPLICA_SET,
        DEPLOYMENT,
        STATEFUL_SET,
        DAEMON_SET,
        REPLICATION_CONTROLLER,
        POD_TEMPLATE,
        CONTROLLER_REVISION,
        JOB,
        CRON_JOB,
        HORIZONTAL_POD_AUTOSCALER,
        HORIZONTAL_POD_AUTOSCALER_V1,
        POD_DISRUPTION_BUDGET,
        RESOURCE_QUOTA,
        LIMIT_RANGE,
        PERSISTENT_VOLUME,
        PERSISTENT_VOLUME_CLAIM,
        INGRESS,
        INGRESS_CLASS,
        NETWORK_POLICY,
        STORAGE_CLASS,
        CSI_DRIVER,
        CSI_NODE,
        VOLUME_ATTACHMENT,
        CSI_STORAGE_CAPACITY,
        PRIORITY_CLASS,
        RUNTIME_CLASS,
        CERTIFICATE_SIGNING_REQUEST,
        MUTATING_WEBHOOK_CONFIGURATION,
        VALIDATING_WEBHOOK_CONFIGURATION,
        CUSTOM_RESOURCE_DEFINITION,
        API_SERVICE,
        VALIDATING_ADMISSION_POLICY,
        VALIDATING_ADMISSION_POLICY_BINDING,
        DNS,
        VIRTUAL_SERVICE,
        SUBSET,
        ROLLING_UPDATE,
        SIDECAR_MAPPING,
        LEGACY_REPLICA_SET,
        LEGACY_AUTOSCALER,
        LEGACY_JOB,
    )
)
