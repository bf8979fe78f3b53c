"""Validation of Jobs and CronJobs. Source: kubernetes ``pkg/apis/batch/validation/validation.go``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from minik8s_modules.api import cause, cron
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, name, spec
from minik8s_modules.api.validation import check, shared
from minik8s_modules.api.validation.meta import label_selector
from minik8s_modules.api.validation.workloads import MOST_COPIES, spec_immutable

_LONGEST_CRON_JOB = 52  # eleven characters of 63 are for the jobs' own endings
_LONGEST_HOSTNAME = 63  # of a DNS label; pods of an Indexed job are named <job>-<index>
# as many completions as can be kept as text in a status, and be gone through at each change
_MOST_INDEXES = 100_000
_INDEXES = re.compile(r"[0-9]{1,9}(-[0-9]{1,9})?(,[0-9]{1,9}(-[0-9]{1,9})?)*", re.ASCII)
_MOST_RULES, _MOST_CODES = 20, 255


def validate_job(job: JsonObject) -> list[Cause]:
    """Return why the job may not be kept."""
    declared = spec(job)
    causes = _JOB_SPEC("spec", declared)
    last = f"{name(job)}-{(declared.get('completions') or 1) - 1}"
    if declared.get("completionMode") == "Indexed" and len(last) > _LONGEST_HOSTNAME:
        detail = f"will not able to create pod with invalid DNS label: {last}"
        causes.append(cause.invalid("metadata.name", name(job), detail))
    if declared.get("selector") is None:
        return [*causes, cause.required("spec.selector")]
    return causes + label_selector("spec.selector", declared["selector"])


_MOST = check.fields((("completions", "maxFailedIndexes"), check.at_most(_MOST_INDEXES)))


def _of_indexes(at: str, declared: JsonObject) -> list[Cause]:
    """Return what is wrong with fields that only an Indexed job may have."""
    per_index, most_failed = declared.get("backoffLimitPerIndex"), declared.get("maxFailedIndexes")
    causes: list[Cause] = []
    if declared.get("completionMode") == "Indexed":
        if declared.get("completions") is None:
            causes.append(cause.required(f"{at}.completions", "when completion mode is Indexed"))
        causes += _MOST(at, declared)
    elif per_index is not None:
        causes.append(cause.invalid(f"{at}.backoffLimitPerIndex", per_index, "requires indexed completion mode"))
    if most_failed is not None and per_index is None:
        detail = "when maxFailedIndexes is specified"
        causes.append(cause.required(f"{at}.backoffLimitPerIndex", detail))
    return causes


def _replacement(at: str, declared: JsonObject) -> list[Cause]:
    policy, at = declared.get("podReplacementPolicy"), f"{at}.podReplacementPolicy"
    allowed = ("Failed",) if declared.get("podFailurePolicy") else ("Failed", "TerminatingOrFailed")
    return [] if policy is None or policy in allowed else [cause.not_supported(at, policy, [*allowed])]


def _failure_policy(at: str, declared: JsonObject) -> list[Cause]:
    policy = declared.get("podFailurePolicy")
    if policy is None:
        return []
    rules, at_rules = policy.get("rules") or [], f"{at}.podFailurePolicy.rules"
    causes: list[Cause] = []
    restart = ((declared.get("template") or {}).get("spec") or {}).get("restartPolicy")
    if restart != "Never":
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        causes.append(cause.invalid(f"{at}.template.spec.restartPolicy", restart, detail))
    if len(rules) > _MOST_RULES:
        causes.append(cause.invalid(at_rules, len(rules), f"must have at most {_MOST_RULES} items"))
    for index, rule in enumerate(rules):
        causes += _failure_rule(f"{at_rules}[{index}]", rule, declared)
    return causes


def _failure_rule(at: str, rule: JsonObject, declared: JsonObject) -> Iterator[Cause]:
    action, codes, conditions = rule.get("action"), rule.get("onExitCodes"), rule.get("onPodConditions") or []
    yield from check.one_of("Count", "FailIndex", "FailJob", "Ignore")(f"{at}.action", action)
    if action == "FailIndex" and declared.get("backoffLimitPerIndex") is None:
        yield cause.invalid(f"{at}.action", action, "requires the backoffLimitPerIndex to be set")
    if (codes is None) == (not conditions):
        yield cause.invalid(at, action, "specifying one of OnExitCodes and OnPodConditions is required, and not both")
    if codes is not None:
        yield from _exit_codes(f"{at}.onExitCodes", codes, declared)
    yield from _CONDITIONS(f"{at}.onPodConditions", conditions)


_CONDITIONS = check.each(check.fields(("status", check.if_given(check.one_of("False", "True", "Unknown")))))


def _exit_codes(at: str, codes: JsonObject, declared: JsonObject) -> Iterator[Cause]:
    operator, values, container = codes.get("operator"), codes.get("values") or [], codes.get("containerName")
    yield from check.one_of("In", "NotIn")(f"{at}.operator", operator)
    if not values or len(values) > _MOST_CODES:
        yield cause.invalid(f"{at}.values", len(values), f"must have between 1 and {_MOST_CODES} items")
    if values != sorted(set(values)):
        yield cause.invalid(f"{at}.values", values, "must be ordered and without duplicates")
    if operator == "In" and 0 in values:
        yield cause.invalid(f"{at}.values", 0, "must not be 0 for the In operator")
    if container is not None and container not in _container_names(declared):
        detail = "must be one of the container or initContainer names in the pod template"
        yield cause.invalid(f"{at}.containerName", container, detail)


def _container_names(declared: JsonObject) -> Iterable[str]:
    pod = (declared.get("template") or {}).get("spec") or {}
    return [str(each.get("name")) for field in ("containers", "initContainers") for each in pod.get(field) or []]


def _success_policy(at: str, declared: JsonObject) -> list[Cause]:
    policy, at = declared.get("successPolicy"), f"{at}.successPolicy"
    if policy is None:
        return []
    if declared.get("completionMode") != "Indexed":
        return [cause.invalid(at, policy, "requires indexed completion mode")]
    rules = policy.get("rules") or []
    if not rules:
        detail = "at least one rules must be specified when the successPolicy is specified"
        return [cause.required(f"{at}.rules", detail)]
    most = int(declared.get("completions") or 0)
    return [one for index, rule in enumerate(rules) for one in _success_rule(f"{at}.rules[{index}]", rule, most)]


def _success_rule(at: str, rule: JsonObject, completions: int) -> Iterator[Cause]:
    named, least = rule.get("succeededIndexes"), rule.get("succeededCount")
    if named is None and least is None:
        yield cause.required(at, "at least one of succeededCount or succeededIndexes must be specified")
    if named is not None and not _are_indexes(named, completions):
        detail = f"must be indexes less than {completions}, in order, such as 0,2-4"
        yield cause.invalid(f"{at}.succeededIndexes", named, detail)
    if least is not None and not 1 <= least <= completions:
        yield cause.invalid(f"{at}.succeededCount", least, f"must be between 1 and {completions}")


def _are_indexes(text: str, completions: int) -> bool:
    if _INDEXES.fullmatch(text) is None:
        return False
    runs = [[int(number) for number in part.split("-")] for part in text.split(",")]
    ordered = all(one[-1] < other[0] for one, other in pairwise(runs))
    return ordered and all(run[0] <= run[-1] < completions for run in runs)


_JOB_SPEC = check.fields(
    (("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit"), check.not_negative),
    (("ttlSecondsAfterFinished", "backoffLimitPerIndex", "maxFailedIndexes"), check.not_negative),
    ("completionMode", check.if_given(check.one_of("NonIndexed", "Indexed"))),
    ("", _of_indexes),
    ("parallelism", check.at_most(MOST_COPIES)),
    ("", _failure_policy),
    ("", _success_policy),
    ("", _replacement),
    ("template", shared.pod_template),
    ("template.spec.restartPolicy", check.one_of("OnFailure", "Never")),
)


def validate_job_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old job may not become the new one: whose pods it counts, and which, stays."""
    fixed = ("selector", "template", "completionMode", "podFailurePolicy", "successPolicy", "backoffLimitPerIndex")
    causes = spec_immutable(*fixed)(new, old)
    after, before = spec(new), spec(old)
    elastic = after.get("completionMode") == "Indexed" and after.get("completions") == after.get("parallelism")
    if after.get("completions") != before.get("completions") and not elastic:
        causes.append(cause.immutable("spec.completions", after.get("completions")))
    return causes


