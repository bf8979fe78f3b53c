"""``canary``: leads requests over to another version of a Service, step by step, and back when it answers with errors.

    weights of the VirtualService ─▶ pause ─▶ what sidecars have counted for the version's Pods meanwhile ─▶ next step
              ▲                                                        │
              └──────────────── as they were ◀── too many errors ──────┘

Who runs it needs to change VirtualServices and, with --abort-on, to run programs in the Pods with sidecars. Nothing is
kept but the weights: where the command is killed, they stay as they are at that step.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict
from minik8s_modules.api.kinds import SUBSET, VIRTUAL_SERVICE
from minik8s_modules.api.network.subsets import pods_of
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.cli import output
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.mesh.looking import names_by_address
from minik8s_modules.cli.mesh.sidecars import (
    HOSTS,
    Ask,
    Counts,
    Unanswered,
    ask_all,
    asking,
    read_counts,
    with_sidecars,
)
from minik8s_modules.cli.options import Subparsers, add, add_namespace, seconds_of
from minik8s_modules.client.interface import Api
from minik8s_modules.mesh.wording import Address

ALL = 100
LOOK_S = 2.0
MOST = 2**31 - 1
_LIMIT = re.compile(r"error-rate>(\d{1,2}(?:\.\d{1,3})?)%", re.ASCII)
_ENOUGH = 20
"""Requests that say something about a rate; fewer end no step before its time."""


class Steps(NamedTuple):
    """What is asked for: percents in their order, the time of each, and the share of errors that ends it."""

    percents: Sequence[int]
    pause_s: float
    limit: Fraction | None


def declare(commands: Subparsers) -> None:
    """Declare canary."""
    parser = add(
        commands, "canary", canary, "shift requests to another version of a Service, and back on errors",
        usage="canary SERVICE --to SUBSET --weight PERCENT [options]",
        examples="""
        minik8s canary reviews --to v2 --weight 10                        a tenth of the requests goes to v2
        minik8s canary reviews --to v2 --weight 10 --step 30 --pause 1m   10, 40, 70, 100 %, a minute each
        minik8s canary reviews --to v2 --weight 10 --step 30 --pause 1m --abort-on 'error-rate>1%'
        minik8s canary reviews --to v1 --weight 100                       back""",
    )  # fmt: skip
    parser.add_argument("service", metavar="SERVICE")
    parser.add_argument("--to", required=True, metavar="SUBSET", help="the Subset whose Pods get the requests")
    parser.add_argument("--weight", required=True, type=int, metavar="PERCENT", help="of all requests: 0 to 100")
    parser.add_argument(
        "--step", type=int, default=0, metavar="PERCENT", help="then raise it by this much at a time, up to 100"
    )
    parser.add_argument("--pause", default="30s", metavar="TIME", help="how long each step is watched (default: 30s)")
    parser.add_argument("--abort-on", default="", metavar="error-rate>N%", help="share of errors that ends it")
    parser.add_argument("--port", type=int, default=0, metavar="PORT", help="of the Service, where several are split")
    add_namespace(parser)


def canary(client: Api, given: argparse.Namespace) -> int:
    """Do it; return 1 where it was aborted."""
    steps = read_steps(given)
    leading = Leading(client, given.namespace, given.service, given.to, given.port)
    watching = Watching(client, asking(given), given.namespace, leading.pods)
    return follow(leading, watching, steps, SystemClock())


def read_steps(given: argparse.Namespace) -> Steps:
    """Return what the options ask for.

    Raises:
        UsageError: they make no sense; the message says which.
    """
    if not 0 <= given.weight <= ALL or not 0 <= given.step <= ALL:
        raise UsageError("--weight and --step are percents, from 0 to 100")
    pause_s = seconds_of(given.pause)
    if pause_s is None:
        raise UsageError(f"--pause {given.pause}: write a time such as 30s or 2m")
    found = _LIMIT.fullmatch(given.abort_on.replace(" ", ""))
    if given.abort_on and found is None:
        raise UsageError(f"--abort-on {given.abort_on}: write 'error-rate>N%', such as 'error-rate>1%'")
    percents = [*range(given.weight, ALL, given.step), ALL] if given.step else [given.weight]
    return Steps(percents, pause_s, Fraction(found[1]) / ALL if found is not None else None)


def weights_for(subsets: Sequence[JsonObject], to: str, percent: int) -> list[JsonObject]:
    """Return the subsets with weights that give ``to`` so many percent; the others keep their proportions.

    Others that had nothing share the rest alike. Weights are whole numbers, of an int32.
    """
    others = {one["name"]: one["weight"] for one in subsets if one["name"] != to and one.get("weight") is not None}
    whole = sum(others.values())
    shares = {name: Fraction(weight, whole) if whole else Fraction(1, len(others)) for name, weight in others.items()}
    exact = {to: Fraction(percent), **{name: share * (ALL - percent) for name, share in shares.items()}}
    scale = math.lcm(*(share.denominator for share in exact.values()))
    found = {name: int(share * scale) for name, share in exact.items()}
    common = math.gcd(*found.values()) or 1
    found = {name: weight // common for name, weight in found.items()}
    most = max(*found.values(), MOST)
    found = {name: weight * MOST // most for name, weight in found.items()}
    listed = [*subsets, *([] if to in {one["name"] for one in subsets} else [{"name": to}])]
    return [{**one, "weight": found[one["name"]]} if one["name"] in found else dict(one) for one in listed]


class Leading:
    """The VirtualService that is edited."""

    def __init__(self, client: Api, namespace: str, service: str, to: str, port: int) -> None:
        """Find it.

        Raises:
            UsageError: there is none, or it cannot be led over; the message says what to do.
        """
        self._client, self._namespace, self.to = client, namespace, to
        of_service = [each for each in client.list(VIRTUAL_SERVICE, namespace).items
                      if objects.spec(each).get("serviceRef") == service]  # fmt: skip
        found = [each for each in of_service if port in {0, objects.spec(each).get("port")}]
        if len(found) != 1:
            raise UsageError(_which(found, service, port))
        self._virtual = found[0]
        self.before: list[JsonObject] = objects.spec(self._virtual)["subsets"]
        if any(one.get("url") is not None for one in self.before):
            raise UsageError(f"VirtualService {objects.name(self._virtual)} splits by path: a canary needs weights")
        if not {one["name"] for one in self.before if one.get("weight") is not None} - {to}:
            text = f"VirtualService {objects.name(self._virtual)} has no other Subset than {to}"
            raise UsageError(f"{text}: name those of all versions")
        self.pods = frozenset(pods_of(client.get(SUBSET, to, namespace)))
        if not self.pods:
            raise UsageError(f"Subset {to} has no Pods")

    def lead(self, percent: int) -> None:
        """Give the version so many percent; raises as the API does, also where somebody else has changed it."""
        self._write(weights_for(self.before, self.to, percent))

    def give_back(self) -> None:
        """Set the weights of before; raises as the API does."""
        self._write(self.before)

    def _write(self, subsets: Sequence[JsonObject]) -> None:
        while True:
            version = {"resourceVersion": objects.resource_version(self._virtual)}
            body = {"metadata": version, "spec": {"subsets": [*subsets]}}
            try:
                self._virtual = self._client.patch(VIRTUAL_SERVICE, objects.name(self._virtual), self._namespace, body)
            except Conflict:
                self.settle()  # a pilot has written its status; what somebody else has made of the weights stays
            else:
                return

    def settle(self) -> None:
        """Take the newest version of it.

        Raises:
            UsageError: somebody else has changed its weights.
            StatusError: as the API does.
        """
        now = self._client.get(VIRTUAL_SERVICE, objects.name(self._virtual), self._namespace)
        if objects.spec(now) != objects.spec(self._virtual):
            raise UsageError(f"somebody else has changed VirtualService {objects.name(now)}: it stays as it is")
        self._virtual = now

    def refused(self) -> str:
        """Return why a pilot does not accept it, "" if it does or none has looked."""
        condition = objects.condition(self._virtual, "Accepted") or {}
        return f"{condition['reason']}: {condition.get('message')}" if condition.get("status") == "False" else ""


def _which(found: Sequence[JsonObject], service: str, port: int) -> str:
    if found:
        ports = ", ".join(sorted(str(objects.spec(each).get("port")) for each in found))
        return f"several VirtualServices split Service {service}: name one of its ports by --port ({ports})"
    of_port = f" port {port} of" if port else ""
    return (
        f"no VirtualService splits{of_port} Service {service}: make a Subset of each version, and a VirtualService "
        "that gives the one of today all the weight (docs: Split requests in a service mesh)"
    )


class Watching:
    """What sidecars count for the version's Pods."""

    def __init__(self, client: Api, ask: Ask, namespace: str, pods: frozenset[str]) -> None:
        self._client, self._ask, self._namespace, self._pods = client, ask, namespace, pods
        self._base: dict[str, Mapping[Address, Counts]] = {}
        self._last: dict[str, Mapping[Address, Counts]] = {}

    def begin(self) -> None:
        """Count from now on.

        Raises:
            Unanswered: no sidecar can be asked, or there is none.
            StatusError: as the API does.
        """
        self._read()
        self._base = dict(self._last)
        if not self._base:
            raise Unanswered("no sidecar of a Pod in this namespace could be asked: nothing is known of errors")

    def counted(self) -> Counts:
        """Return requests and errors since; raises as the API does. A sidecar that does not answer counts as before."""
        self._read()
        addresses = {ip for ip, name in names_by_address(self._client, self._namespace).items() if name in self._pods}
        found = [since(of.get(at), (self._base.get(uid) or {}).get(at)) for uid, of in self._last.items() for at in of
                 if at.ip in addresses]  # fmt: skip
        errors = sum(each.errors for each in found)
        # a connection that was refused is an error and, for Envoy, no request
        return Counts(max(sum(each.requests for each in found), errors), errors)

    def _read(self) -> None:
        for pod, answer in ask_all(self._ask, with_sidecars(self._client, self._namespace), HOSTS):
            try:
                if isinstance(answer, Unanswered):
                    raise answer
                self._last[objects.uid(pod)] = read_counts(answer)
            except Unanswered as unanswered:
                output.warn(str(unanswered))


