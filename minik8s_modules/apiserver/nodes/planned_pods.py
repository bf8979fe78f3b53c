"""What admission makes of Pods that controllers would create if a plan were applied; nothing is stored.

Reconcilers find out which Pods these are (reconcile/planning/simulated_admission.py). Each form is admitted once, in
the name of the controllers, as if everything planned stood: a Pod of a template is admitted with the namespace, the
ServiceAccount and the LimitRange of the same plan. Accounts that controllers would make for their Pods, as of
Gateways, stand too, where Pods name them and admission lets them in. Quotas are not charged here: they are told, as
planned, and the simulation counts. What a webhook would say is not always known: one with side effects may not be
asked, and one may not answer. Such a Pod is as it were without webhooks and policies, and why is told.
"""

from __future__ import annotations

import copy
import dataclasses
import threading
import time
from collections.abc import Iterable

import orjson

from minik8s_modules.api import objects
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import POD, RESOURCE_QUOTA, SERVICE_ACCOUNT
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.pod_templates import nameless
from minik8s_modules.apiserver.authorization.identity import ALL_AUTHENTICATED, User
from minik8s_modules.apiserver.http import incoming
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.nodes.planned_cache import PlannedCache
from minik8s_modules.apiserver.verbs import writing
from minik8s_modules.apiserver.verbs.collecting_access import CONTROLLERS
from minik8s_modules.apiserver.webhooks.calls import NoDryRunError, UnansweredError
from minik8s_modules.store import readable
from minik8s_modules.store.cached import CachedObject

_WITHIN_S = 10.0
"""For all Pods of a plan: webhooks may take 30 s each, and what is left of a plan's time is for nodes."""
_MOMENT_S = 2.0
_MOST_BYTES = 8 << 20
"""Of admitted Pods: with the objects of the plan, reconcilers take 16 MiB (planserver.py)."""
_TOO_LARGE = "what admission makes of a plan's Pods takes more than {} MiB"
_TOLD = ("labels", "annotations", "finalizers")


class PlannedPods:
    """Admits Pods of one plan, each form once, whichever reconcilers say that they would be made; thread-safe."""

    def __init__(self, backend: Backend, options: Options) -> None:
        # who plans has been asked whether he may; the Pods are not his, and neither are notes and warnings about them
        requester = options.requester
        if requester is not None:
            requester = requester._replace(user=User(CONTROLLERS, (ALL_AUTHENTICATED,)), notes={})
        self._options = options._replace(dry_run=True, requester=requester, warnings=[])
        self._cache = PlannedCache(backend.cache)  # accounts that controllers make are no part of what was asked for
        self._backend = dataclasses.replace(backend, cache=self._cache)
        self._lock = threading.Lock()
        self._known: dict[str, JsonObject] = {}
        self._spaces: set[str] = set()
        self._room = _MOST_BYTES
        self._left_s = _WITHIN_S

    def __call__(self, made: JsonObject, around: Iterable[JsonObject], until_s: float) -> JsonObject:
        """Return ``{"pods": {key: what becomes of that Pod}, "quotas": [those of their namespaces]}`` of all so far.

        What becomes of a Pod is ``{"pod"}`` as admitted or ``{"refused": why}``. ``{"unknown": why}`` may be alone, or
        beside it. ``around`` are ServiceAccounts that controllers would make, ``until_s`` is of ``time.monotonic()``.
        """
        with self._lock:
            begun_s = time.monotonic()
            new = {key: pod for key, pod in made.items() if key not in self._known}
            found = self._in_time(new, _named(new, around), until_s)
            self._known |= {key: self._kept(each) for key, each in found.items()}
            self._left_s -= time.monotonic() - begun_s
            self._spaces |= {objects.namespace(pod) for pod in new.values()}
            known, spaces = dict(self._known), sorted(self._spaces)
        items = (item for space in spaces for item in self._cache.list(RESOURCE_QUOTA.key(space, "")).items)
        return {"pods": known, "quotas": readable.objects_of(RESOURCE_QUOTA, items)}

    def _kept(self, found: JsonObject) -> JsonObject:
        """Return what is told of a Pod, as long as reconcilers take it."""
        self._room -= len(orjson.dumps(found))
        return found if self._room >= 0 else {"unknown": _TOO_LARGE.format(_MOST_BYTES >> 20)}

    def _in_time(self, made: JsonObject, accounts: JsonObject, until_s: float) -> dict[str, JsonObject]:
        """Return what becomes of each Pod; a webhook that is still waited for in the end is told to nobody."""
        found, failures, over = dict[str, JsonObject](), list[BaseException](), threading.Event()

        def admit() -> None:
            try:
                for key, account in accounts.items():
                    self._stand(key, account, self._options, over)
                for key, pod in made.items():
                    if over.is_set():
                        return
                    found[key] = _admitted(self._backend, self._options, pod)
            except BaseException as error:  # noqa: BLE001 - told to the thread that waits
                failures.append(error)

        thread = threading.Thread(target=admit, name="planned-pods", daemon=True)
        thread.start()
        thread.join(max(0.0, min(until_s - time.monotonic(), self._left_s)))
        over.set()
        known = dict(found)
        if failures:
            raise failures[0]
        rest = {key: pod for key, pod in made.items() if key not in known}
        return known | (self._late(rest, accounts) if rest else {})

    def _late(self, made: JsonObject, accounts: JsonObject) -> dict[str, JsonObject]:
        """Return the Pods as they would be without webhooks, as far as that is known in a moment."""
        late, until_s = f"admission of a plan's Pods took longer than {_WITHIN_S:.0f} s", time.monotonic() + _MOMENT_S
        for key, account in accounts.items():
            self._stand(key, account, self._options._replace(reviewed=True))
        found = dict[str, JsonObject]()
        for key, pod in made.items():
            in_time = time.monotonic() < until_s
            found[key] = _unreviewed(self._backend, self._options, pod, late) if in_time else {"unknown": late}
        return found

    def _stand(self, key: str, account: JsonObject, options: Options, over: threading.Event | None = None) -> None:
        """Have an account stand from now on, if admission lets it in and it is not yet ``over``."""
        made = _made(self._backend, options, account) if self._cache.get(key) is None else None
        if made is not None and not (over and over.is_set()):
            self._cache.plan(key, writing.made(key, made.object, max(self._cache.revision, 1)))


