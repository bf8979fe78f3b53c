"""Match conditions: CEL expressions that must all be true for a webhook or policy to be asked about a write.

One that is false decides, whatever the others are. One that cannot be evaluated counts as the failurePolicy says.
Source: apiserver ``pkg/admission/plugin/webhook/matchconditions/matcher.go``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.validation.extensions.expressions import condition_program
from minik8s_modules.apiserver.authorization.attributes import Attributes
from minik8s_modules.apiserver.authorization.authorization import Requester
from minik8s_modules.apiserver.authorization.identity import ALL_AUTHENTICATED, User, account_groups, account_name
from minik8s_modules.cel import (
    PER_MATCH_CONDITIONS,
    AuthorizerValue,
    Budget,
    BudgetExhausted,
    CelError,
    CompileError,
    Decision,
    Program,
    Question,
)

_OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"


class Condition(NamedTuple):
    """One condition; ``program`` is None for one that no longer compiles, and ``broken`` says why."""

    name: str
    source: str
    program: Program | None
    broken: str = ""


class Uncertain(Exception):
    """No condition is false, and some cannot be evaluated; the message says why."""


def conditions_of(written: Iterable[JsonObject] | None, *, params: bool = False) -> tuple[Condition, ...]:
    """Return the conditions of a webhook, or (with ``params``) of a policy, compiled."""
    return tuple(_compiled(each["name"], each["expression"].strip(), params=params) for each in written or ())


def _compiled(name: str, source: str, *, params: bool) -> Condition:
    try:
        return Condition(name, source, condition_program(source, params=params))
    except CompileError as error:  # stored before it was checked
        return Condition(name, source, None, f"compilation error: compilation failed: {error}")


def all_true(conditions: Iterable[Condition], variables: Mapping[str, Any]) -> bool:
    """Return whether all conditions are true.

    Raises:
        Uncertain: none is false, and one cannot be evaluated.
    """
    budget, errors = Budget(PER_MATCH_CONDITIONS), []
    for condition in conditions:
        if condition.program is None:
            errors.append(condition.broken)
            continue
        try:
            if condition.program.evaluate(variables, budget) is False:
                return False
        except BudgetExhausted as error:
            raise Uncertain(_OUT_OF_BUDGET) from error
        except CelError as error:
            errors.append(f"expression '{condition.source}' resulted in error: {error}")
    if errors:
        raise Uncertain(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
    return True


class Rights:
    """Answers ``authorizer`` in expressions: what who asks, or a service account, may do."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester

    def authorize(self, question: Question) -> Decision:
        """Return whether it is allowed, and by what."""
        user, resource = self._requester.user, question.resource
        if question.service_account is not None:
            space, name = question.service_account
            user = User(account_name(space, name), (*account_groups(space), ALL_AUTHENTICATED))
        if question.subresource:
            resource = f"{resource}/{question.subresource}"
        asked = Attributes(question.verb, question.group, resource, question.namespace, question.name, question.path)
        why = self._requester.access.why(user, asked)
        return Decision(bool(why), why)


def authorizer_of(requester: Requester, request: JsonObject) -> AuthorizerValue:
    """Return the variable ``authorizer`` for an AdmissionRequest."""
    resource = request["resource"]
    about = Question(
        group=resource["group"],
        resource=resource["resource"],
        subresource=request.get("subResource") or "",
        namespace=request.get("namespace") or "",
        name=request.get("name") or "",
    )
    return AuthorizerValue(Rights(requester), request=about)
