"""The status of ValidatingAdmissionPolicies: which generation was looked at, and what of it does not fit its kinds.

Every server does it, once for each generation of a policy's spec; compare-and-swap lets one of them write. Kubernetes
has a controller for it (``pkg/controller/validatingadmissionpolicystatus``); here the schemas are in the API server.
"""

from __future__ import annotations

import logging
import threading

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound, StatusError
from minik8s_modules.api.kinds import VALIDATING_ADMISSION_POLICY
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.policies.typechecking import warnings_of
from minik8s_modules.apiserver.verbs import writing
from minik8s_modules.base.backoff import Backoff
from minik8s_modules.base.errors import TemporaryError

log = logging.getLogger(__name__)

LOOK_S = 5.0
_RETRY = Backoff(initial_s=0.1, maximum_s=LOOK_S)
_PREFIX = VALIDATING_ADMISSION_POLICY.prefix


class PolicyStatus:
    """Keeps the status of policies up to date, until ``stop``."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._seen = -1
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="policy-status", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout=LOOK_S)

    def look(self) -> None:
        """Write the status of all policies whose spec was not looked at yet.

        A policy that cannot be checked keeps no other from it: a defect is logged, and looked at again once a policy
        changes; what refused a write is raised at the end.
        """
        refused: StatusError | None = None
        changes = self._backend.cache.changes(_PREFIX)
        if changes == self._seen or not self._backend.kinds.complete:
            return
        for item in self._backend.cache.list(_PREFIX).items:
            if objects.status(item.object).get("observedGeneration") != objects.generation(item.object):
                try:
                    self._write(objects.name(item.object))
                except TemporaryError:
                    raise
                except StatusError as error:
                    refused = error
                except Exception:  # one policy's defect is that policy's
                    log.exception("the policy %s could not be checked", objects.name(item.object))
        if refused is not None:
            raise refused
        self._seen = changes

    def _write(self, name: str) -> None:
        def checked(policy: JsonObject) -> JsonObject:
            found = warnings_of(policy, self._backend.kinds.registry)
            told = {"expressionWarnings": found} if found else {}
            seen = {"observedGeneration": objects.generation(policy), "typeChecking": told}
            return {**policy, "status": {**objects.status(policy), **seen}}

        options = Options(dry_run=False, validation="Ignore", warnings=[])
        try:
            writing.change(self._backend, Target(VALIDATING_ADMISSION_POLICY, "", name, "status"), checked, options)
        except NotFound:
            log.debug("the policy %s is gone", name)

    def _run(self) -> None:
        failures, subscribed = 0, False
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                if self._backend.cache.wait_ready(LOOK_S):
                    subscribed = subscribed or self._subscribe()
                    self.look()
                    failures = 0
            except (TemporaryError, StatusError) as error:
                failures += 1
                log.warning("policies cannot be checked yet: %s", error)
            except Exception:  # a loop's edge: the next round tries again
                failures += 1
                log.exception("policies could not be checked")
            self._wake.wait(_RETRY.delay_s(failures) or LOOK_S)

    def _subscribe(self) -> bool:
        cache = self._backend.cache
        cache.subscribe(_PREFIX, cache.revision, lambda _: self._wake.set(), on_end=self._wake.set)
        return True
