"""Bootstrap tokens end, and the cluster shows itself to who holds one.

Two of Kubernetes' controllers over one watch of the tokens: *tokencleaner* deletes those that have expired, and here
also those whose one certificate was fetched; *bootstrapsigner* keeps ``kube-public/cluster-info``, the kubeconfig of
the cluster signed with each token. What the address is, ``default/kubernetes`` says; what the authorities are, this
process' own kubeconfig, which is read again every 15 s. Source: kubernetes ``pkg/controller/bootstrap``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.access import bootstrap_tokens
from minik8s_modules.api.access.bootstrap_tokens import CLUSTER_INFO, NAMESPACE, PREFIX, SECRET_TYPE
from minik8s_modules.api.errors import AlreadyExists, Conflict, NotFound
from minik8s_modules.api.field_selectors import exactly
from minik8s_modules.api.kinds import CONFIG_MAP, ENDPOINTS, SECRET
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.client.interface import Api
from minik8s_modules.runtime.shell import Shell

log = logging.getLogger(__name__)
LOOK_EVERY_S = 15.0
_INFO = "cluster-info"


class Keep(NamedTuple):
    """The token is looked at again in ``again_s`` seconds; None: it does not end by itself."""

    again_s: float | None


class Remove(NamedTuple):
    """The token is over."""

    why: str


def decide_token(secret: JsonObject, now: datetime) -> Keep | Remove:
    """Return what becomes of a token; one whose end cannot be read is good for nothing, and people see why."""
    try:
        end = bootstrap_tokens.end_of(secret)
    except ValueError:
        return Keep(None)
    if end is None or now < end:
        return Keep((end - now).total_seconds() if end else None)
    return Remove("it was used" if bootstrap_tokens.text_of(secret, bootstrap_tokens.USED_BY) else "it has expired")


class TokenController(Shell[str]):
    """Cleans tokens and publishes cluster-info; ``authorities()`` returns the PEM of those that sign."""

    def __init__(self, client: Api, authorities: Callable[[], bytes], clock: Clock | None = None) -> None:
        self._client, self._authorities = client, authorities
        super().__init__(client, "tokens", clock)
        self._tokens = self.follow(SECRET, self._on_token, NAMESPACE, exactly(type=SECRET_TYPE))
        self._stop = threading.Event()
        self._looking = threading.Thread(target=self._look, name="cluster-info", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        super().start()
        self._looking.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        super().stop()

    def sync(self, name: str) -> None:
        """Look at one token, or at cluster-info. Raises as the API does."""
        if name == _INFO:
            self._publish()
            return
        secret = self._tokens.get(NAMESPACE, name)
        step = decide_token(secret, self._clock.now()) if secret is not None else Keep(None)
        match step:
            case Remove(why):
                self._remove(secret or {}, why)
            case Keep(again_s) if again_s is not None:
                self._queue.add_after(name, again_s)

    def _remove(self, secret: JsonObject, why: str) -> None:
        try:
            self._client.delete(SECRET, objects.name(secret), NAMESPACE, uid=objects.uid(secret))
        except (NotFound, Conflict):
            return
        log.info("token %s is deleted: %s", objects.name(secret).removeprefix(PREFIX), why)

    def _on_token(self, old: JsonObject | None, new: JsonObject | None) -> None:
        self._queue.add(objects.name(new or old or {}))
        self._queue.add(_INFO)

    def _look(self) -> None:
        self._queue.add(_INFO)
        while not self._clock.wait(self._stop, LOOK_EVERY_S):
            self._queue.add(_INFO)

    def _publish(self) -> None:
        try:
            pem = self._authorities()
            server = bootstrap_tokens.server_of(self._client.get(ENDPOINTS, "kubernetes", "default"))
        except (ConfigurationError, OSError, NotFound) as error:
            log.debug("cluster-info cannot be written yet: %s", error)
            return
        if pem and server and self._tokens.wait_synced(0):
            self._write(self._data(server, pem, self._tokens.list()))

    def _data(self, server: str, pem: bytes, tokens: Iterable[JsonObject]) -> Mapping[str, str]:
        kubeconfig = bootstrap_tokens.cluster_kubeconfig(server, pem)
        return bootstrap_tokens.signed_info(kubeconfig, tokens, self._clock.now())

    def _write(self, data: Mapping[str, str]) -> None:
        namespace, name = CLUSTER_INFO
        try:
            found = self._client.get(CONFIG_MAP, name, namespace)
        except NotFound:
            metadata = {"name": name, "namespace": namespace}
            try:
                self._client.create(CONFIG_MAP, {"metadata": metadata, "data": data})
            except AlreadyExists:
                self._queue.add(_INFO)
            return
        if found.get("data") != data:
            self._client.update(CONFIG_MAP, {**found, "data": data})
