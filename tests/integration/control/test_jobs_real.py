"""Jobs and CronJobs: the controllers as a process, kubectl, a real API server; a thread plays the node."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Invalid, NotFound
from minik8s_modules.api.kinds import CRON_JOB, EVENT, JOB, POD
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.controllers.batch.cronjobs import SCHEDULED, CronJobController
from minik8s_modules.controllers.batch.job_tracking import FINALIZER
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from tests.integration.control.conftest import Cluster, Daemon
from tests.support.playing import ENDS, PlayingNode
from tests.support.waiting import until

PATIENCE_S = 60.0


def job(name: str, space: str, ends: str = "Succeeded", **spec: Any) -> dict[str, Any]:
    labels = {ENDS: ends} if ends else {}
    containers = [{"name": "app", "image": "minik8s/busybox:1"}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers, "restartPolicy": "Never"}}
    meta = {"name": name, "namespace": space}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template, **spec}}


def status(cluster: Cluster, name: str, space: str) -> dict[str, Any]:
    return objects.status(cluster.admin.get(JOB, name, space))


def over(cluster: Cluster, name: str, space: str) -> str:
    conditions = status(cluster, name, space).get("conditions") or []
    return next((str(each["type"]) for each in conditions if each["type"] in {"Complete", "Failed"}), "")


def test_kubectl_creates_a_job_and_waits_for_it(cluster: Cluster, daemon: Daemon, node: PlayingNode):
    space = cluster.namespace()
    cluster.admin.create(JOB, job("sum", space, completions=5, parallelism=2))
    kubectl = cluster.server.kubectl
    kubectl("-n", space, "wait", "--for=condition=complete", "job/sum", f"--timeout={PATIENCE_S:g}s")
    found = status(cluster, "sum", space)
    assert (found["succeeded"], found.get("failed", 0), found["uncountedTerminatedPods"]) == (5, 0, {})
    assert found["completionTime"] >= found["startTime"]
    pods = cluster.admin.list(POD, space).items
    assert len(pods) == 5
    assert not any(FINALIZER in objects.finalizers(pod) for pod in pods)
    assert "Complete" in kubectl("-n", space, "get", "job/sum").stdout
    events = until(lambda: {e["reason"] for e in cluster.admin.list(EVENT, space).items} >= {"Completed"}, PATIENCE_S)
    assert events
    kubectl("-n", space, "delete", "job/sum")
    until(lambda: not cluster.admin.list(POD, space).items, PATIENCE_S)


def test_what_kubectl_create_job_makes_runs_without_a_warning(cluster: Cluster, daemon: Daemon, node: PlayingNode):
    space = cluster.namespace()
    done = cluster.server.kubectl("-n", space, "create", "job", "one", "--image=minik8s/busybox:1")
    assert "Warning" not in done.stderr
    until(lambda: status(cluster, "one", space).get("ready") == 1, PATIENCE_S)


def test_a_job_that_fails_too_often_is_failed(cluster: Cluster, daemon: Daemon, node: PlayingNode):
    space = cluster.namespace()
    cluster.admin.create(JOB, job("bad", space, "Failed", backoffLimit=0))
    kubectl = cluster.server.kubectl
    kubectl("-n", space, "wait", "--for=condition=failed", "job/bad", f"--timeout={PATIENCE_S:g}s")
    found = status(cluster, "bad", space)
    assert (found["failed"], found.get("succeeded", 0)) == (1, 0)
    assert {each["type"]: each["reason"] for each in found["conditions"]} == {
        "FailureTarget": "BackoffLimitExceeded",
        "Failed": "BackoffLimitExceeded",
    }


def test_an_indexed_job_gives_each_pod_its_index(cluster: Cluster, daemon: Daemon, node: PlayingNode):
    space = cluster.namespace()
    cluster.admin.create(JOB, job("part", space, completions=4, parallelism=4, completionMode="Indexed"))
    until(lambda: over(cluster, "part", space) == "Complete", PATIENCE_S)
    assert status(cluster, "part", space)["completedIndexes"] == "0-3"
    pods = cluster.admin.list(POD, space).items
    assert sorted(pod["spec"]["hostname"] for pod in pods) == [f"part-{index}" for index in range(4)]


def test_suspend_resume_and_the_time_to_live(cluster: Cluster, daemon: Daemon, node: PlayingNode):
    space = cluster.namespace()
    cluster.admin.create(JOB, job("nap", space, "", completions=1, suspend=True, ttlSecondsAfterFinished=1))
    until(lambda: (status(cluster, "nap", space).get("conditions") or [{}])[0].get("type") == "Suspended", PATIENCE_S)
    assert cluster.admin.list(POD, space).items == []
    cluster.admin.patch(JOB, "nap", space, {"spec": {"suspend": False}})
    until(lambda: status(cluster, "nap", space).get("ready") == 1, PATIENCE_S)
    cluster.admin.patch(JOB, "nap", space, {"spec": {"suspend": True}})
    until(lambda: not cluster.admin.list(POD, space).items, PATIENCE_S)
    assert status(cluster, "nap", space).get("failed", 0) == 0
    cluster.admin.patch(JOB, "nap", space, {"spec": {"suspend": False}})
    pod = until(lambda: [p for p in cluster.admin.list(POD, space).items if not objects.is_deleting(p)], PATIENCE_S)[0]
    cluster.admin.patch(POD, objects.name(pod), space, {"status": {"phase": "Succeeded"}}, subresource="status")

    def gone() -> bool:
        try:
            cluster.admin.get(JOB, "nap", space)
        except NotFound:
            return True
        return False

    until(gone, PATIENCE_S)


def test_killed_in_the_middle_every_pod_counts_once(cluster: Cluster, daemon: Daemon, node: PlayingNode):
    space = cluster.namespace()
    cluster.admin.create(JOB, job("many", space, completions=30, parallelism=6))
    until(lambda: int(status(cluster, "many", space).get("succeeded") or 0) > 3, PATIENCE_S)
    daemon.kill9()
    daemon.start()
    until(lambda: over(cluster, "many", space) == "Complete", PATIENCE_S)
    found = status(cluster, "many", space)
    assert (found["succeeded"], found.get("failed", 0)) == (30, 0)
    assert len([p for p in cluster.admin.list(POD, space).items if p["status"]["phase"] == "Succeeded"]) == 30


def test_a_pod_that_is_deleted_is_counted_before_it_goes(cluster: Cluster, daemon: Daemon, node: PlayingNode):
    space = cluster.namespace()
    cluster.admin.create(JOB, job("hold", space, ""))
    pod = until(lambda: cluster.admin.list(POD, space).items, PATIENCE_S)[0]
    cluster.server.kubectl("-n", space, "delete", "pod", objects.name(pod), "--wait=true")
    until(lambda: status(cluster, "hold", space).get("failed") == 1, PATIENCE_S)
    until(lambda: [p for p in cluster.admin.list(POD, space).items if p["status"]["phase"] == "Running"], PATIENCE_S)


# --- by the clock ---------------------------------------------------------------------------------


class LaterClock(SystemClock):
    """The system's, so many days ahead."""

    def __init__(self, days: int) -> None:
        self._ahead = timedelta(days=days)

    def now(self) -> datetime:
        """Return the time that will be."""
        return super().now() + self._ahead