def since(now: Counts | None, before: Counts | None) -> Counts:
    """Return what was counted in between; a sidecar that has begun again counts from zero."""
    now, before = now or Counts(0, 0), before or Counts(0, 0)
    if now.requests < before.requests or now.errors < before.errors:
        return now
    return Counts(now.requests - before.requests, now.errors - before.errors)


def exceeds(counts: Counts, limit: Fraction, *, is_last: bool) -> bool:
    """Return whether there are too many errors; of a few requests, nothing is said before the time is over."""
    says_something = counts.requests >= _ENOUGH or (is_last and counts.requests)
    return bool(says_something) and Fraction(counts.errors, counts.requests) > limit


def follow(leading: Leading, watching: Watching, steps: Steps, clock: Clock) -> int:
    """Take the steps; return 1 where errors ended them."""
    if steps.limit is not None:
        watching.begin()
    for percent in steps.percents:
        leading.lead(percent)
        _tell(f"{percent} % of the requests go to {leading.to}")
        if steps.limit is not None:
            watching.begin()
        elif percent == steps.percents[-1]:
            return 0
        for is_last in _looks(steps.pause_s, clock):
            leading.settle()
            why = leading.refused() or _too_many(watching, steps.limit, is_last=is_last)
            if why:
                leading.give_back()
                _tell(f"aborted: {why}; the weights are as before")
                return 1
    return 0


def _looks(pause_s: float, clock: Clock) -> Iterator[bool]:
    """Yield while a step lasts, every two seconds; True for the last time."""
    end, never = clock.monotonic() + pause_s, threading.Event()
    while (left := end - clock.monotonic()) > 0:
        clock.wait(never, min(left, LOOK_S))
        yield clock.monotonic() >= end


def _too_many(watching: Watching, limit: Fraction | None, *, is_last: bool) -> str:
    if limit is None:
        return ""
    counts = watching.counted()
    failed_share = f"{counts.errors} of {counts.requests} requests failed"
    if exceeds(counts, limit, is_last=is_last):
        return failed_share
    if is_last:
        _tell(f"{failed_share}" if counts.requests else "no request came: nothing is known of errors")
    return ""


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
