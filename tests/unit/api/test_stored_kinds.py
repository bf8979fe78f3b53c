"""Kinds that are kept before anything acts on them: status, warnings, selectors of jobs, decisions on requests."""

from __future__ import annotations

import copy

import pytest

from minik8s_modules.api.defaulting.conversion import from_storage, stored_kind, to_storage
from minik8s_modules.api.defaulting.defaults import apply_defaults
from minik8s_modules.api.field_selectors import parse_field_selector
from minik8s_modules.api.kinds import (
    CERTIFICATE_SIGNING_REQUEST,
    CONTROLLER_REVISION,
    CRON_JOB,
    CSI_DRIVER,
    CSI_NODE,
    CSI_STORAGE_CAPACITY,
    DAEMON_SET,
    DEPLOYMENT,
    DNS,
    HORIZONTAL_POD_AUTOSCALER,
    HORIZONTAL_POD_AUTOSCALER_V1,
    INGRESS,
    INGRESS_CLASS,
    JOB,
    KINDS,
    LEGACY_AUTOSCALER,
    LEGACY_JOB,
    LEGACY_REPLICA_SET,
    LIMIT_RANGE,
    NETWORK_POLICY,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD_DISRUPTION_BUDGET,
    POD_TEMPLATE,
    PRIORITY_CLASS,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    RESOURCE_QUOTA,
    ROLLING_UPDATE,
    STATEFUL_SET,
    STORAGE_CLASS,
    SUBSET,
    VIRTUAL_SERVICE,
    VOLUME_ATTACHMENT,
)
from minik8s_modules.api.lifecycle.strategy import prepare_update
from minik8s_modules.api.schema import structural
from minik8s_modules.api.validation import validate_create, validate_update, warnings
from tests.unit.api import samples

GROUPS = ("apps", "batch", "autoscaling", "policy", "networking.k8s.io", "storage.k8s.io", "scheduling.k8s.io",
          "certificates.k8s.io")  # fmt: skip
CORE = ("ResourceQuota", "LimitRange", "PersistentVolume", "PersistentVolumeClaim", "DNS", "VirtualService", "Subset",
        "RollingUpdate", "SidecarMapping", "ReplicaSet", "ReplicationController", "PodTemplate",
        "HorizontalPodAutoscaler", "Job")  # fmt: skip
STORED = [kind for kind in KINDS.all() if kind.group in GROUPS or (not kind.group and kind.kind in CORE)]
EACH = pytest.mark.parametrize("kind", STORED, ids=lambda kind: f"{kind.kind}.{kind.version}.{kind.group}")

# kinds for which something acts on every field that their samples set
ACTED_ON = (
    NETWORK_POLICY,
    LIMIT_RANGE,
    POD_DISRUPTION_BUDGET,
    PRIORITY_CLASS,
    RESOURCE_QUOTA,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    POD_TEMPLATE,
    LEGACY_REPLICA_SET,
    DEPLOYMENT,
    CERTIFICATE_SIGNING_REQUEST,
    JOB,
    CRON_JOB,
    DNS,
    INGRESS,
    INGRESS_CLASS,
    DAEMON_SET,
    CONTROLLER_REVISION,
    STATEFUL_SET,
    HORIZONTAL_POD_AUTOSCALER,
    HORIZONTAL_POD_AUTOSCALER_V1,
    LEGACY_AUTOSCALER,
    LEGACY_JOB,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    STORAGE_CLASS,
    CSI_NODE,
    SUBSET,
    VIRTUAL_SERVICE,
    ROLLING_UPDATE,
    CSI_DRIVER,
    CSI_STORAGE_CAPACITY,
    VOLUME_ATTACHMENT,
)


@EACH
def test_the_sample_is_valid_and_warned_about(kind):
    obj = to_storage(kind, samples.created(samples.sample(kind)))
    assert validate_create(stored_kind(kind), obj) == []
    warned = warnings(kind, samples.created(samples.sample(kind)))
    assert any("yet" in text for text in warned) or kind in ACTED_ON


@EACH
def test_it_can_be_stored_again_unchanged(kind):
    obj = samples.created(samples.sample(kind))
    again = copy.deepcopy(obj)
    prepare_update(kind, again, obj)
    assert again == obj
    assert validate_update(kind, again, obj) == []


