"""What the tests of api/ share: case files, and objects that are valid as they stand."""

from __future__ import annotations

import base64
import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from minik8s_modules.api.defaulting.defaults import apply_defaults
from minik8s_modules.api.kinds import KINDS, Kind
from minik8s_modules.api.lifecycle.strategy import prepare_create
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.schema import structural

ROOT = Path(__file__).parents[3]
NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
UID = "11111111-2222-4333-8444-555555555555"


def cases(function: str) -> Any:
    """Return a parametrization over tests/cases/<function>/*.yml; the file's name is the sentence."""
    found = sorted((ROOT / "tests" / "cases" / function).glob("*.yml"))
    assert found, f"no cases for {function}"
    return pytest.mark.parametrize("path", found, ids=lambda path: path.stem.replace("-", " "))


def read(path: Path) -> dict[str, Any]:
    """Return what a case file says."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def kind_of(obj: JsonObject) -> Kind:
    """Return the kind an object says it is of."""
    found = KINDS.by_api_version(obj["apiVersion"], obj["kind"])
    assert found is not None
    return found


def merged(base: Any, change: Any) -> Any:
    """Return ``base`` with ``change`` merged in; null removes (kept apart from the patches under test)."""
    if not isinstance(base, dict) or not isinstance(change, dict):
        return copy.deepcopy(change)
    result = copy.deepcopy({key: value for key, value in base.items() if change.get(key, "") is not None})
    return result | {key: merged(base.get(key), value) for key, value in change.items() if value is not None}


def created(obj: JsonObject, namespace: str = "default") -> JsonObject:
    """Return ``obj`` as the server would store it: typed, defaulted and prepared."""
    kind, obj = kind_of(obj), copy.deepcopy(obj)
    assert not structural.type_errors(kind, obj)
    apply_defaults(kind, obj)
    prepare_create(kind, obj, namespace=namespace, now=NOW, uid=UID, name_suffix="abcde")
    return obj


def sample(kind: Kind) -> JsonObject:
    """Return a small object of the kind that may be created."""
    named = {"PodAddress": "10.244.0.7", "PodCIDR": "10.244.1.0-24"}
    extending = {"CustomResourceDefinition": "widgets.example.com", "APIService": "v1alpha1.wardle.example.com"}
    name = {**named, **extending}.get(kind.kind, "web")
    base: JsonObject = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}
    return merged(base, copy.deepcopy(_PARTS.get(kind.id, {})))  # type: ignore[no-any-return]


def services_of(obj: JsonObject) -> list[JsonObject]:
    """Return the Services that must be there before ``obj`` may be created: those that a DNS object leads to."""
    if obj.get("kind") != "DNS":
        return []
    ports: dict[str, set[int]] = {}
    for rule in obj["spec"]["rules"]:
        for path in rule["paths"]:
            backend = path["backend"]["service"]
            ports.setdefault(backend["name"], set()).add(backend["port"])
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"ports": [{"name": f"p{port}", "port": port} for port in sorted(found)]},
        }
        for name, found in ports.items()
    ]


_WORKLOADS = ("ReplicaSet", "Deployment", "StatefulSet", "DaemonSet")
_SELECTOR: JsonObject = {"matchLabels": {"app": "web"}}
_TEMPLATE: JsonObject = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "app", "image": "minik8s/busybox:1"}]},
}


def _signing_request() -> str:
    """Return a PEM certificate request, in base64."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jane")])
    made = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


