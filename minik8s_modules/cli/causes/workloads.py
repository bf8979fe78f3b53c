"""Why a workload, a budget or a quota is not as it should be: mostly because of its pods, so these are asked."""

from __future__ import annotations

from collections.abc import Iterator

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import JOB, POD, RESOURCE_QUOTA
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.quantities import parse
from minik8s_modules.api.selectors import as_label_selector
from minik8s_modules.cli.causes.faults import Fault, kubectl, resource, why
from minik8s_modules.cli.causes.pods import pod_cause, pod_faults
from minik8s_modules.cli.causes.surroundings import Around

_WANTED = {"DaemonSet": ("status", "desiredNumberScheduled"), "Job": ("status", "active")}
_ENDED = ("Succeeded", "Failed")
_OPERATORS = {"In": "in", "NotIn": "notin"}


def workload_faults(obj: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield why a Deployment, ReplicaSet, StatefulSet, DaemonSet or Job is not as it should be."""
    namespace = objects.namespace(obj)
    if obj["kind"] == JOB.kind and (objects.condition(obj, "Complete") or {}).get("status") == "True":
        return
    yield from _job(obj)
    failure = objects.condition(obj, "ReplicaFailure") or {}
    if failure.get("status") == "True":
        text = f"ReplicaFailure: {failure.get('reason', '')}: {failure.get('message', '')}"
        yield Fault(
            text, _of_quota(namespace, around) or kubectl(namespace, "get", "events", "--field-selector=type=Warning")
        )
    pods = _pods(obj, around)
    yield from _troubled(pods, around)
    if objects.spec(obj).get("paused"):
        text = "the rollout is paused: template changes wait until it is resumed"
        yield Fault(text, kubectl(namespace, "rollout", "resume", resource(obj)))
    yield from _conditions(obj)
    wanted = objects.dig(obj, *_WANTED.get(obj["kind"], ("spec", "replicas"))) or 0
    if len(pods) < wanted:
        yield from _unmade(obj, around, wanted - len(pods))
    observed = objects.status(obj).get("observedGeneration")
    if (observed is not None and observed < objects.generation(obj)) or (not objects.status(obj) and wanted):
        yield Fault(
            "the controllers have not processed it since it was written: is minik8s-controllers running?",
            "kubectl -n kube-system get leases",
        )


def original_job_faults(job: JsonObject, _around: Around) -> Iterator[Fault]:
    """Yield why a Job of the original has no result yet, or failed: what Slurm says of its job."""
    status, namespace = objects.status(job), objects.namespace(job)
    pods = f"--selector=slurm.minik8s.io/job-name={objects.name(job)}"
    if status.get("phase") == "Failed":
        words = str(status.get("result") or "").strip().splitlines()
        text = ": ".join(part for part in (str(status.get("message") or "it failed"), *words[-1:]) if part)
        yield Fault(text, kubectl(namespace, "logs", pods))
    elif status.get("message"):
        yield Fault(str(status["message"]), kubectl(namespace, "get", "pods", pods))
    elif not status:
        text = "the controllers have not processed it since it was written: is minik8s-controllers running?"
        yield Fault(text, "kubectl -n kube-system get leases")


def _job(obj: JsonObject) -> Iterator[Fault]:
    if obj["kind"] != "Job":
        return
    namespace = objects.namespace(obj)
    failed = objects.condition(obj, "Failed") or objects.condition(obj, "FailureTarget") or {}
    if failed.get("status") == "True":
        text = f"{failed['type']}: {failed.get('reason', '')}: {failed.get('message', '')}"
        yield Fault(text, kubectl(namespace, "logs", resource(obj), "--tail=20"))
    managed = objects.spec(obj).get("managedBy")
    if managed and managed != "kubernetes.io/job-controller":
        yield Fault(f"it is left to the controller {managed} (spec.managedBy); minik8s does not act on it")
    if objects.spec(obj).get("suspend"):
        resume = ("patch", resource(obj), "--type=merge", "-p", '{"spec":{"suspend":false}}')
        yield Fault("it is suspended (spec.suspend): no pods are made", kubectl(namespace, *resume))


def selector_text(selector: JsonObject | None) -> str:
    """Return a selector as requests have it, "" for one that selects nothing or everything.

    It is a metav1.LabelSelector, or a ReplicationController's map of labels.
    """
    asked = as_label_selector(selector) or {}
    found = [f"{key}={value}" for key, value in sorted((asked.get("matchLabels") or {}).items())]
    for one in asked.get("matchExpressions") or []:
        key, operator = one.get("key"), one.get("operator")
        if operator in _OPERATORS:
            found.append(f"{key} {_OPERATORS[operator]} ({','.join(one.get('values') or [])})")
        else:
            found.append(f"!{key}" if operator == "DoesNotExist" else str(key))
    return ",".join(found)


def _pods(obj: JsonObject, around: Around) -> list[JsonObject]:
    """Return the pods of a workload; those that have ended count for Jobs alone, as others have replaced them."""
    labels = selector_text(objects.spec(obj).get("selector"))
    found = around.selected(POD, objects.namespace(obj), labels) if labels else []
    return [one for one in found if obj["kind"] == JOB.kind or objects.status(one).get("phase") not in _ENDED]


def _troubled(pods: list[JsonObject], around: Around) -> Iterator[Fault]:
    """Yield the first cause among the pods, and how many have one."""
    troubled = [pod for pod in pods if pod_cause(pod, around)]
    if not troubled:
        return
    fault = next(pod_faults(troubled[0], around))
    several = f"{len(troubled)} of {len(pods)} pods are not ready; " if len(pods) > 1 else ""
    yield Fault(f"{several}pod {objects.name(troubled[0])}: {fault.cause}", fault.next)


def _conditions(obj: JsonObject) -> Iterator[Fault]:
    for condition in objects.status(obj).get("conditions") or []:
        if condition.get("status") != "True" and condition.get("message"):
            text = f"{condition['type']}: {condition.get('reason', '')}: {condition['message']}"
            yield Fault(text, kubectl(objects.namespace(obj), "describe", resource(obj)))


def _unmade(obj: JsonObject, around: Around, lacking: int) -> Iterator[Fault]:
    warnings = [event for event in around.events(obj) if event.get("type") == "Warning"]
    if warnings:
        text = (
            f"{lacking} of its pods were not made; {warnings[-1].get('reason', '')}: {warnings[-1].get('message', '')}"
        )
        lead = _of_quota(objects.namespace(obj), around) or kubectl(objects.namespace(obj), "describe", resource(obj))
        yield Fault(text, lead)


def _of_quota(namespace: str, around: Around) -> str:
    """Return the command that shows the quota that is used up, "" when there is none."""
    spent = (objects.name(one) for one in around.all(RESOURCE_QUOTA, namespace) if _spent(one))
    return next((kubectl(namespace, "describe", "resourcequota", name) for name in spent), "")


def _spent(quota: JsonObject) -> list[str]:
    used = objects.status(quota).get("used") or {}
    hard = objects.status(quota).get("hard") or objects.spec(quota).get("hard") or {}
    return [name for name, most in sorted(hard.items()) if name in used and parse(used[name]) >= parse(most)]


def quota_faults(quota: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield what of a ResourceQuota is used up."""
    used, spent = objects.status(quota).get("used") or {}, _spent(quota)
    if spent:
        hard = objects.status(quota).get("hard") or objects.spec(quota).get("hard") or {}
        text = ", ".join(f"{name} {used[name]} of {hard[name]}" for name in spent)
        lead = kubectl(objects.namespace(quota), "describe", "resourcequota", objects.name(quota))
        yield Fault(f"used up, so that new objects are refused: {text}", lead)
    elif not used and objects.spec(quota).get("hard"):
        yield Fault(
            "nothing has been counted yet: is minik8s-controllers running?", "kubectl -n kube-system get leases"
        )
    _ = around


def budget_faults(budget: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield why a PodDisruptionBudget allows no eviction."""
    status, namespace = objects.status(budget), objects.namespace(budget)
    condition = objects.condition(budget, "DisruptionAllowed") or {}
    if condition.get("reason") == "SyncFailed":
        yield Fault(f"SyncFailed: {condition.get('message', '')}", kubectl(namespace, "describe", resource(budget)))
        return
    labels = selector_text(objects.spec(budget).get("selector"))
    if not status.get("expectedPods"):
        yield Fault(
            f"no pod has the labels {labels or 'that it selects'}", kubectl(namespace, "get", "pods", "--show-labels")
        )
    elif not status.get("disruptionsAllowed"):
        counts = f"healthy pods: {status.get('currentHealthy', 0)}, required: {status.get('desiredHealthy', 0)}"
        troubled = _causes(around.selected(POD, namespace, labels) if labels else [], around)
        for name, cause in troubled[:1]:
            yield Fault(f"it allows no eviction: {counts}; pod {name}: {cause}", why(POD, name, namespace))
        lead = kubectl(namespace, "get", "pods", *(["-l", labels] if labels else []), "-o", "wide")
        yield Fault(f"it allows no eviction: {counts}", lead)


def _causes(pods: list[JsonObject], around: Around) -> list[tuple[str, str]]:
    return [(objects.name(pod), cause) for pod in pods if (cause := pod_cause(pod, around))]


def cron_faults(cron: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield why a CronJob makes no Jobs, or why the last one failed."""
    namespace = objects.namespace(cron)
    if objects.spec(cron).get("suspend"):
        resume = ("patch", resource(cron), "--type=merge", "-p", '{"spec":{"suspend":false}}')
        yield Fault("it is suspended (spec.suspend): no Jobs are made", kubectl(namespace, *resume))
    owned = [
        one for one in around.all(JOB, namespace) if (objects.controller_of(one) or {}).get("uid") == objects.uid(cron)
    ]
    last = sorted(owned, key=lambda one: str(objects.metadata(one).get("creationTimestamp")))[-1:]
    for job in last:
        for fault in workload_faults(job, around):
            yield Fault(f"its last Job {objects.name(job)}: {fault.cause}", fault.next)
    warnings = [event for event in around.events(cron) if event.get("type") == "Warning"][-1:]
    for event in warnings if not last else []:
        text = f"{event.get('reason', '')}: {event.get('message', '')}"
        yield Fault(text, kubectl(namespace, "describe", resource(cron)))
