"""The login machine goes away for a while: its jobs go on, and nothing is said of them that is not known.

For how long after it was noticed, MINIK8S_LOGIN_AWAY_S in the environment says: 600 are ten minutes.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.virtual.contract import NoResources, new_pod
from minik8s_modules.virtual.provider import InitConfig
from minik8s_modules.virtual.providers.slurm.provider import SlurmProvider
from tests.support.servers.slurm import Slurm
from tests.support.waiting import until

AWAY_S = float(os.environ.get("MINIK8S_LOGIN_AWAY_S", "0"))
PATIENCE_S = 240.0  # ssh gives a silent machine up after 15 s, and tries are up to a minute apart


def test_jobs_outlive_a_login_machine_that_is_away(slurm: Slurm, tmp_path: Path):
    fields = {"inventory": str(slurm.inventory()), "partition": "batch", "period_s": 1}
    provider = SlurmProvider(InitConfig("away", NoResources(), fields, state_dir=str(tmp_path / "state")))
    nodes: list[dict[str, Any]] = []
    provider.configure_node({"metadata": {"name": "away"}, "status": {}})
    provider.notify_node_status(nodes.append)
    container: dict[str, Any] = {"name": "app", "image": "minik8s/host", "command": ["sleep", "3000"]}
    container |= {"resources": {"requests": {"memory": "10Mi"}}}
    pods = [new_pod(name, restartPolicy="Never", containers=[container]) for name in ("before", "meanwhile")]

    def away() -> str:
        return str((objects.condition(nodes[-1], "SlurmUnavailable") or {}).get("status")) if nodes else ""

    def phase(name: str) -> str:
        return str(provider.get_pod_status("default", name)["phase"])

    provider.create_pod(pods[0])
    until(lambda: phase("before") == "Running", PATIENCE_S)
    slurm.login_down()
    until(lambda: away() == "True", PATIENCE_S)
    provider.create_pod(pods[1])
    time.sleep(AWAY_S)
    assert (phase("before"), phase("meanwhile")) == ("Running", "Pending")
    slurm.login_up()
    until(lambda: phase("meanwhile") == "Running", PATIENCE_S)
    assert away() == "False"
    assert phase("before") == "Running"
    assert len(slurm.run(["squeue", "-h", "-t", "all", "-o", "%i"]).split()) == 2
    for pod in pods:
        provider.delete_pod(pod)
    until(lambda: not slurm.run(["squeue", "-h", "-t", "R,PD", "-o", "%i"]), PATIENCE_S)
    provider.close()
