"""A Pod as a job of Slurm: what becomes of its fields, and which are refused, by name."""

from __future__ import annotations

import subprocess
from typing import Any

import orjson
import pytest

from minik8s_modules.api.pods.scripts import INDEX
from minik8s_modules.api.pods.slurm import DEPENDENCY, GPU, IMAGE, SOURCES, TASKS, TASKS_PER_NODE
from minik8s_modules.virtual.contract import NoResources, new_pod
from minik8s_modules.virtual.errors import InvalidInput
from minik8s_modules.virtual.providers.slurm.entries import JobRequest, asked

CLUSTER = NoResources(
    {"default/texts": {"data": {"a": "text", "b": "other"}}}, {"default/keys": {"data": {"k": "c2VjcmV0"}}}
)


def pod(*, annotations: dict[str, str] | None = None, container: dict[str, Any] | None = None, **spec: Any) -> Any:
    one = {"name": "app", "image": IMAGE, "command": ["true"], **(container or {})}
    made = new_pod("job", **{"restartPolicy": "Never", "containers": [one], **spec})
    made["metadata"]["annotations"] = annotations or {}
    return made


def ask(**given: Any) -> JobRequest:
    return asked(pod(**given), "batch", CLUSTER)


def test_a_pod_of_an_indexed_job_may_have_the_hostname_that_its_job_gives_it():
    assert ask(annotations={INDEX: "0"}, hostname="job-0").entry["name"] == "default/job"
    with pytest.raises(InvalidInput, match=r"spec\.hostname"):
        ask(hostname="mine")


def test_a_pod_becomes_an_entry():
    needs = {"cpu": "3500m", "memory": "1Gi", GPU: "2"}
    found = ask(
        annotations={TASKS: "2", TASKS_PER_NODE: "1", SOURCES: orjson.dumps({"add.c": "int main"}).decode()},
        container={"resources": {"limits": needs, "requests": {"cpu": "3500m"}}},
        restartPolicy="OnFailure",
        activeDeadlineSeconds=61,
    )
    assert found.values == {}
    assert found.entry == {
        "name": "default/job",
        "partition": "batch",
        "script": "#!/bin/sh\nexec true\n",
        "sources": {"add.c": "int main"},
        "requeue": True,
        "tasks": 2,
        "tasks_per_node": 1,
        "cpus_per_task": 2,
        "memory_mb": 1024,
        "gpus": 2,
        "minutes": 2,
    }