def cron_job(name: str, space: str, schedule: str, **spec: Any) -> dict[str, Any]:
    template = {"spec": job(name, space)["spec"]}
    meta = {"name": name, "namespace": space}
    declared = {"schedule": schedule, "jobTemplate": template, **spec}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta, "spec": declared}


def test_a_cron_job_starts_jobs_and_kubectl_starts_one_from_it(cluster: Cluster, daemon: Daemon, node: PlayingNode):
    space = cluster.namespace()
    cluster.admin.create(CRON_JOB, cron_job("tick", space, "@every 1s", concurrencyPolicy="Forbid"))
    until(lambda: cluster.admin.list(JOB, space).items, PATIENCE_S)
    made = cluster.admin.list(JOB, space).items[0]
    assert (objects.controller_of(made) or {})["name"] == "tick"
    until(lambda: over(cluster, objects.name(made), space) == "Complete", PATIENCE_S)
    until(lambda: objects.status(cluster.admin.get(CRON_JOB, "tick", space)).get("lastSuccessfulTime"), PATIENCE_S)
    kubectl = cluster.server.kubectl
    kubectl("-n", space, "patch", "cronjob/tick", "-p", '{"spec": {"suspend": true}}')
    kubectl("-n", space, "create", "job", "by-hand", "--from=cronjob/tick")
    kubectl("-n", space, "wait", "--for=condition=complete", "job/by-hand", f"--timeout={PATIENCE_S:g}s")
    kubectl("-n", space, "delete", "cronjob/tick")
    until(lambda: not cluster.admin.list(JOB, space).items, PATIENCE_S)


def test_three_years_later_the_latest_new_year_is_started_once(cluster: Cluster):
    space = cluster.namespace()
    zone = "Pacific/Auckland"
    cluster.admin.create(CRON_JOB, cron_job("party", space, "0 0 1 JAN ?", timeZone=zone))
    client = cluster.client("controllers")
    recorder = EventRecorder(client, "test")
    context = Context(client, recorder, Informers(client), clock=LaterClock(3 * 365))
    controller = CronJobController(context)
    context.informers.start()
    controller.start()
    try:
        until(lambda: cluster.admin.list(JOB, space).items, PATIENCE_S)
        until(lambda: objects.status(cluster.admin.get(CRON_JOB, "party", space)).get("lastScheduleTime"), PATIENCE_S)
        made = cluster.admin.list(JOB, space).items
    finally:
        controller.stop()
        context.informers.stop()
        context.pool.shutdown()
        client.close()
    year = (SystemClock().now() + timedelta(days=3 * 365)).astimezone(ZoneInfo(zone)).year
    assert [objects.annotations(each)[SCHEDULED] for each in made] == [f"{year}-01-01T00:00:00+13:00"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"schedule": "* * * *"}, "spec.schedule"),
        ({"schedule": "0 0 * * 8"}, "spec.schedule"),
        ({"timeZone": "Mars/Phobos"}, "spec.timeZone"),
        ({"startingDeadlineSeconds": -1}, "spec.startingDeadlineSeconds"),
        ({"concurrencyPolicy": "Perhaps"}, "spec.concurrencyPolicy"),
    ],
)
def test_a_bad_cron_job_is_refused_with_its_field(cluster: Cluster, change: dict[str, Any], field: str):
    made = cron_job("bad", "default", "@daily")
    with pytest.raises(Invalid, match=field):
        cluster.admin.create(CRON_JOB, {**made, "spec": {**made["spec"], **change}})
