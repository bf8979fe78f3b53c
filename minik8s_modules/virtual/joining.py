"""How a virtual node joins a cluster by a token, as machines do, and keeps its certificates fresh.

The cluster shows itself, a token buys the certificate ``system:node:NAME``, and that one another for the HTTP API
(``reconcile/standalone/joining.py``). All of it lies in ``<state_dir>/agent``; who has joined needs no token any more.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from minik8s_modules.api.access.bootstrap_tokens import BootstrapToken
from minik8s_modules.api.errors import StatusError
from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.base.errors import ConfigurationError, TemporaryError
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.interface import Api
from minik8s_modules.client.kubeconfig import Access, load_kubeconfig
from minik8s_modules.reconcile.standalone import joining
from minik8s_modules.reconcile.standalone.daemon_configs import serving_name
from minik8s_modules.reconcile.standalone.files import Home, Identity, client_validity, kubeconfig, validity

log = logging.getLogger(__name__)
USER_AGENT = "minik8s-virtual"
LOOK_S = 600.0
"""Between two looks at whether a certificate is to be renewed, which is due weeks before it ends."""


class Given(NamedTuple):
    """What the command line says about joining."""

    node: str
    server: str
    token: BootstrapToken | None
    pins: tuple[str, ...]
    state_dir: Path


class Member:
    """A node of a cluster: what it has in its folder. ``close`` lets others have that."""

    def __init__(self, given: Given, clock: Clock | None = None) -> None:
        self._given, self._clock = given, clock or SystemClock()
        self.home = Home(given.state_dir / "agent")
        self.home.open()

    def close(self) -> None:
        """Let others have the folder."""
        self.home.close()

    @property
    def kubeconfig(self) -> Path:
        """The node's kubeconfig."""
        return self.home.path("kubeconfig")

    @property
    def serving(self) -> Path:
        """Certificate and key for the HTTP API, in one file: no crash leaves a pair of two halves."""
        return self.home.path("serving.pem")

    def join(self, stop: threading.Event) -> None:
        """Get what is missing.

        Raises:
            ConfigurationError: it is another node's folder, or there is no certificate and no token.
            Stopped: ``stop`` was set before it came.
        """
        known, good = self.home.identity(), client_validity(self.kubeconfig)
        if known is not None and known.node != self._given.node:
            text = f"{self.home.folder} is of node {known.node}, not {self._given.node}"
            raise ConfigurationError(f"{text}; give another --state-dir")
        if known is None or good is None or good.over(self._clock.now()):
            self._join(stop)
        if not self.home.read("serving.pem"):
            self._write_serving(self.client(), stop)

    def client(self) -> Api:
        """Return a client with the node's certificate."""
        return ApiClient.of(load_kubeconfig(self.kubeconfig), user_agent=USER_AGENT)

    def renew_if_due(self, stop: threading.Event) -> bool:
        """Renew what is to be renewed; return whether the process must take up another certificate.

        Raises:
            StatusError, TemporaryError: the API did not give one.
        """
        now, good = self._clock.now(), client_validity(self.kubeconfig)
        changed = False
        if good is None or good.renewal_due(now):
            access = load_kubeconfig(self.kubeconfig)
            request = joining.make_request(joining.CLIENT_SIGNER, self._given.node)
            certificate = joining.obtain(self.client(), request, self._clock, stop)
            self._write_kubeconfig(access.ca_pem, certificate, request.key)
            changed = True
        if validity(self.serving.read_bytes()).renewal_due(now):
            self._write_serving(self.client(), stop)
            changed = True
        return changed

    def _join(self, stop: threading.Event) -> None:
        given = self._given
        if given.token is None:
            text = "give --token and --ca-hash, as printed by: minik8s token create --print-join-command"
            raise ConfigurationError(f"{given.node} has no certificate of the cluster: {text}")
        authorities = joining.discover(given.server, given.token, given.pins, self._clock, stop)
        request = self._pending(given.token)
        access = Access(given.server, authorities, b"", b"", token=str(given.token))
        certificate = joining.obtain(ApiClient.of(access, user_agent=USER_AGENT), request, self._clock, stop)
        self.home.write("ca.crt", authorities.decode())
        self._write_kubeconfig(authorities, certificate, request.key)
        self.home.write("identity.json", json.dumps(Identity(given.node, given.server)._asdict()))
        self.home.remove("request.json")
        log.info("node %s has joined %s", given.node, given.server)

    def _pending(self, token: BootstrapToken) -> joining.Request:
        """Return the request that was begun with this token, or a new one, which is on disk before it is sent."""
        begun = json.loads(self.home.read("request.json") or "{}")
        whose = {"token": token.id, "node": self._given.node}
        if all(begun.get(key) == value for key, value in whose.items()):
            return joining.Request(**begun["request"])
        request = joining.make_request(joining.CLIENT_SIGNER, self._given.node)
        self.home.write("request.json", json.dumps({**whose, "request": request._asdict()}))
        return request

    def _write_kubeconfig(self, authorities: bytes, certificate: bytes, key: str) -> None:
        identity = Identity(self._given.node, self._given.server)
        self.home.write("kubeconfig", kubeconfig(identity, authorities, certificate, key))

    def _write_serving(self, api: Api, stop: threading.Event) -> None:
        node = self._given.node
        request = joining.make_request(joining.SERVING_SIGNER, node, serving_name(node))
        certificate = joining.obtain(api, request, self._clock, stop)
        self.home.write("serving.pem", certificate.decode() + request.key)


def attend(member: Member, stop: threading.Event, serve: Callable[[threading.Event], None]) -> None:
    """Call ``serve`` until ``stop`` is set, again whenever a certificate has been renewed."""
    while not stop.is_set():
        ended = threading.Event()
        watching = threading.Thread(target=_watch, args=(member, stop, ended), name="certificates", daemon=True)
        watching.start()
        serve(ended)
        if not ended.is_set():
            return
        watching.join()


def _watch(member: Member, stop: threading.Event, ended: threading.Event) -> None:
    while not stop.wait(LOOK_S):
        try:
            if member.renew_if_due(stop):
                log.info("a certificate was renewed; taking it up")
                break
        except joining.Stopped:
            break
        except (StatusError, TemporaryError, ConfigurationError) as error:
            log.warning("the certificate cannot be renewed yet: %s", error)
    ended.set()