def test_values_travel_apart_and_are_told_apart():
    volumes = [{"name": "texts", "configMap": {"name": "texts"}}, {"name": "keys", "secret": {"secretName": "keys"}}]
    mounts = [{"name": "texts", "mountPath": "conf/"}, {"name": "keys", "mountPath": "./keys"}]
    env = [{"name": "WORD", "value": "hidden"}]
    found = ask(volumes=volumes, container={"volumeMounts": mounts, "env": env})
    assert found.entry["sources"] == {"conf/a": "text", "conf/b": "other"}
    assert found.values == {"environment": {"WORD": "hidden"}, "files": {"keys/k": "c2VjcmV0"}}
    assert "hidden" not in str(found.entry)
    other = ask(volumes=volumes, container={"volumeMounts": mounts, "env": [{"name": "WORD", "value": "another"}]})
    assert other.entry["values"] != found.entry["values"]


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["printf", "%s|", "$(WORD)", "a$(WORD)b"], 'it\'s "x" $HOME|ait\'s "x" $HOMEb|'),
        (["printf", "%s|", "$$(WORD)", "$(NONE)", "$5", "", "`id`"], "$(WORD)|$(NONE)|$5||`id`|"),
        (["printf", "%s", "a\nb; echo c"], "a\nb; echo c"),
    ],
)
def test_the_script_s_words_are_the_pod_s(words: list[str], printed: str):
    value = 'it\'s "x" $HOME'
    found = ask(container={"command": words[:1], "args": words[1:], "env": [{"name": "WORD", "value": value}]})
    done = subprocess.run(
        ["/bin/sh", "-c", found.entry["script"].partition("\n")[2]],
        env={"WORD": value, "HOME": "/nowhere"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == printed


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"container": {"image": "alpine:3"}}, "runs no container images"),
        ({"container": {"command": []}}, "a job takes none from an image"),
        ({"container": {"command": [], "args": ["x"]}}, "a job takes none from an image"),
        ({"container": {"livenessProbe": {"exec": {}}}}, "livenessProbe"),
        ({"container": {"ports": [{"containerPort": 80}]}}, "ports"),
        ({"container": {"securityContext": {"runAsUser": 0}}}, "securityContext"),
        ({"container": {"workingDir": "here"}}, "workingDir"),
        ({"container": {"env": [{"name": "A", "valueFrom": {"fieldRef": {}}}]}}, "valueFrom"),
        ({"container": {"env": [{"name": "a.b", "value": "x"}]}}, "no variable of such a name"),
        ({"container": {"resources": {"limits": {"amd.com/gpu": "1"}}}}, "amd.com/gpu"),
        ({"restartPolicy": "Always"}, "restartPolicy"),
        ({"initContainers": [{"name": "i"}]}, "initContainers"),
        ({"hostNetwork": True}, "hostNetwork"),
        ({"containers": [{"name": "a"}, {"name": "b"}]}, "one program"),
        ({"annotations": {TASKS: "0"}}, "a number from 1 to"),
        ({"annotations": {TASKS: "9" * 5000}}, "a number from 1 to"),
        ({"annotations": {SOURCES: "[1]"}}, "JSON of texts"),
        ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}],
          "container": {"volumeMounts": [{"name": "v", "mountPath": "v"}]}}, "configMap, emptyDir, secret"),
        ({"volumes": [{"name": "v", "emptyDir": {}}],
          "container": {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}}, "absolute path"),
        ({"volumes": [{"name": "v", "emptyDir": {}}],
          "container": {"volumeMounts": [{"name": "v", "mountPath": "../v"}]}}, "below the job's working folder"),
        ({"volumes": [{"name": "v", "configMap": {"name": "texts"}}],
          "container": {"volumeMounts": [{"name": "v", "mountPath": "v", "subPath": "a"}]}}, "subPath"),
    ],
)  # fmt: skip
def test_what_a_job_cannot_be_is_refused_by_name(given: dict[str, Any], says: str):
    with pytest.raises(InvalidInput, match=says):
        ask(**given)


def test_what_may_still_come_is_waited_for():
    volumes = [{"name": "v", "configMap": {"name": "later"}}]
    mounts = [{"name": "v", "mountPath": "v"}]
    with pytest.raises(LookupError, match="later does not exist"):
        ask(volumes=volumes, container={"volumeMounts": mounts})
    volumes[0]["configMap"]["optional"] = True  # type: ignore[index]
    assert ask(volumes=volumes, container={"volumeMounts": mounts}).entry["sources"] == {}


class There(NoResources):
    """A cluster with two Pods on the node, one of them in another namespace."""

    def pods(self) -> list[Any]:
        """Return them."""
        return [
            {"metadata": {"namespace": namespace, "name": "first", "uid": f"uid-{namespace}"}}
            for namespace in ("default", "other")
        ]


def test_a_job_waits_for_those_of_pods_of_its_namespace_on_its_node():
    found = asked(pod(annotations={DEPENDENCY: "afterok:first"}), "batch", There())
    assert found.entry["after"] == {"uid-default": "afterok"}
    with pytest.raises(LookupError, match="no Pod default/second"):
        asked(pod(annotations={DEPENDENCY: "afterany:first:second"}), "batch", There())
    for wrong in ("afterok", "afterok:", "aftercorr:first", "first", "afterok:first,,", "afterok:1?after:2"):
        with pytest.raises((InvalidInput, LookupError)):
            asked(pod(annotations={DEPENDENCY: wrong}), "batch", There())


def test_a_token_of_a_service_account_is_left_out():
    volumes = [{"name": "kube-api-access-x", "projected": {"sources": []}}]
    mounts = [{"name": "kube-api-access-x", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]
    assert ask(volumes=volumes, container={"volumeMounts": mounts}).entry["sources"] == {}