# --- CronJob --------------------------------------------------------------------------------------


def _schedule(field: str, text: str | None) -> list[Cause]:
    """Return what is wrong with a cron schedule: five fields, or ``@hourly`` and the like, or ``@every 5m``."""
    if not text:
        return [cause.required(field)]
    if "TZ" in text:
        return [cause.invalid(field, text, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")]
    try:
        cron.parse(text)
    except cron.BadSchedule as error:
        return [cause.invalid(field, text, str(error))]
    return []


def _time_zone(field: str, zone: str | None) -> list[Cause]:
    try:
        cron.zone_of(zone)
    except cron.BadSchedule as error:
        return [cause.invalid(field, zone, str(error))]
    return []


_CRON_JOB = check.of_spec(
    ("schedule", _schedule),
    ("timeZone", _time_zone),
    ("concurrencyPolicy", check.mandatory(check.one_of("Allow", "Forbid", "Replace"))),
    (("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"), check.not_negative),
    ("jobTemplate.spec", _JOB_SPEC),
)


def validate_cron_job(cron_job: JsonObject) -> list[Cause]:
    """Return why the cron job may not be kept."""
    causes = _CRON_JOB(cron_job)
    if len(name(cron_job)) > _LONGEST_CRON_JOB:
        detail = f"must be no more than {_LONGEST_CRON_JOB} characters"
        causes.append(cause.invalid("metadata.name", name(cron_job), detail))
    return causes
