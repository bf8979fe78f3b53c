"""An upgrade goes from machine to machine under load, stops at the first that fails, and goes on."""

from __future__ import annotations

import itertools
import json
from typing import NamedTuple

import pytest

from tests.machines.membership.members import WEB, Members
from tests.support.clusters import standing
from tests.support.clusters.labcluster import CommandFailed
from tests.support.clusters.standing import NAMESPACE


def cordoned(members: Members) -> list[str]:
    nodes = members.cluster.get("nodes")["items"]
    return [one["metadata"]["name"] for one in nodes if one["spec"].get("unschedulable")]


# What each worker has of the next release: another server of names, and another program in each pod's sandbox.
NEXT = {"coredns_program": "/opt/minik8s/bin/coredns", "images_pause_program": "/var/lib/minik8s/pause"}
SEEN = """
import json, os, subprocess, sys, time
def said(*argv):
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
since_boot_us = said("systemctl", "show", "--value", "--property=ExecMainStartTimestampMonotonic", "minik8s-dns")
json.dump([
    os.stat("/opt/minik8s/bin/coredns").st_ctime,
    time.time() - time.monotonic() + int(since_boot_us) / 1e6,
    said("docker", "image", "inspect", "--format={{.Id}}", "minik8s/pause:1"),
], sys.stdout)
"""


class Seen(NamedTuple):
    """When a worker's server of names was exchanged, when the one that runs was started, and its image of sandboxes."""

    exchanged_s: float
    started_s: float
    image: str


def look(members: Members) -> list[Seen]:
    """Look at each worker, in the order of the inventory; lab machines of this kind share one clock."""
    return [Seen(*json.loads(members.cluster.on(name, ["python3", "-c", SEEN]))) for name in members.cluster.workers]


def release(members: Members) -> list[str]:
    """Make programs that differ from those on the workers by a byte; return what names them to a playbook."""
    cluster, words = members.cluster, [""][:0]
    for variable, path in NEXT.items():
        place = f"/mnt/host/{variable}"
        cluster.on(cluster.workers[0], ["sh", "-euc", 'cp "$1" "$2"; echo >>"$2"', "sh", path, place])
        words += ["-e", f"{variable}={cluster.lab.folder / 'share' / variable}"]
    return words


def test_an_upgrade_goes_from_worker_to_worker_fails_no_request_and_restarts_no_pod(served: Members):
    cluster = served.cluster
    before, containers = look(served), served.running(*cluster.workers)

    play = cluster.play("upgrade.yml", "-e", "control_plane_drift=fast", *release(served))

    after = look(served)
    assert play.recap["control1"]["changed"], "nothing was upgraded, so this shows nothing"
    for old, new in zip(before, after, strict=True):
        assert old.started_s < new.exchanged_s < new.started_s, "the new program does not run"
        assert old.image != new.image
    for one, following in itertools.pairwise(after):
        assert one.started_s < following.exchanged_s, "the next worker was begun before this one was done"
    assert served.running(*cluster.workers) == containers
    assert sorted(cluster.ready_nodes()) == sorted(one["metadata"]["name"] for one in cluster.get("nodes")["items"])
    assert cluster.play("upgrade.yml").recap["control1"]["changed"]  # settings and programs go back
    assert all(one.image != new.image for one, new in zip(look(served), after, strict=True))
    assert served.running(*cluster.workers) == containers
    counted = served.tally()
    assert counted.bad == 0, counted


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
