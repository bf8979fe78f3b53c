"""An upgrade goes from machine to machine under load, stops at the first that fails, and goes on."""

from __future__ import annotations

import pytest

from tests.machines.membership.members import WEB, Members
from tests.support import standing
from tests.support.labcluster import CommandFailed
from tests.support.standing import NAMESPACE


def cordoned(members: Members) -> list[str]:
    nodes = members.cluster.get("nodes")["items"]
    return [one["metadata"]["name"] for one in nodes if one["spec"].get("unschedulable")]


def test_an_upgrade_fails_no_request_and_restarts_no_pod(served: Members):
    cluster = served.cluster
    before = served.running(*cluster.workers)

    play = cluster.play("upgrade.yml", "-e", "control_plane_drift=fast")

    assert play.recap["control1"]["changed"], "nothing was upgraded, so this shows nothing"
    assert served.running(*cluster.workers) == before
    assert sorted(cluster.ready_nodes()) == sorted(one["metadata"]["name"] for one in cluster.get("nodes")["items"])
    counted = served.tally()
    assert counted.bad == 0, counted
    assert cluster.play("upgrade.yml").recap["control1"]["changed"]  # the setting goes back


def test_a_machine_that_fails_ends_the_upgrade_and_the_next_run_goes_on(served: Members):
    cluster = served.cluster
    first, second = cluster.workers
    # a bare pod, which nobody would make again, keeps its node from being drained
    stuck = standing.pod("stuck", standing.pod_spec(["sleep", "10000"], second))
    cluster.apply(stuck)
    cluster.until(lambda: cluster.ready("stuck", NAMESPACE))
    cluster.kubectl("delete", "pod", "client", "-n", NAMESPACE)  # it is bare, too

    with pytest.raises(CommandFailed) as ended:
        cluster.play("upgrade.yml", "-e", "drain=true")

    assert f"{second} could not be drained" in " ".join(ended.value.words.split())
    assert cordoned(served) == [second]
    cluster.kubectl("delete", "pod", "stuck", "-n", NAMESPACE)
    cluster.play("upgrade.yml", "-e", "drain=true")
    assert cordoned(served) == []
    cluster.until(lambda: standing.all_ready(cluster, 3, f"app={WEB}"))
    assert first in cluster.ready_nodes()
