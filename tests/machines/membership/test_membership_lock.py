"""The lock that keeps two runs from changing machines at once: molecule's scenario, on the machines that are there."""

from __future__ import annotations

from tests.machines.membership.members import Members
from tests.support.clusters.labcluster import REPOSITORY

SCENARIO = REPOSITORY / "tests" / "molecule" / "membership_lock"


def test_another_run_is_kept_out_told_by_whom_and_may_break_a_claim(members: Members):
    for playbook in ("converge.yml", "verify.yml"):
        members.cluster.play(str(SCENARIO / playbook))