_REQUEST = _signing_request()
_WEBHOOK: JsonObject = {
    "name": "check.example.com",
    "clientConfig": {"url": "https://hooks.example.com/check"},
    "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}
_PARTS: dict[tuple[str, str], JsonObject] = {
    ("", "Pod"): {"spec": {"containers": [{"name": "app", "image": "minik8s/busybox:1"}]}},
    ("", "Service"): {"spec": {"ports": [{"port": 80}]}},
    ("discovery.k8s.io", "EndpointSlice"): {"addressType": "IPv4"},
    ("", "Event"): {"involvedObject": {"kind": "Pod", "name": "web", "namespace": "default"}},
    ("events.k8s.io", "Event"): {"regarding": {"kind": "Pod", "name": "web", "namespace": "default"}},
    ("minik8s.io", "PodAddress"): {
        "spec": {"podUID": UID, "podName": "web", "podNamespace": "default", "nodeName": "n1"}
    },
    ("minik8s.io", "HostGrant"): {"spec": {"namespaces": ["shop"], "hosts": ["shop.example"]}},
    ("minik8s.io", "PodCIDR"): {"spec": {"cidr": "10.244.1.0/24", "nodeName": "n1"}},
    ("authorization.k8s.io", "SelfSubjectAccessReview"): {
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}
    },
    ("authorization.k8s.io", "SubjectAccessReview"): {
        "spec": {"user": "jane", "resourceAttributes": {"verb": "get", "resource": "pods"}}
    },
    ("authorization.k8s.io", "LocalSubjectAccessReview"): {
        "spec": {"user": "jane", "resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}}
    },
    ("authentication.k8s.io", "TokenReview"): {"spec": {"token": "x"}},
    ("authorization.k8s.io", "SelfSubjectRulesReview"): {"spec": {"namespace": "default"}},
    ("apiextensions.k8s.io", "CustomResourceDefinition"): {
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
            ],
        }
    },
    ("apiregistration.k8s.io", "APIService"): {
        "spec": {
            "group": "wardle.example.com",
            "version": "v1alpha1",
            "groupPriorityMinimum": 2000,
            "versionPriority": 10,
            "insecureSkipTLSVerify": True,
            "service": {"namespace": "wardle", "name": "api"},
        }
    },
    ("rbac.authorization.k8s.io", "Role"): {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]},
    ("rbac.authorization.k8s.io", "ClusterRole"): {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}]},
    ("rbac.authorization.k8s.io", "RoleBinding"): {
        "roleRef": {"kind": "Role", "name": "reader"},
        "subjects": [{"kind": "User", "name": "jane"}],
    },
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): {
        "roleRef": {"kind": "ClusterRole", "name": "reader"},
        "subjects": [{"kind": "Group", "name": "people"}],
    },
    **{("apps", each): {"spec": {"selector": _SELECTOR, "template": _TEMPLATE}} for each in _WORKLOADS},
    ("", "ReplicationController"): {"spec": {"template": _TEMPLATE}},
    ("", "PodTemplate"): {"template": _TEMPLATE},
    ("apps", "ControllerRevision"): {"revision": 1, "data": {"spec": {}}},
    ("batch", "Job"): {"spec": {"template": {"spec": {**_TEMPLATE["spec"], "restartPolicy": "Never"}}}},
    ("batch", "CronJob"): {
        "spec": {
            "schedule": "*/5 * * * *",
            "jobTemplate": {"spec": {"template": {"spec": {**_TEMPLATE["spec"], "restartPolicy": "Never"}}}},
        }
    },
    ("autoscaling", "HorizontalPodAutoscaler"): {
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}
    },
    ("policy", "PodDisruptionBudget"): {"spec": {"minAvailable": 1, "selector": _SELECTOR}},
    ("", "ResourceQuota"): {"spec": {"hard": {"pods": "4"}}},
    ("", "LimitRange"): {"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}},
    ("", "PersistentVolume"): {
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"}}
    },
    ("", "PersistentVolumeClaim"): {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    },
    ("networking.k8s.io", "Ingress"): {
        "spec": {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}
    },
    ("networking.k8s.io", "IngressClass"): {"spec": {"controller": "example.com/ingress"}},
    ("networking.k8s.io", "NetworkPolicy"): {"spec": {"podSelector": {}}},
    ("storage.k8s.io", "StorageClass"): {"provisioner": "example.com/disks"},
    ("storage.k8s.io", "CSIDriver"): {"spec": {"attachRequired": False}},
    ("storage.k8s.io", "CSINode"): {"spec": {"drivers": [{"name": "disks.example.com", "nodeID": "n1"}]}},
    ("storage.k8s.io", "VolumeAttachment"): {
        "spec": {"attacher": "disks.example.com", "nodeName": "n1", "source": {"persistentVolumeName": "v"}}
    },
    ("storage.k8s.io", "CSIStorageCapacity"): {"storageClassName": "disks"},
    ("scheduling.k8s.io", "PriorityClass"): {"value": 10},
    ("node.k8s.io", "RuntimeClass"): {"handler": "runsc"},
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): {"webhooks": [_WEBHOOK]},
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): {"webhooks": [_WEBHOOK]},
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): {
        "spec": {
            "matchConstraints": {"resourceRules": _WEBHOOK["rules"]},
            "validations": [{"expression": "object.metadata.name != ''"}],
        }
    },
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"): {
        "spec": {"policyName": "checks", "validationActions": ["Deny"]}
    },
    ("certificates.k8s.io", "CertificateSigningRequest"): {
        "spec": {"request": _REQUEST, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}
    },
    ("", "DNS"): {
        "spec": {
            "rules": [{"host": "a.b", "paths": [{"path": "/", "backend": {"service": {"name": "web", "port": 80}}}]}]
        }
    },
    ("", "VirtualService"): {
        "spec": {"serviceRef": "web", "port": 80, "subsets": [{"name": "a", "weight": 1}, {"name": "b", "weight": 2}]}
    },
    ("", "Subset"): {"spec": {"pods": ["web-1"]}},
    ("", "RollingUpdate"): {"spec": {"serviceRef": "web", "port": 80, "newPodSpec": _TEMPLATE["spec"]}},
    ("", "SidecarMapping"): {
        "spec": {"100.0.0.5:80": [{"weight": 1, "endpoints": [{"ip": "10.244.0.7", "targetPort": 8080}]}]}
    },
    ("", "ReplicaSet"): {"spec": {"selector": _SELECTOR, "template": _TEMPLATE}},
    ("", "HorizontalPodAutoscaler"): {
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "ReplicaSet", "name": "web"}}
    },
    ("", "Job"): {
        "spec": {"partition": "dgx2", "file": "result", "codePath": "/root/add.cu", "source": "int main() {}"}
    },
}
