"""Every field of a Pod, tried on what makes Slurm jobs, units and runs: acted on, told or refused, as the docs say.

A field that is accepted and changes nothing fails, also one that a later Kubernetes brings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.account_volumes import MOUNT_PATH
from minik8s_modules.api.pods.carried_fields import OF_THE_CLUSTER
from minik8s_modules.api.pods.slurm import IMAGE
from minik8s_modules.api.pods.units import ROLE, NoUnit, declared_unit
from minik8s_modules.api.schema.coverage import rules
from minik8s_modules.api.schema.shapes import definition
from minik8s_modules.virtual.contract import NoResources, new_pod
from minik8s_modules.virtual.errors import InvalidInput
from minik8s_modules.virtual.providers.ansible_runs import requests
from minik8s_modules.virtual.providers.slurm import entries
from minik8s_modules.virtual.providers.slurm.fetching import Fetching
from tests.unit.virtual.test_ansible_runs import configured

DOCS = Path(__file__).parents[3] / "docs/how-to/virtual-nodes.md"
JOB, UNIT, RUN = CARRIERS = ("job", "unit", "run")
PODS, CONTAINERS = "core.v1.PodSpec", "core.v1.Container"
PROBE, HOOK = {"exec": {"command": ["true"]}}, {"preStop": {"exec": {"command": ["true"]}}}
SAMPLES: dict[str, dict[str, Any]] = {
    PODS: {
        "activeDeadlineSeconds": 60, "automountServiceAccountToken": True, "dnsConfig": {"nameservers": ["192.0.2.1"]},
        "dnsPolicy": "None", "ephemeralContainers": [{"name": "e"}], "hostAliases": [{"ip": "192.0.2.1"}],
        "hostIPC": True, "hostNetwork": True, "hostPID": True, "hostname": "mine", "imagePullSecrets": [{"name": "s"}],
        "initContainers": [{"name": "i", "restartPolicy": "Always"}], "os": {"name": "windows"},
        "overhead": {"cpu": "1"}, "readinessGates": [{"conditionType": "x"}], "resources": {"limits": {"cpu": "1"}},
        "restartPolicy": "OnFailure", "runtimeClassName": "x", "securityContext": {"runAsUser": 1},
        "setHostnameAsFQDN": True, "shareProcessNamespace": True, "subdomain": "x", "terminationGracePeriodSeconds": 5,
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
    },
    CONTAINERS: {
        "args": ["x"], "command": ["false"], "env": [{"name": "A", "value": "x"}], "image": "tools:1",
        "imagePullPolicy": "Never", "lifecycle": HOOK, "livenessProbe": PROBE, "ports": [{"containerPort": 80}],
        "readinessProbe": PROBE, "resizePolicy": [{"resourceName": "cpu"}], "resources": {"limits": {"cpu": "3"}},
        "restartPolicy": "Always", "securityContext": {"runAsUser": 1}, "startupProbe": PROBE, "stdin": True,
        "stdinOnce": True, "terminationMessagePath": "/log", "terminationMessagePolicy": "FallbackToLogsOnError",
        "tty": True, "volumeMounts": [{"name": "v", "mountPath": "v"}], "workingDir": "/srv",
    },
}  # fmt: skip
ELSEWHERE = {
    (PODS, "containers"): "they are what is tried",
    (CONTAINERS, "name"): "of logs and statuses",
    (CONTAINERS, "envFrom"): "comes as env: test_environment.py",
    (JOB, "terminationMessagePolicy"): "test_slurm_statuses.py",
    (UNIT, "hostNetwork"): "a unit has its host's network",
    (UNIT, "imagePullPolicy"): "there is no image",
    (RUN, "imagePullPolicy"): "there is no image",
    (RUN, "terminationGracePeriodSeconds"): "of a deletion: test_ansible_runs.py",
}
"""Fields that are acted on by others than what is tried here."""
Make = Callable[[JsonObject], Any]


@pytest.fixture
def makers(tmp_path: Path) -> dict[str, Make]:
    """Return what makes a job, a unit and a run of a Pod; raises where it cannot."""
    settings = configured(tmp_path)
    fetching = Fetching(("test", "{image}"), ("pull", "{image}"))
    return {
        JOB: lambda pod: entries.asked(pod, "batch", NoResources(), ("run", "{image}"), fetching),
        UNIT: lambda pod: declared_unit(pod, ["app"]),
        RUN: lambda pod: requests.asked(pod, settings),
    }


def pod_of(carrier: str, kind: str = PODS, **fields: Any) -> JsonObject:
    """Return a Pod that can be what ``carrier`` makes, with further fields of its spec or its container."""
    container = {"name": "app", "image": IMAGE, **({} if carrier == RUN else {"command": ["true"]})}
    container |= {"image": "tools:1"} if "imagePullPolicy" in fields and carrier == JOB else {}
    spec: JsonObject = {"restartPolicy": "Never", "volumes": [{"name": "v", "emptyDir": {}}] if carrier == JOB else []}
    spec |= fields if kind == PODS else {}
    made = new_pod("one", **{**spec, "containers": [{**container, **(fields if kind == CONTAINERS else {})}]})
    made["metadata"] |= {"uid": "u", "annotations": {ROLE: "web"} if carrier == RUN else {}}
    return made


def outcome(make: Make, carrier: str, kind: str, field: str) -> str:
    """Return what becomes of a field that asks for something: yes, told, refused or ignored."""
    if (kind == PODS and field in OF_THE_CLUSTER) or {(kind, field), (carrier, field)} & ELSEWHERE.keys():
        return "yes"
    if rules()[kind][field].treatment == "refused":
        return "refused"
    asking = pod_of(carrier, kind, **{field: SAMPLES[kind][field]})
    try:
        made = make(asking)
    except (InvalidInput, NoUnit) as error:
        return "refused" if field.removesuffix("s") in str(error) else f"refused without its name: {error}"
    told = {JOB: entries.remarks, RUN: requests.remarks}.get(carrier)
    if told is not None and any(field in text for text in told(asking)):
        return "told"
    usual = pod_of(carrier, kind, **({"imagePullPolicy": "IfNotPresent"} if field == "imagePullPolicy" else {}))
    return "ignored" if made == make(usual) else "yes"


def documented() -> dict[tuple[str, str], dict[str, str]]:
    """Return what the docs' tables say of each field, by carrier."""
    found = {}
    text = DOCS.read_text().partition("## What becomes of a Pod's fields")[2]
    for kind, heading in ((PODS, "| of the Pod |"), (CONTAINERS, "| of its container |")):
        for line in text.partition(heading)[2].partition("\n\n")[0].splitlines()[2:]:
            fields, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            for field in re.findall(r"`(\w+)`", fields):
                found[kind, field] = {
                    name: cell.split(" ")[0].rstrip(",:;") for name, cell in zip(CARRIERS, cells, strict=True)
                }
    return found


