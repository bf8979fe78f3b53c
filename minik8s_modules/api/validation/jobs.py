"""Validation of Jobs and CronJobs. Source: kubernetes ``pkg/apis/batch/validation/validation.go``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from minik8s_modules.api import cron, field_errors
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, name, spec
from minik8s_modules.api.validation import shared
from minik8s_modules.api.validation.workloads import MOST_COPIES, immutable

_LONGEST_CRON_JOB = 52  # eleven characters of 63 are for the jobs' own endings
_LONGEST_HOSTNAME = 63  # of a DNS label; pods of an Indexed job are named <job>-<index>
# as many completions as can be kept as text in a status, and be gone through at each change
_MOST_INDEXES = 100_000
_INDEXES = re.compile(r"[0-9]{1,9}(-[0-9]{1,9})?(,[0-9]{1,9}(-[0-9]{1,9})?)*", re.ASCII)
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_MOST_RULES, _MOST_CODES = 20, 255

_JOB_COUNTS = (
    "parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished",
    "backoffLimitPerIndex", "maxFailedIndexes",
)  # fmt: skip


def validate_job(job: JsonObject) -> list[Cause]:
    """Return why the job may not be kept."""
    declared = spec(job)
    causes = _job_spec("spec", declared)
    last = f"{name(job)}-{(declared.get('completions') or 1) - 1}"
    if declared.get("completionMode") == "Indexed" and len(last) > _LONGEST_HOSTNAME:
        told = f"will not able to create pod with invalid DNS label: {last}"
        causes.append(field_errors.invalid("metadata.name", name(job), told))
    if declared.get("selector") is None:
        causes.append(field_errors.required("spec.selector"))
    else:
        causes += shared.label_selector("spec.selector", declared["selector"])
    return causes


def _job_spec(at: str, declared: JsonObject) -> list[Cause]:
    causes = shared.not_negative(at, declared, *_JOB_COUNTS)
    mode = declared.get("completionMode")
    if mode not in {None, "NonIndexed", "Indexed"}:
        causes.append(field_errors.not_supported(f"{at}.completionMode", mode, ["NonIndexed", "Indexed"]))
    if mode == "Indexed" and declared.get("completions") is None:
        causes.append(field_errors.required(f"{at}.completions", "when completion mode is Indexed"))
    causes += _of_indexes(at, declared)
    causes += shared.at_most(f"{at}.parallelism", declared.get("parallelism"), MOST_COPIES)
    causes += _failure_policy(at, declared) + _success_policy(at, declared) + _replacement(at, declared)
    template = declared.get("template") or {}
    causes += shared.pod_template(f"{at}.template", template)
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy not in {"OnFailure", "Never"}:
        causes.append(field_errors.not_supported(f"{at}.template.spec.restartPolicy", policy, ["OnFailure", "Never"]))
    return causes


def _of_indexes(at: str, declared: JsonObject) -> list[Cause]:
    """Return what is wrong with fields that only an Indexed job may have."""
    per_index, most_failed = declared.get("backoffLimitPerIndex"), declared.get("maxFailedIndexes")
    causes: list[Cause] = []
    if declared.get("completionMode") == "Indexed":
        for field in ("completions", "maxFailedIndexes"):
            causes += shared.at_most(f"{at}.{field}", declared.get(field), _MOST_INDEXES)
    elif per_index is not None:
        causes.append(field_errors.invalid(f"{at}.backoffLimitPerIndex", per_index, "requires indexed completion mode"))
    if most_failed is not None and per_index is None:
        told = "when maxFailedIndexes is specified"
        causes.append(field_errors.required(f"{at}.backoffLimitPerIndex", told))
    return causes


def _replacement(at: str, declared: JsonObject) -> list[Cause]:
    policy, at = declared.get("podReplacementPolicy"), f"{at}.podReplacementPolicy"
    allowed = ("Failed",) if declared.get("podFailurePolicy") else ("Failed", "TerminatingOrFailed")
    return [] if policy is None or policy in allowed else [field_errors.not_supported(at, policy, [*allowed])]


def _failure_policy(at: str, declared: JsonObject) -> list[Cause]:
    policy = declared.get("podFailurePolicy")
    if policy is None:
        return []
    rules, at_rules = policy.get("rules") or [], f"{at}.podFailurePolicy.rules"
    causes: list[Cause] = []
    restart = ((declared.get("template") or {}).get("spec") or {}).get("restartPolicy")
    if restart != "Never":
        told = 'only "Never" is supported when podFailurePolicy is specified'
        causes.append(field_errors.invalid(f"{at}.template.spec.restartPolicy", restart, told))
    if len(rules) > _MOST_RULES:
        causes.append(field_errors.invalid(at_rules, len(rules), f"must have at most {_MOST_RULES} items"))
    for index, rule in enumerate(rules):
        causes += _failure_rule(f"{at_rules}[{index}]", rule, declared)
    return causes


def _failure_rule(at: str, rule: JsonObject, declared: JsonObject) -> Iterator[Cause]:
    action, codes, conditions = rule.get("action"), rule.get("onExitCodes"), rule.get("onPodConditions") or []
    if action not in _ACTIONS:
        yield field_errors.not_supported(f"{at}.action", action, [*_ACTIONS])
    if action == "FailIndex" and declared.get("backoffLimitPerIndex") is None:
        yield field_errors.invalid(f"{at}.action", action, "requires the backoffLimitPerIndex to be set")
    if (codes is None) == (not conditions):
        yield field_errors.invalid(
            at, action, "specifying one of OnExitCodes and OnPodConditions is required, and not both"
        )
    if codes is not None:
        yield from _exit_codes(f"{at}.onExitCodes", codes, declared)
    for index, condition in enumerate(conditions):
        if condition.get("status") not in {None, "True", "False", "Unknown"}:
            allowed = ["False", "True", "Unknown"]
            yield field_errors.not_supported(f"{at}.onPodConditions[{index}].status", condition.get("status"), allowed)


def _exit_codes(at: str, codes: JsonObject, declared: JsonObject) -> Iterator[Cause]:
    operator, values, container = codes.get("operator"), codes.get("values") or [], codes.get("containerName")
    if operator not in {"In", "NotIn"}:
        yield field_errors.not_supported(f"{at}.operator", operator, ["In", "NotIn"])
    if not values or len(values) > _MOST_CODES:
        yield field_errors.invalid(f"{at}.values", len(values), f"must have between 1 and {_MOST_CODES} items")
    if values != sorted(set(values)):
        yield field_errors.invalid(f"{at}.values", values, "must be ordered and without duplicates")
    if operator == "In" and 0 in values:
        yield field_errors.invalid(f"{at}.values", 0, "must not be 0 for the In operator")
    if container is not None and container not in _container_names(declared):
        told = "must be one of the container or initContainer names in the pod template"
        yield field_errors.invalid(f"{at}.containerName", container, told)


def _container_names(declared: JsonObject) -> Iterable[str]:
    pod = (declared.get("template") or {}).get("spec") or {}
    return [str(each.get("name")) for field in ("containers", "initContainers") for each in pod.get(field) or []]


def _success_policy(at: str, declared: JsonObject) -> list[Cause]:
    policy, at = declared.get("successPolicy"), f"{at}.successPolicy"
    if policy is None:
        return []
    if declared.get("completionMode") != "Indexed":
        return [field_errors.invalid(at, policy, "requires indexed completion mode")]
    rules = policy.get("rules") or []
    if not rules:
        told = "at least one rules must be specified when the successPolicy is specified"
        return [field_errors.required(f"{at}.rules", told)]
    most = int(declared.get("completions") or 0)
    return [cause for index, rule in enumerate(rules) for cause in _success_rule(f"{at}.rules[{index}]", rule, most)]


def _success_rule(at: str, rule: JsonObject, completions: int) -> Iterator[Cause]:
    named, least = rule.get("succeededIndexes"), rule.get("succeededCount")
    if named is None and least is None:
        yield field_errors.required(at, "at least one of succeededCount or succeededIndexes must be specified")
    if named is not None and not _are_indexes(named, completions):
        told = f"must be indexes less than {completions}, in order, such as 0,2-4"
        yield field_errors.invalid(f"{at}.succeededIndexes", named, told)
    if least is not None and not 1 <= least <= completions:
        yield field_errors.invalid(f"{at}.succeededCount", least, f"must be between 1 and {completions}")


def _are_indexes(text: str, completions: int) -> bool:
    if _INDEXES.fullmatch(text) is None:
        return False
    runs = [[int(number) for number in part.split("-")] for part in text.split(",")]
    ordered = all(one[-1] < other[0] for one, other in pairwise(runs))
    return ordered and all(run[0] <= run[-1] < completions for run in runs)


def validate_job_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old job may not become the new one: whose pods it counts, and which, stays."""
    fixed = ("selector", "template", "completionMode", "podFailurePolicy", "successPolicy", "backoffLimitPerIndex")
    causes = immutable(*fixed)(new, old)
    after, before = spec(new), spec(old)
    elastic = after.get("completionMode") == "Indexed" and after.get("completions") == after.get("parallelism")
    if after.get("completions") != before.get("completions") and not elastic:
        causes.append(field_errors.immutable("spec.completions", after.get("completions")))
    return causes


