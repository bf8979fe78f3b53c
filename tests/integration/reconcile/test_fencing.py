"""A node that has seen a newer token is left alone until the shard is led with a newer one."""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration.reconcile.conftest import Cluster


def test_a_reconciler_with_an_old_token_gives_up_and_comes_back_with_a_new_one(cluster: Cluster):
    cluster.create("before")
    cluster.until(lambda: cluster.ready("before"))
    path = Path(cluster.node.state_dir) / "token.json"
    epoch, revision = json.loads(path.read_text())["token"]
    # somebody led the shard a moment after this reconciler was elected
    path.write_text(json.dumps({"token": [epoch, revision + 1]}))
    cluster.create("after")
    log = cluster.daemons["reconcile"].log
    cluster.until(lambda: "giving the shard up" in log.read_text())
    cluster.until(lambda: cluster.ready("after"), 60)
    assert json.loads(path.read_text())["token"] > [epoch, revision + 1]
    assert cluster.container("before")["restartCount"] == 0
    for name in ("before", "after"):
        cluster.delete(name, grace_s=0)
    cluster.until(lambda: cluster.node.ids() == [])