def _made(backend: Backend, options: Options, account: JsonObject) -> CachedObject | None:
    """Return an account as it would be stored, None where it would be refused, as its Pods are then for lack of it."""
    for each in (options, options._replace(reviewed=True)):
        try:
            return writing.create(backend, Target(SERVICE_ACCOUNT, objects.namespace(account)), account, each)
        except (NoDryRunError, UnansweredError):
            continue
        except StatusError:
            break
    return None


def _named(made: JsonObject, around: Iterable[JsonObject]) -> dict[str, JsonObject]:
    """Return the accounts that the Pods name, by their keys."""
    named = {(objects.namespace(pod), str(objects.dig(pod, "spec", "serviceAccountName"))) for pod in made.values()}
    wanted = (each for each in around if (objects.namespace(each), objects.name(each)) in named)
    return {SERVICE_ACCOUNT.key(objects.namespace(each), objects.name(each)): each for each in wanted}


def _admitted(backend: Backend, options: Options, pod: JsonObject) -> JsonObject:
    try:
        found = _dry_run(backend, options, pod)
    except (NoDryRunError, UnansweredError) as error:
        return _unreviewed(backend, options, pod, error.message)
    except StatusError as error:
        return {"refused": nameless(error.message, pod)}
    return {"pod": found}


def _unreviewed(backend: Backend, options: Options, pod: JsonObject, why: str) -> JsonObject:
    """Return a Pod as it were if no webhook looked at it; one may make a Pod valid that is refused here."""
    try:
        return {"unknown": why, "pod": _dry_run(backend, options._replace(reviewed=True), pod)}
    except StatusError:
        return {"unknown": why}


def _dry_run(backend: Backend, options: Options, pod: JsonObject) -> JsonObject:
    target = Target(POD, objects.namespace(pod))
    given = copy.deepcopy(pod)  # admission uses up what it is given, and forms may share parts
    obj = incoming.readable(POD, given, options, incoming.dialect_around(backend, target))
    found = writing.admitted(backend, target, obj, options)
    meta = objects.metadata(found)
    return {"metadata": {field: meta[field] for field in _TOLD if field in meta}, "spec": objects.spec(found)}
