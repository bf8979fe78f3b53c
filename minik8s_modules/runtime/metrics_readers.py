"""Who may read a daemon's metrics: the API server is asked whose a token is, and whether he may get ``/metrics``.

This is what Kubernetes' components do (delegated authentication and authorization), and what the role system:monitoring
is for. Both answers are asked for at each scrape: there are few of them, and a right that was taken away ends at once.
"""

from __future__ import annotations

import logging
from http import HTTPStatus

from minik8s_modules.api import objects
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import SUBJECT_ACCESS_REVIEW, TOKEN_REVIEW
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.interface import Api

log = logging.getLogger(__name__)


class MetricsReaders:
    """Says of a bearer token whether it opens ``/metrics``."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def __call__(self, token: str) -> HTTPStatus:
        """Return OK, UNAUTHORIZED, FORBIDDEN, or SERVICE_UNAVAILABLE where the API server does not tell."""
        if not token:
            return HTTPStatus.UNAUTHORIZED
        try:
            return self._reviewed(token)
        except (StatusError, TemporaryError) as error:
            log.warning("nobody could be asked who may read the metrics: %s", error)
            return HTTPStatus.SERVICE_UNAVAILABLE

    def _reviewed(self, token: str) -> HTTPStatus:
        told = objects.status(self._api.create(TOKEN_REVIEW, {"spec": {"token": token}}))
        if not told.get("authenticated"):
            return HTTPStatus.UNAUTHORIZED
        user = told.get("user") or {}
        asked = {"user": user.get("username", ""), "nonResourceAttributes": {"verb": "get", "path": "/metrics"}}
        about = {name: user[name] for name in ("groups", "uid", "extra") if user.get(name)}
        answer = self._api.create(SUBJECT_ACCESS_REVIEW, {"spec": {**asked, **about}})
        return HTTPStatus.OK if objects.status(answer).get("allowed") else HTTPStatus.FORBIDDEN
