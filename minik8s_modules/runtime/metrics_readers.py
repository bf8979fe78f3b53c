"""Who may read a daemon's metrics: the API server is asked whose a token is, and whether he may get ``/metrics``.

This is what Kubernetes' components do (delegated authentication and authorization), and what the role system:monitoring
is for. Both answers are asked for at each scrape: there are few of them, and a right that was taken away ends at once.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from pathlib import Path

from minik8s_modules.api import objects
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import SUBJECT_ACCESS_REVIEW, TOKEN_REVIEW
from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError, TemporaryError
from minik8s_modules.base.metrics import Registry
from minik8s_modules.base.metrics_server import MetricsServer
from minik8s_modules.base.tls import server_context
from minik8s_modules.client.interface import Api

log = logging.getLogger(__name__)


def configured_server(configuration: Configuration, registry: Registry, api: Api) -> MetricsServer | None:
    """Return the server of a daemon's metrics by the section ``metrics`` of its configuration, None without one.

    Raises:
        ConfigurationError: its files or its address cannot be used.
    """
    if not configuration.has("metrics"):
        return None
    try:
        context = server_context(Path(configuration.text("metrics.cert")), Path(configuration.text("metrics.key")))
    except OSError as error:
        raise ConfigurationError(f"metrics: certificate or key cannot be used: {error}") from error
    return MetricsServer(registry, configuration.text("metrics.listen"), context, MetricsReaders(api))


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
            log.warning("the API server could not be asked who may read the metrics: %s", error)
            return HTTPStatus.SERVICE_UNAVAILABLE

    def _reviewed(self, token: str) -> HTTPStatus:
        review = objects.status(self._api.create(TOKEN_REVIEW, {"spec": {"token": token}}))
        if not review.get("authenticated"):
            return HTTPStatus.UNAUTHORIZED
        user = review.get("user") or {}
        asked = {"user": user.get("username", ""), "nonResourceAttributes": {"verb": "get", "path": "/metrics"}}
        about = {name: user[name] for name in ("groups", "uid", "extra") if user.get(name)}
        answer = self._api.create(SUBJECT_ACCESS_REVIEW, {"spec": {**asked, **about}})
        return HTTPStatus.OK if objects.status(answer).get("allowed") else HTTPStatus.FORBIDDEN
