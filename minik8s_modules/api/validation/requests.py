"""What a VirtualService does with requests besides splitting them: headers, times, tries, faults, copies."""

from __future__ import annotations

import re

from minik8s_modules.api import cause
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.network.durations import milliseconds, time_fault
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.validation import check

MOST_HEADERS, LONGEST_VALUE, MOST_ATTEMPTS = 10, 1024, 10
RETRIED = ("5xx", "gateway-error", "reset", "retriable-4xx")
_TOKEN = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,256}", re.ASCII)
_LOWEST_ERROR, _HIGHEST_ERROR = 400, 599


def headers(at: str, declared: JsonObject | None) -> list[Cause]:
    """Return what is wrong with the headers that lead requests to a subset."""
    if declared is None:
        return []
    if not declared:
        return [cause.required(at, "at least one header")]
    if len(declared) > MOST_HEADERS:
        return [cause.too_many(at, len(declared), MOST_HEADERS)]
    return [one for name, value in declared.items() for one in _header(at, name, value)]


def _header(at: str, name: str, value: str) -> list[Cause]:
    if not _TOKEN.fullmatch(name) or name == "host":
        return [cause.invalid(at, name, "must be a header's name in small letters, and not host")]
    if len(value) > LONGEST_VALUE or not value.isprintable():
        return [cause.invalid(f"{at}[{name}]", value[:LONGEST_VALUE], "must be printable, and at most 1024 characters")]
    return []


def _time(at: str, text: str) -> list[Cause]:
    fault = time_fault(text)
    return [cause.invalid(at, text, fault)] if fault else []


TIME = check.if_given(_time)
_PERCENT = check.between(1, 100)


def _tries_fit(at: str, declared: JsonObject) -> list[Cause]:
    whole, each = declared.get("timeout"), (declared.get("retries") or {}).get("perTryTimeout")
    if not whole or not each or time_fault(whole) or time_fault(each) or milliseconds(each) <= milliseconds(whole):
        return []
    return [cause.invalid(f"{at}.retries.perTryTimeout", each, "must not be above timeout, which is for all tries")]


def _not_both_empty(at: str, fault: JsonObject) -> list[Cause]:
    return [] if fault.get("delay") or fault.get("abort") else [cause.required(at, "delay or abort")]


RETRIES = check.if_given(
    check.fields(
        ("attempts", check.held(lambda number: number is not None, "must be given")),
        ("attempts", check.between(0, MOST_ATTEMPTS)),
        ("perTryTimeout", TIME),
        ("retryOn", check.each(check.one_of(*RETRIED))),
    )
)
FAULT = check.if_given(
    check.fields(
        ("", _not_both_empty),
        ("delay", check.if_given(check.fields(("fixed", check.mandatory(_time)), ("percent", _PERCENT)))),
        (
            "abort",
            check.if_given(
                check.fields(
                    ("httpStatus", check.mandatory(check.between(_LOWEST_ERROR, _HIGHEST_ERROR))),
                    ("percent", _PERCENT),
                )
            ),
        ),
    )
)
MIRROR = check.if_given(check.fields(("subset", check.mandatory(check.subdomain)), ("percent", _PERCENT)))
ROWS: tuple[check.Row, ...] = (
    ("timeout", TIME),
    ("retries", RETRIES),
    ("fault", FAULT),
    ("mirror", MIRROR),
    ("", _tries_fit),
)
