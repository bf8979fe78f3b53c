"""S-24: the original's Job, through API server, controllers, scheduler, a virtual node and Ansible, on a real Slurm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import CONFIG_MAP, JOB, LEGACY_JOB, NODE, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.slurm import IMAGE, RESULTS, RESULTS_TO, TAKES_RESULTS
from minik8s_modules.cli.original.manifests import read_manifests
from tests.integration.control.conftest import Cluster, Daemon
from tests.support.servers.slurm import STUDENT, Slurm, running
from tests.support.waiting import until

PATIENCE_S = 120.0  # a play takes seconds to start, on a busy machine many
# matrices, as the programs of the original's report; in C, as no machine here has a GPU
PROGRAM = """
#include <stdio.h>
int main(void) {
    int a[2][2] = {{1, 2}, {3, 4}}, b[2][2] = {{10, 20}, {30, 40}};
    for (int i = 0; i < 4; i++) printf("%d ", a[i / 2][i % 2] + b[i / 2][i % 2]);
    printf("\\n");
    return 0;
}
"""
MANIFEST = """
kind: Job
metadata: {name: gpujob}
spec:
  partition: batch
  threadNum: 1
  taskPerNode: 1
  cpu_per_task: 1
  gpu-num: 1
  file: result
  codePath: PATH
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with running(tmp_path_factory.mktemp("slurm") / "machine") as found:
        yield found


@pytest.fixture(scope="module")
def node(cluster: Cluster, daemon: Daemon, scheduler: Daemon, slurm: Slurm) -> Iterator[Daemon]:
    """Yield the daemon that carries the partition as a node, Ready."""
    virtual = cluster.daemon("virtual")
    virtual.config, virtual.log = cluster.folder / "slurm.yml", cluster.folder / "slurm.log"
    config = {"inventory": str(slurm.inventory()), "partition": "batch", "period_s": 2}
    rows = [{"name": "batch", "provider": "slurm", "config": config}]
    virtual.config.write_text(yaml.safe_dump({"kubeconfig": str(cluster.kubeconfig("virtual")), "nodes": rows}))
    virtual.start()
    until(lambda: _is_ready(cluster), PATIENCE_S)
    yield virtual
    virtual.stop()


def _is_ready(cluster: Cluster) -> bool:
    try:
        found = cluster.admin.get(NODE, "batch")
    except NotFound:
        return False
    return (objects.condition(found, "Ready") or {}).get("status") == "True"


def _job(tmp_path: Path, namespace: str, name: str, text: str, suffix: str = ".c", **spec: Any) -> JsonObject:
    program = tmp_path / f"{name}{suffix}"
    program.write_text(text)
    manifest = tmp_path / f"{name}.yml"
    manifest.write_text(MANIFEST.replace("PATH", str(program)).replace("gpujob", name))
    ((found, _),) = read_manifests([str(manifest)], namespace)
    found["spec"] |= spec
    return found


def _ended(cluster: Cluster, name: str, space: str) -> JsonObject:
    def status() -> JsonObject:
        return objects.status(cluster.admin.get(LEGACY_JOB, name, space))

    until(lambda: status().get("phase") in {"Succeeded", "Failed"}, PATIENCE_S)
    return status()


def test_a_job_of_the_original_prints_its_result(cluster: Cluster, node: Daemon, tmp_path: Path) -> None:
    space = cluster.namespace()
    cluster.admin.create(LEGACY_JOB, _job(tmp_path, space, "gpujob", PROGRAM))
    assert _ended(cluster, "gpujob", space) == {"phase": "Succeeded", "result": "11 22 33 44 \n"}
    (pod,) = cluster.admin.list(POD, space).items
    assert pod["spec"]["nodeName"] == "batch"
    cluster.admin.delete(LEGACY_JOB, "gpujob", space, propagation="Background")
    until(lambda: not cluster.admin.list(POD, space).items, PATIENCE_S)


def test_what_does_not_compile_and_what_no_partition_has_say_why(
    cluster: Cluster, node: Daemon, tmp_path: Path
) -> None:
    space = cluster.namespace()
    cluster.admin.create(LEGACY_JOB, _job(tmp_path, space, "broken", "int main( {"))
    cluster.admin.create(LEGACY_JOB, _job(tmp_path, space, "cuda", PROGRAM, ".cu"))
    cluster.admin.create(LEGACY_JOB, _job(tmp_path, space, "lost", PROGRAM, partition="none"))
    broken, cuda = _ended(cluster, "broken", space), _ended(cluster, "cuda", space)
    assert broken["phase"] == cuda["phase"] == "Failed"
    assert "broken.c:1: error" in broken["result"]
    assert "no nvcc on n" in cuda["result"] or "CUDA is not installed" in cuda["result"]
    until(
        lambda: "node" in str(objects.status(cluster.admin.get(LEGACY_JOB, "lost", space)).get("message")), PATIENCE_S
    )


