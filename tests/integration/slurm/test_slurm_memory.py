"""A job that takes more memory than it asked for is killed by a real Slurm, and its Pod says so as Kubernetes does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.slurm.test_slurm_provider import ended, pod, provider_on, status
from tests.support.servers.slurm import can_limit_memory, running


@pytest.mark.skipif(not can_limit_memory(), reason="Slurm's task/cgroup is set up for cgroups of version 1 here")
def test_a_job_without_enough_memory_is_oom_killed(tmp_path: Path):
    with running(tmp_path / "machine", limits_memory=True) as slurm:
        provider = provider_on(slurm, tmp_path)
        provider.create_pod(pod("greedy", ["python3", "-c", "x = bytearray(200 << 20)"]))
        found = ended(provider, "greedy")
        assert (found["reason"], found["exitCode"], found.get("signal")) == ("OOMKilled", 137, None)
        assert "more memory than it had asked for" in status(provider, "greedy")["message"]
        provider.delete_pod(provider.get_pod("default", "greedy"))
        provider.close()
