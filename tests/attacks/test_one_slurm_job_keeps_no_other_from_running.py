"""What the owner of one Pod writes keeps nobody else's jobs of the node from being submitted and followed.

The attack: a Pod is taken that lacks a ConfigMap, which its owner then makes such that the job can never be, or such
that reading it fails in a way that nobody has thought of. All Pods of the node are looked at by one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.pods.slurm import IMAGE, TASKS
from minik8s_modules.virtual.contract import NoResources, new_pod
from minik8s_modules.virtual.provider import InitConfig
from minik8s_modules.virtual.providers.slurm.provider import SlurmProvider
from tests.support.waiting import until

WORDS: dict[str, Any] = {"digest": "d", "base_mismatch": False, "errors": {}, "due": [], "steps": [], "partition": None}


class Login:
    """A login machine on which every job runs that is declared."""

    def __init__(self) -> None:
        self.jobs: dict[str, Any] = {}

    def call(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a pass."""
        for uid, entry in options["upsert"].items():
            self.jobs[uid] = {"id": 7, "name": entry["name"], "state": "RUNNING"}
        return {**WORDS, "status": dict(self.jobs)}

    def read(self, *_: object) -> Iterator[bytes]:
        """Yield nothing."""
        return iter(())

    def close(self) -> None:
        """Nothing is held."""


def pod_of(name: str, annotations: dict[str, str], **volumes: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "app", "image": IMAGE, "command": ["true"]}
    if volumes:
        container["volumeMounts"] = [{"name": "files", "mountPath": "src"}]
    pod = new_pod(name, restartPolicy="Never", containers=[container], **volumes)
    pod["metadata"]["annotations"] = annotations
    return pod


@pytest.mark.parametrize(
    ("annotations", "written"),
    [
        ({}, {"binaryData": {"k": "AA=="}}),
        ({}, {"data": ["not", "a", "map"]}),
        ({TASKS: "none"}, {"data": {}}),
        ({TASKS: "9" * 5000}, {"data": {}}),
    ],
)
def test_others_jobs_run_on(tmp_path: Path, annotations: dict[str, str], written: dict[str, Any]) -> None:
    resources = NoResources()
    config = InitConfig("gpu", resources, {"inventory": str(tmp_path), "partition": "batch"})
    provider = SlurmProvider(config, lambda _settings, _folder: Login())

    def said(name: str) -> dict[str, Any]:
        return dict(provider.get_pod_status("default", name))

    source = {"name": "files", "configMap": {"name": "later"}}
    provider.create_pod(pod_of("bad", annotations, volumes=[source]))
    assert "later does not exist" in str(said("bad"))
    resources.fill_config_map({"metadata": {"namespace": "default", "name": "later"}, **written})
    provider.create_pod(pod_of("good", {}))
    until(lambda: said("good")["phase"] == "Running")
    until(lambda: "later does not exist" not in str(said("bad")))
    assert said("bad")["phase"] == "Pending"
    assert objects.dig(said("bad")["containerStatuses"][0], "state", "waiting", "message")
    provider.close()
