"""Asks what the job of a Pod is, with what the cluster has now: of one that is created, and of one among many."""

from __future__ import annotations

import logging
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import Minik8sError
from minik8s_modules.virtual.provider import Resources
from minik8s_modules.virtual.providers.slurm.entries import JobRequest, asked
from minik8s_modules.virtual.providers.slurm.settings import Settings

log = logging.getLogger(__name__)


class Asking(NamedTuple):
    """See the top of this file."""

    settings: Settings
    resources: Resources

    def job_of(self, pod: JsonObject) -> tuple[JobRequest | None, str]:
        """Return what the job is, or which ConfigMap or Secret it still lacks. Raises InvalidInput."""
        try:
            said = self.settings
            return asked(pod, said.partition, self.resources, said.image_command, said.fetching), ""
        except LookupError as error:
            return None, str(error.args[0])

    def job_among_many(self, pod: JsonObject) -> tuple[JobRequest | None, str]:
        """Return the same, or why there can be none: what one owner writes must not stop the jobs of all others."""
        try:
            return self.job_of(pod)
        except Exception as error:
            if not isinstance(error, Minik8sError):
                log.exception("slurm: the job of %s cannot be submitted", objects.key(pod))
            return None, str(error)
