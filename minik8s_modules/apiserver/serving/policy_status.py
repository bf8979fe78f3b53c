"""The status of ValidatingAdmissionPolicies: which generation was looked at, and what of it does not fit its kinds.

Every server does it, once for each generation of a policy's spec; compare-and-swap lets one of them write. Kubernetes
has a controller for it (``pkg/controller/validatingadmissionpolicystatus``); here the schemas are in the API server.
"""

from __future__ import annotations

import logging

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound, StatusError
from minik8s_modules.api.kinds import VALIDATING_ADMISSION_POLICY
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.rounds import Rounds
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.policies.typechecking import warnings_of
from minik8s_modules.apiserver.verbs import writing
from minik8s_modules.base.backoff import Backoff
from minik8s_modules.base.errors import TemporaryError

log = logging.getLogger(__name__)

LOOK_S = 5.0
_RETRY = Backoff(initial_s=0.1, maximum_s=LOOK_S)
_PREFIX = VALIDATING_ADMISSION_POLICY.prefix


class PolicyStatus(Rounds):
    """Keeps the status of policies up to date, until ``stop``."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend, "policy-status", "the status of policies", (_PREFIX,), _RETRY)
        self._seen = -1

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
            if objects.dig(item.object, "status", "observedGeneration") != objects.generation(item.object):
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
            type_checking = {"expressionWarnings": found} if found else {}
            seen = {"observedGeneration": objects.generation(policy), "typeChecking": type_checking}
            return {**policy, "status": {**objects.status(policy), **seen}}

        options = Options(dry_run=False, validation="Ignore", warnings=[])
        try:
            writing.change(self._backend, Target(VALIDATING_ADMISSION_POLICY, "", name, "status"), checked, options)
        except NotFound:
            log.debug("the policy %s is gone", name)

    def _round(self) -> float:
        self.look()
        return LOOK_S