@EACH
def test_a_client_cannot_create_a_status(kind):
    if "status" not in kind.subresources or stored_kind(kind).id != kind.id:
        return
    claimed = samples.sample(kind) | {"status": {"conditions": [{"type": "Odd", "status": "True"}]}}
    assert "conditions" not in samples.created(claimed).get("status", {})


def test_a_job_selects_its_own_pods():
    job = samples.created(samples.sample(JOB))
    assert job["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": samples.UID}}
    assert job["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "web"
    manual = samples.created(samples.merged(samples.sample(JOB), {"spec": {"manualSelector": True}}))
    assert "selector" not in manual["spec"]


def test_what_is_wrong_in_a_template_is_told_where_it_stands():
    bad = samples.merged(
        samples.sample(DEPLOYMENT), {"spec": {"template": {"spec": {"containers": [{"name": "A", "image": "i"}]}}}}
    )
    fields = [cause.field for cause in validate_create(DEPLOYMENT, samples.created(bad))]
    assert fields == ["spec.template.spec.containers[0].name"]


def test_approval_and_status_each_change_their_part():
    old = samples.created(samples.sample(CERTIFICATE_SIGNING_REQUEST))
    approved = {"type": "Approved", "status": "True"}
    asked = samples.merged(
        old, {"status": {"conditions": [approved], "certificate": "eA=="}, "spec": {"groups": ["g"]}}
    )
    prepare_update(CERTIFICATE_SIGNING_REQUEST, asked, old, "approval")
    assert (asked["spec"], asked["status"]) == (old["spec"], {"conditions": [approved]})
    signed = samples.merged(asked, {"status": {"certificate": "eA==", "conditions": []}})
    prepare_update(CERTIFICATE_SIGNING_REQUEST, signed, asked, "status")
    assert signed["status"] == {"certificate": "eA==", "conditions": [approved]}


@samples.cases("apply_defaults")
def test_defaults(path):
    case = samples.read(path)
    obj, kind = case["object"], samples.kind_of(case["object"])
    apply_defaults(kind, obj)
    assert samples.merged(obj, case["becomes"]) == obj
    again = copy.deepcopy(obj)
    apply_defaults(kind, again)
    assert again == obj


def test_an_autoscaler_goes_to_v1_and_back_with_all_it_says():
    metrics = [
        {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}}},
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
    ]
    obj = samples.merged(
        samples.sample(HORIZONTAL_POD_AUTOSCALER),
        {
            "spec": {"metrics": metrics, "behavior": {"scaleUp": {"selectPolicy": "Min"}}},
            "status": {"desiredReplicas": 2},
        },
    )
    old = from_storage(HORIZONTAL_POD_AUTOSCALER_V1, obj)
    assert old["spec"]["targetCPUUtilizationPercentage"] == 50
    assert not structural.unknown_fields(HORIZONTAL_POD_AUTOSCALER_V1, old)
    back = to_storage(HORIZONTAL_POD_AUTOSCALER_V1, old)
    assert (back["spec"], back["metadata"].get("annotations") or {}) == (obj["spec"], {})


@pytest.mark.parametrize("text", ["[1]", '{"a": 1}', "no json", '[{"type": 3}]'])
def test_annotations_that_are_no_metrics_are_not_taken_for_some(text):
    annotations = {"autoscaling.alpha.kubernetes.io/metrics": text}
    old = samples.merged(samples.sample(HORIZONTAL_POD_AUTOSCALER_V1), {"metadata": {"annotations": annotations}})
    assert "metrics" not in to_storage(HORIZONTAL_POD_AUTOSCALER_V1, old)["spec"]


def test_signers_and_controllers_select_by_what_they_look_for():
    request = samples.sample(CERTIFICATE_SIGNING_REQUEST)
    chosen = parse_field_selector(CERTIFICATE_SIGNING_REQUEST, "spec.signerName=kubernetes.io/kube-apiserver-client")
    assert chosen.matches(request)
    assert parse_field_selector(JOB, "status.successful=0").matches(samples.created(samples.sample(JOB)))