def three(namespace: str, go: str) -> JsonObject:
    """Return a Job of three Pods, each of which notes that it ran and ends once the file ``go`` is there."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "three", "namespace": namespace},
        "spec": {
            "completions": 3,
            "parallelism": 3,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "nodeSelector": {"slurm.minik8s.io/partition": "batch"},
                    "tolerations": [{"key": "virtual-kubelet.io/provider", "operator": "Exists"}],
                    "containers": [{
                        "name": "one",
                        "image": IMAGE,
                        "command": ["sh", "-c", f"echo ran >> $HOME/ran; until [ -e {go} ]; do sleep 0.2; done"],
                        "resources": {"limits": {"cpu": "1", "memory": "10Mi"}},
                    }],
                }
            },
        },
    }  # fmt: skip


def running_jobs(slurm: Slurm) -> int:
    return len(slurm.run(["squeue", "-h", "-t", "R", "-o", "%i"]).split())


def test_a_killed_daemon_goes_on_and_submits_nothing_twice(cluster: Cluster, node: Daemon, slurm: Slurm) -> None:
    space = cluster.namespace()
    cluster.admin.create(JOB, three(space, "/tmp/go"))
    until(lambda: slurm.run(["squeue", "-h", "-o", "%i"]).split(), PATIENCE_S)
    node.kill9()
    node.start()
    until(lambda: running_jobs(slurm) == 3, PATIENCE_S)
    slurm.run(["touch", "/tmp/go"])
    until(lambda: objects.status(cluster.admin.get(JOB, "three", space)).get("succeeded") == 3, PATIENCE_S)
    assert slurm.run(["cat", f"/home/{STUDENT}/ran"]) == "ran\n" * 3


def test_jobs_that_ended_while_nobody_followed_them_are_told_afterwards(
    cluster: Cluster, node: Daemon, slurm: Slurm
) -> None:
    space = cluster.namespace()
    cluster.admin.create(JOB, three(space, "/tmp/gone"))
    until(lambda: running_jobs(slurm) == 3, PATIENCE_S)
    node.kill9()
    slurm.run(["touch", "/tmp/gone"])
    until(lambda: not slurm.run(["squeue", "-h", "-o", "%i"]).split(), PATIENCE_S)
    node.start()
    until(lambda: objects.status(cluster.admin.get(JOB, "three", space)).get("succeeded") == 3, PATIENCE_S)


def test_results_of_an_indexed_job_are_in_its_config_map_once_it_is_complete(
    cluster: Cluster, node: Daemon, slurm: Slurm
) -> None:
    """The daemon is killed while the jobs run, and has no right to any ConfigMap but this one."""
    space = cluster.namespace()
    taken = {"namespace": space, "name": "out", "annotations": {TAKES_RESULTS: "true"}}
    job = three(space, "")
    job["spec"]["completionMode"] = "Indexed"
    annotations = {RESULTS: "*.csv", RESULTS_TO: "out"}
    job["spec"]["template"]["metadata"] = {"annotations": annotations}
    command = "until [ -e /tmp/results ]; do sleep 0.2; done; echo $JOB_COMPLETION_INDEX > a.csv"
    job["spec"]["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", command]
    cluster.admin.create(JOB, job)
    until(lambda: len(cluster.admin.list(POD, space).items) == 3, PATIENCE_S)
    cluster.admin.create(CONFIG_MAP, {"metadata": taken})
    until(lambda: running_jobs(slurm) == 3, PATIENCE_S)
    node.kill9()
    slurm.run(["touch", "/tmp/results"])
    until(lambda: not slurm.run(["squeue", "-h", "-o", "%i"]).split(), PATIENCE_S)
    node.start()
    until(lambda: objects.status(cluster.admin.get(JOB, "three", space)).get("succeeded") == 3, PATIENCE_S)
    data = cluster.admin.get(CONFIG_MAP, "out", space)["data"]
    assert data == {f"{index}-a.csv": f"{index}\n" for index in range(3)}
