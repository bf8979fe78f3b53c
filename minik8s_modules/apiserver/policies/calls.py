"""Asking policies about a write. Compiled when a policy or binding has changed, as webhooks are (webhooks/calls.py)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from minik8s_modules.api.errors import Forbidden, StatusError
from minik8s_modules.api.kind import Registry
from minik8s_modules.api.kinds import (
    NAMESPACE,
    VALIDATING_ADMISSION_POLICY,
    VALIDATING_ADMISSION_POLICY_BINDING,
    Kind,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.policies.compiled import Binding, Concerned, Policy, compiled, concerned
from minik8s_modules.apiserver.policies.evaluating import Denial, PolicyVerdict, evaluate
from minik8s_modules.apiserver.policies.params import Misconfigured, params_of
from minik8s_modules.apiserver.webhooks.calls import Looking, namespace_labels
from minik8s_modules.apiserver.webhooks.conditions import authorizer_of
from minik8s_modules.apiserver.webhooks.reviews import ReviewedWrite, request_of
from minik8s_modules.base.metrics import Registry as Metrics
from minik8s_modules.store import readable
from minik8s_modules.store.cache import WatchCache

_KINDS = (VALIDATING_ADMISSION_POLICY, VALIDATING_ADMISSION_POLICY_BINDING)
_CODES = {"Forbidden": 403, "RequestEntityTooLarge": 413}
_INVALID = 422
_LONGEST_ANNOTATION = 10 * 1024


class Denied(NamedTuple):
    """A denial with whose it is; ``binding`` is "" for the policy itself."""

    policy: str
    binding: str
    denial: Denial

    def __str__(self) -> str:
        """Return it as Kubernetes words it."""
        bound = f" with binding '{self.binding}'" if self.binding else ""
        return f"ValidatingAdmissionPolicy '{self.policy}'{bound} denied request: {self.denial.message}"


class Outcome(NamedTuple):
    """What all policies said: what refuses the write, warnings, and annotations for the audit log."""

    denied: list[Denied]
    warnings: list[str]
    annotations: dict[str, str]

    def refusal(self, kind: Kind, name: str) -> StatusError | None:
        """Return the failure the client is told, None where nothing refuses the write."""
        if not self.denied:
            return None
        first = self.denied[0]
        error = Forbidden(kind, name, str(first))
        error.reason = first.denial.reason or "Invalid"
        error.code = _CODES.get(error.reason, _INVALID)
        error.details["causes"] = [{"message": str(first)}]
        return error


class Policies:
    """The policies as the cache has them."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        labels = ("policy", "policy_binding", "error_type", "enforcement_action")
        families = metrics or Metrics()
        prefix = "apiserver_validating_admission_policy_check"
        self._checks = families.counter(f"{prefix}_total", "Writes that a policy denied, warned of or noted.", labels)
        self._seconds = families.histogram(f"{prefix}_duration_seconds", "Time that a policy took.", labels)
        self._made: tuple[WatchCache | None, tuple[int, ...], tuple[Policy, ...]] = (None, (), ())

    def concerned(self, cache: WatchCache, asked: ReviewedWrite, kinds: Registry) -> list[Concerned]:
        """Return the policies whose rules speak of a request."""
        found = self._compiled(cache)
        return list(concerned(found, asked, kinds)) if found else []

    def some(self, cache: WatchCache) -> bool:
        """Return whether there is any policy with a binding."""
        return bool(self._compiled(cache))

    def _compiled(self, cache: WatchCache) -> tuple[Policy, ...]:
        stamp = tuple([cache.changes(kind.prefix) for kind in _KINDS])
        made = self._made
        if made[0] is cache and made[1] == stamp:
            return made[2]
        policies, bindings = (readable.objects_of(kind, cache.list(kind.prefix).items) for kind in _KINDS)
        found = compiled(policies, bindings)
        self._made = (cache, stamp, found)
        return found

    def ask(self, found: list[Concerned], looking: Looking, obj: JsonObject | None, old: JsonObject | None) -> Outcome:
        """Return what the policies say of a write; ``obj`` and ``old`` are for their selectors."""
        outcome = Outcome([], [], {})
        space = namespace_labels(looking.cache, looking.asked, obj)
        chooses: Callable[..., bool] = lambda limits: limits.choose(looking.asked.kind, space, obj, old)  # noqa: E731
        for one in found:
            if chooses(one.policy.constraints):
                notes: dict[str, list[str]] = {}
                for binding in one.policy.bindings:
                    limits = binding.constraints
                    if limits is None or (
                        limits.kind_meant(looking.asked, looking.kinds) is not None and chooses(limits)
                    ):
                        self._bound(one, binding, looking, outcome, notes)
                for key, values in notes.items():
                    outcome.annotations[f"{one.policy.name}/{key}"] = ", ".join(values)
        return outcome

    def _bound(
        self, one: Concerned, binding: Binding, looking: Looking, outcome: Outcome, notes: dict[str, list[str]]
    ) -> None:
        policy, began = one.policy, time.monotonic()
        try:
            params = params_of(looking.cache, looking.kinds, policy.param_kind, binding.ref, looking.asked.namespace)
        except Misconfigured as error:
            if policy.fail:
                denial = Denial(f"failed to configure binding: {error}")
                outcome.denied.append(Denied(policy.name, binding.name, denial))
            return
        for each in params:
            said = evaluate(policy, {**_variables(one, looking), "params": each})
            for action, denial in _actions(binding, said):
                _act(policy.name, binding, action, denial, outcome)
                self._count(policy.name, binding.name, action, denial, time.monotonic() - began)
            for key, value in said.annotations:
                known = notes.setdefault(key, [])
                known += [value[:_LONGEST_ANNOTATION]] if value[:_LONGEST_ANNOTATION] not in known else []

    def _count(self, policy: str, binding: str, action: str, denial: Denial, took_s: float) -> None:
        values = (policy, binding, "no_error" if denial.reason else "invalid_error", action.lower())
        self._checks.labels(*values).inc()
        self._seconds.labels(*values).observe(took_s)


def _actions(binding: Binding, said: PolicyVerdict) -> Iterator[tuple[str, Denial]]:
    yield from ((action, denial) for denial in said.denials for action in binding.actions)
    yield from (("Deny", denial) for denial in said.broken)  # an annotation that cannot be made denies


def _act(policy: str, binding: Binding, action: str, denial: Denial, outcome: Outcome) -> None:
    if action == "Deny":
        outcome.denied.append(Denied(policy, binding.name, denial))
    elif action == "Warn":
        denied = f"Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding.name}'"
        outcome.warnings.append(f"{denied}: {denial.message}")
    else:
        failure = {
            "message": denial.message,
            "policy": policy,
            "binding": binding.name,
            "expressionIndex": denial.place,
            "validationActions": list(binding.actions),
        }
        failures = orjson.dumps([failure]).decode()
        outcome.annotations.setdefault("validation.policy.admission.k8s.io/validation_failure", failures)


def _variables(one: Concerned, looking: Looking) -> Mapping[str, Any]:
    asked = looking.asked
    request = request_of(asked, one.kind)
    obj, old = looking.form(one.kind)
    space = None
    if asked.namespace and asked.kind is not NAMESPACE:
        found = looking.cache.get(NAMESPACE.key("", asked.namespace))
        space = found.object if found is not None else None
    authorizer = authorizer_of(looking.requester, request)
    return {"object": obj, "oldObject": old, "request": request, "namespaceObject": space, "authorizer": authorizer}