def every_field() -> Iterator[tuple[str, str]]:
    for kind in (PODS, CONTAINERS):
        yield from ((kind, field) for field in definition(f"io.k8s.api.{kind}")["properties"])


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_field_is_acted_on_told_or_refused_as_the_table_says(makers: dict[str, Make], carrier: str):
    said = documented()
    assert set(said) == set(every_field())
    found = {each: outcome(makers[carrier], carrier, *each) for each in every_field()}
    assert found == {each: said[each][carrier] for each in found}


@pytest.mark.parametrize("carrier", CARRIERS)
def test_what_the_api_sets_by_itself_is_no_wish(makers: dict[str, Make], carrier: str):
    made = pod_of(carrier)
    usual = makers[carrier](made)
    token = {"name": "kube-api-access-x", "mountPath": MOUNT_PATH, "readOnly": True}
    objects.containers(made)[0].update(
        imagePullPolicy="Always", terminationMessagePath="/dev/termination-log", terminationMessagePolicy="File",
        resources={}, volumeMounts=[token],
    )  # fmt: skip
    made["spec"]["volumes"].append({"name": token["name"], "projected": {"sources": []}})
    made["spec"] |= {
        "dnsPolicy": "ClusterFirst", "enableServiceLinks": True, "hostUsers": True, "os": {"name": "linux"},
        "preemptionPolicy": "PreemptLowerPriority", "priority": 0, "schedulerName": "default-scheduler",
        "securityContext": {}, "serviceAccountName": "default", "terminationGracePeriodSeconds": 30,
    }  # fmt: skip
    assert makers[carrier](made) == usual
    assert [*entries.remarks(made)] == [*requests.remarks(made)] == []


VOLUMES = [
    ({"emptyDir": {"medium": "Memory"}}, {}, r"emptyDir\.medium"),
    ({"emptyDir": {"sizeLimit": "1Gi"}}, {}, r"emptyDir\.sizeLimit"),
    ({"configMap": {"name": "texts", "defaultMode": 0o755}}, {}, "mode 0600"),
    ({"secret": {"secretName": "keys", "items": [{"key": "k", "path": "k", "mode": 0o500}]}}, {}, "mode 0600"),
    ({"hostPath": {"path": "/"}}, {}, "configMap, emptyDir, secret"),
    ({"name": "kube-api-access-x", "hostPath": {"path": "/"}}, {}, "configMap, emptyDir, secret"),
    ({"emptyDir": {}}, {"mountPropagation": "Bidirectional"}, "mountPropagation"),
    ({"emptyDir": {}}, {"recursiveReadOnly": "Enabled"}, "recursiveReadOnly"),
]


@pytest.mark.parametrize(("volume", "mount", "why"), VOLUMES)
@pytest.mark.parametrize("mounted", [True, False])
def test_what_a_volume_of_a_job_cannot_be_is_refused_also_where_it_is_not_mounted(
    makers: dict[str, Make], volume: JsonObject, mount: JsonObject, why: str, *, mounted: bool
):
    if mount and not mounted:
        return
    made = pod_of(JOB, volumes=[{"name": "v", **volume}])
    name = made["spec"]["volumes"][0]["name"]
    objects.containers(made)[0]["volumeMounts"] = [{"name": name, "mountPath": "v", **mount}] if mounted else []
    with pytest.raises(InvalidInput, match=why):
        makers[JOB](made)


def test_a_mount_that_is_to_be_read_only_is_told():
    made = pod_of(JOB, CONTAINERS, volumeMounts=[{"name": "v", "mountPath": "v", "readOnly": True}])
    (told,) = entries.remarks(made)
    assert told.startswith("volumeMounts v: readOnly")
