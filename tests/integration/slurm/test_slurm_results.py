"""Results of jobs of a real Slurm come into ConfigMaps before their Pods have ended, whatever is killed on the way."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.errors import ServiceUnavailable
from minik8s_modules.api.pods.slurm import COPIED, RESULTS, RESULTS_TO, TAKES_RESULTS
from minik8s_modules.virtual.contract import NoResources
from minik8s_modules.virtual.providers.slurm.provider import SlurmProvider
from tests.integration.slurm.conftest import InPlace
from tests.integration.slurm.test_slurm_provider import pod, provider_on, status
from tests.support.servers.slurm import Slurm
from tests.support.waiting import until

PROGRAM = r"""
mkdir plots; echo 1,2 > a.csv; printf '\377' > plots/b.png; echo no > c.txt
ln -s /etc/passwd stolen.csv; ln -s /etc etc; mkfifo pipe.csv
"""


class Away(NoResources):
    """A cluster whose API takes no ConfigMap until ``is_back``."""

    is_back = False

    def fill_config_map(self, config_map: dict[str, Any]) -> None:
        """Take it or not."""
        if not self.is_back:
            raise ServiceUnavailable("the API is away")
        super().fill_config_map(config_map)


def taken() -> dict[str, Any]:
    return {"metadata": {"namespace": "default", "name": "out", "annotations": {TAKES_RESULTS: "true"}}}


def with_results(name: str, command: str, patterns: str) -> dict[str, Any]:
    one = pod(name, ["sh", "-c", command])
    one["metadata"]["annotations"] = {RESULTS: patterns, RESULTS_TO: "out"}
    return one


def copied(provider: SlurmProvider, name: str) -> dict[str, Any]:
    return objects.condition({"status": status(provider, name)}, COPIED) or {}


def finish(provider: SlurmProvider) -> None:
    for each in provider.get_pods():
        provider.delete_pod(each)
    provider.close()


def test_files_are_copied_and_links_are_not_followed(slurm: Slurm, tmp_path: Path):
    resources = NoResources({"default/out": taken()})
    provider = provider_on(slurm, tmp_path, resources=resources)
    provider.create_pod(with_results("one", PROGRAM, "*.csv,plots/*,etc/passwd"))
    provider.create_pod(with_results("large", "head -c 2000000 /dev/zero > large", "large"))
    for name in ("one", "large"):
        until(lambda name=name: status(provider, name)["phase"] == "Succeeded")  # type: ignore[misc]
    assert copied(provider, "one")["status"] == "True"
    assert copied(provider, "large")["reason"] == "ResultsTooLarge"
    found = resources.config_map("default", "out") or {}
    assert (found["data"], found["binaryData"]) == ({"a.csv": "1,2\n"}, {"plots.b.png": "/w=="})
    finish(provider)


def test_a_pod_ends_once_its_results_are_there_also_where_its_provider_was_killed(slurm: Slurm, tmp_path: Path):
    resources = Away({"default/out": taken()})
    owner = f"gpu-{uuid.uuid4().hex[:8]}"
    killed = provider_on(slurm, tmp_path, login=InPlace(slurm, owner), resources=resources)
    one = with_results("one", "echo 1 > a.csv", "a.csv")
    killed.create_pod(one)
    until(lambda: copied(killed, "one").get("reason") == "ConfigMapNotFilled")
    held = status(killed, "one")
    assert held["phase"] == "Running"
    assert held["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    killed._stop.set()
    killed._wake.set()
    told: list[dict[str, Any]] = []
    provider = provider_on(slurm, tmp_path, login=InPlace(slurm, owner), resources=resources)
    provider.notify_pods(told.append)
    provider.get_pods()
    provider.update_pod({**one, "status": {}})
    until(lambda: told)
    assert {each["status"]["phase"] for each in told} <= {"Pending", "Running"}
    resources.is_back = True
    until(lambda: status(provider, "one")["phase"] == "Succeeded")
    assert (resources.config_map("default", "out") or {})["data"] == {"a.csv": "1\n"}
    finish(provider)