def validate_cron_job(cron_job: JsonObject) -> list[Cause]:
    """Return why the cron job may not be kept."""
    declared = spec(cron_job)
    causes = schedule("spec.schedule", declared.get("schedule") or "")
    causes += _time_zone(declared.get("timeZone"))
    policies = ("Allow", "Forbid", "Replace")
    causes += shared.one_of("spec.concurrencyPolicy", declared.get("concurrencyPolicy"), policies)
    causes += shared.not_negative(
        "spec", declared, "startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"
    )
    causes += _job_spec("spec.jobTemplate.spec", (declared.get("jobTemplate") or {}).get("spec") or {})
    if len(name(cron_job)) > _LONGEST_CRON_JOB:
        told = f"must be no more than {_LONGEST_CRON_JOB} characters"
        causes.append(field_errors.invalid("metadata.name", name(cron_job), told))
    return causes


def schedule(field: str, text: str) -> list[Cause]:
    """Return what is wrong with a cron schedule: five fields, or ``@hourly`` and the like, or ``@every 5m``."""
    if not text:
        return [field_errors.required(field)]
    if "TZ" in text:
        return [field_errors.invalid(field, text, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")]
    try:
        cron.parse(text)
    except cron.BadSchedule as error:
        return [field_errors.invalid(field, text, str(error))]
    return []


def _time_zone(zone: str | None) -> list[Cause]:
    try:
        cron.zone_of(zone)
    except cron.BadSchedule as error:
        return [field_errors.invalid("spec.timeZone", zone, str(error))]
    return []
