"""The life of a node with a reconciler of its own: joined, attended, left; ``startup.py`` tells the whole.

One thread attends the three daemons. Another keeps what ends: certificates are renewed at three quarters of their life,
authorities, addresses of API servers and settings are read again every hour; when one has changed, the daemons are
started again, which no container notices.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.access import bootstrap_tokens
from minik8s_modules.api.access.bootstrap_tokens import CLUSTER_INFO, KUBECONFIG_KEY, BootstrapToken
from minik8s_modules.api.errors import AlreadyExists, StatusError
from minik8s_modules.api.kinds import CONFIG_MAP, ENDPOINTS, NODE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock
from minik8s_modules.base.errors import ConfigurationError, TemporaryError
from minik8s_modules.base.places import place
from minik8s_modules.base.sockets import way_out
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.kubeconfig import Access, load_kubeconfig
from minik8s_modules.reconcile.standalone import daemon_configs, joining, shared_settings, stream_user
from minik8s_modules.reconcile.standalone.daemon_configs import Machine
from minik8s_modules.reconcile.standalone.daemons import Child
from minik8s_modules.reconcile.standalone.files import Home, Identity, client_validity, kubeconfig, validity
from minik8s_modules.reconcile.standalone.joining import CLIENT_SIGNER, SERVING_SIGNER, Request, Stopped
from minik8s_modules.reconcile.standalone.leaving import leave
from minik8s_modules.reconcile.values.node_file import Declared, NodeFile

log = logging.getLogger(__name__)
ATTEND_S = 0.5
UPKEEP_S = 60.0
READ_AGAIN = timedelta(hours=1)
TIMEOUT_S = 10.0
AGENT = "minik8s-node"


class Given(NamedTuple):
    """The command line, read and checked."""

    node: str
    server: str
    token: BootstrapToken | None
    pins: tuple[str, ...]
    file: NodeFile
    state_dir: Path
    run_dir: Path
    docker_socket: str
    project_dir: Path
    own: JsonObject
    """Settings of this machine that win over the cluster's."""


class Agent:
    """One node's."""

    def __init__(self, given: Given, clock: Clock) -> None:
        self._given = given
        self._clock = clock
        self.home = Home(given.state_dir / "agent")
        self.changed = threading.Event()
        """Set when the daemons are to be started again."""
        self._read_at = clock.now()
        self.servers: tuple[str, ...] = ()
        """URLs of the API servers, the one that was given first."""

    def known_settings(self) -> JsonObject:
        """Return the cluster's settings as they were read last, {} before they ever were."""
        text = self.home.read("shared.json")
        return dict(json.loads(text)) if text else {}

    def run(self, stop: threading.Event) -> int:
        """Be the node until ``stop``; return the exit code.

        Raises:
            ConfigurationError: it cannot be.
            Stopped: before there was anything to leave.
        """
        identity = self._identity(stop)
        self.servers = (identity.server,)
        with _client(self.home) as api:
            self._prepare(api, stop)
        upkeep = threading.Thread(target=self._upkeep, args=(stop,), name="upkeep", daemon=True)
        upkeep.start()
        streams, gateway, reconciler = self._children()
        log.info("node %s of %s is attended", identity.node, identity.server)
        try:
            self._attend((streams, gateway, reconciler), stop)
            reconciler.stop()
            code = leave(self._machine(), self.home, gateway.stop, self._clock)
            streams.stop()
            stream_user.remove_user()
            return code
        finally:
            for child in (reconciler, gateway, streams):
                child.stop()

    def _attend(self, children: tuple[Child, ...], stop: threading.Event) -> None:
        for child in children:
            child.start()
        while not self._clock.wait(stop, ATTEND_S):
            if self.changed.is_set():
                self.changed.clear()
                self._configure()
                for child in children:
                    child.stop()
            for child in children:
                child.attend()

    # joining

    def _identity(self, stop: threading.Event) -> Identity:
        """Return who this machine is, joining if it is nobody yet."""
        known, given = self.home.identity(), self._given
        if known is not None and known.node != given.node:
            text = f"this machine is node {known.node} ({self.home.folder}), not {given.node}"
            raise ConfigurationError(f"{text}; start it under its name, or give another --state-dir")
        if known is not None and known.server != given.server:
            known = self._moved(given.server)
        good = client_validity(self.home.path("kubeconfig"))
        if known is not None and good is not None and not good.over(self._clock.now()):
            return known
        if given.token is None:
            text = "its certificate has expired" if good is not None else "it has not joined the cluster"
            raise ConfigurationError(
                f"{text}: give --token and --ca-hash, as printed by: minik8s token create --print-join-command"
            )
        return self._join(given.token, stop)

    def _moved(self, server: str) -> Identity:
        """Take over another address of the cluster."""
        identity = Identity(self._given.node, server)
        access = load_kubeconfig(self.home.path("kubeconfig"))
        self.home.write("kubeconfig", kubeconfig(identity, access.ca_pem, access.cert_pem, access.key_pem.decode()))
        self.home.write("identity.json", json.dumps(identity._asdict()))
        return identity

    def _join(self, token: BootstrapToken, stop: threading.Event) -> Identity:
        given = self._given
        identity = Identity(given.node, given.server)
        authorities = joining.discover(given.server, token, given.pins, self._clock, stop)
        request = self._pending(CLIENT_SIGNER, token.id)
        api = ApiClient.of(
            Access(given.server, authorities, b"", b"", token=str(token)), user_agent=AGENT, timeout_s=TIMEOUT_S
        )
        try:
            certificate = joining.obtain(api, request, self._clock, stop)
        except ConfigurationError:
            self.home.remove("request.json")
            raise
        finally:
            api.close()
        self._store(identity, authorities, certificate, request.key)
        self.home.write("identity.json", json.dumps(identity._asdict()))
        log.info("node %s has joined %s", identity.node, identity.server)
        return identity

    def _pending(self, signer: str, token: str) -> Request:
        """Return the request that was begun with this token, or a new one, which is on disk before it is sent."""
        text = self.home.read("request.json")
        known = json.loads(text) if text else {}
        if known.get("token") == token and known.get("node") == self._given.node:
            return Request(**known["request"])
        request = joining.make_request(signer, self._given.node)
        begun = {"token": token, "node": self._given.node, "request": request._asdict()}
        # a token is good for one certificate: a key that was lost after it was sent would need another token
        self.home.write("request.json", json.dumps(begun))
        return request

    def _store(self, identity: Identity, authorities: bytes, certificate: bytes, key: str) -> None:
        self.home.write("ca.crt", authorities.decode())
        self.home.write("kubeconfig", kubeconfig(identity, authorities, certificate, key))
        self.home.remove("request.json")

    # what the daemons need

    def _prepare(self, api: ApiClient, stop: threading.Event) -> None:
        """Learn what is not known yet, which waits for the cluster, and write the daemons' files."""
        first = not self.home.read("shared.json")
        while True:
            try:
                self._learn(api)
                self.declare(api)
                break
            except (TemporaryError, StatusError) as error:
                if not first and isinstance(error, TemporaryError):
                    log.warning("%s; starting with what is known", error)
                    break
                log.warning("the cluster's settings are not available yet: %s; trying again", error)
            if self._clock.wait(stop, joining.RETRY_S):
                raise Stopped
        if not self.home.read("serving.pem"):
            self._renew_serving(api, stop)
        self._configure()

    def _learn(self, api: ApiClient) -> bool:
        """Read the cluster's settings, authorities and addresses; return whether they are others than before."""
        shared = shared_settings.read(api)
        text = json.dumps(shared, sort_keys=True)
        changed = text != self.home.read("shared.json")
        if changed:
            if (shared.get("network") or {}).get("driver", "bridge") == "bridge":
                log.warning(
                    "the cluster has no overlay (network.driver bridge): "
                    "pods reach those of other nodes only by routes that you add"
                )
            self.home.write("shared.json", text)
        return self._learn_authorities(api) | self._learn_servers(api) | changed

    def _learn_servers(self, api: ApiClient) -> bool:
        subsets = api.get(ENDPOINTS, "kubernetes", "default").get("subsets") or []
        found = [
            f"https://{place(address['ip'], subset['ports'][0]['port'])}"
            for subset in subsets
            for address in subset.get("addresses") or []
        ]
        servers = tuple(dict.fromkeys([self._given.server, *sorted(found)]))
        changed, self.servers = servers != self.servers, servers
        return changed

    def _learn_authorities(self, api: ApiClient) -> bool:
        """Take over authorities that the cluster has exchanged; what tells them is vouched for by those known."""
        namespace, name = CLUSTER_INFO
        data = api.get(CONFIG_MAP, name, namespace).get("data") or {}
        pem = bootstrap_tokens.authorities_of(str(data.get(KUBECONFIG_KEY) or ""))
        access = load_kubeconfig(self.home.path("kubeconfig"))
        if not pem or pem == access.ca_pem:
            return False
        identity = Identity(self._given.node, self._given.server)
        self._store(identity, pem, access.cert_pem, access.key_pem.decode())
        return True

    def declare(self, api: ApiClient) -> None:
        """Have the server look at what the node's file declares; a Node that is there gets what it lacks of it.

        Raises:
            ConfigurationError: the server refuses it.
            StatusError: it cannot tell now.
        """
        name, declared = self._given.node, self._given.file.declared
        meta = {"name": name, "labels": dict(declared.labels), "annotations": dict(declared.annotations)}
        spec: JsonObject = {"taints": list(declared.taints), "unschedulable": declared.unschedulable}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {k: v for k, v in spec.items() if v}}
        try:
            # only asked about: the reconciler makes the Node, from facts of its machine
            _refusable(lambda: api.create(NODE, body, dry_run=True))
        except AlreadyExists:
            _refusable(lambda: self._update(api, declared))

    def _update(self, api: ApiClient, declared: Declared) -> JsonObject:
        node = api.get(NODE, self._given.node)
        meta = {"labels": dict(declared.labels), "annotations": dict(declared.annotations)}
        taints = [(one["key"], one["effect"]) for one in objects.spec(node).get("taints") or []]
        for taint in declared.taints:
            if (taint["key"], taint["effect"]) not in taints:
                log.warning("taint %s is only set when a Node is made; use kubectl taint", taint["key"])
        return api.patch(NODE, self._given.node, "", {"metadata": meta})

    def _configure(self) -> None:
        machine, home, given = self._machine(), self.home, self._given
        (given.run_dir / "agent").mkdir(mode=0o700, parents=True, exist_ok=True)
        home.hmac_key()
        home.write_yaml("hosts.yml", daemon_configs.inventory(machine))
        home.write_yaml("gateway.yml", daemon_configs.gateway(machine, given.own))
        shared = self.known_settings()
        home.write_yaml("reconciler.yml", daemon_configs.reconciler(machine, shared, given.own, given.file))
        of_streams = {
            "streams.yml": yaml.safe_dump(daemon_configs.streams(machine, given.own)),
            **{name: home.read(name) for name in ("serving.pem", "ca.crt")},
        }
        user = stream_user.user()
        stream_user.require_readable(user)
        stream_user.write(Path(machine.streams), of_streams, user)

    def _machine(self) -> Machine:
        given = self._given
        return Machine(
            given.node,
            address_of(given.file.declared, given.server),
            str(given.state_dir),
            str(given.run_dir),
            given.docker_socket,
            str(self.home.folder),
            str(given.project_dir),
            self.servers,
        )

    def _children(self) -> tuple[Child, Child, Child]:
        config, clock = Path(self._machine().streams) / "streams.yml", self._clock
        return (
            Child("minik8s_modules.streams.main", config, clock, user=stream_user.user()),
            Child("minik8s_modules.gateway.main", self.home.path("gateway.yml"), clock),
            Child("minik8s_modules.reconcile.main", self.home.path("reconciler.yml"), clock),
        )

    # what ends

    def _upkeep(self, stop: threading.Event) -> None:
        while not self._clock.wait(stop, UPKEEP_S):
            try:
                with _client(self.home) as api:
                    self.keep(api, stop)
            except Stopped:
                return
            except (TemporaryError, StatusError, ConfigurationError) as error:
                log.warning("certificates and settings could not be checked: %s", error)

    def keep(self, api: ApiClient, stop: threading.Event) -> None:
        """Renew what is old, read what may have changed. Raises as the API does, and as ``joining.obtain``."""
        now = self._clock.now()
        good = client_validity(self.home.path("kubeconfig"))
        if good is None or good.renewal_due(now):
            self._renew(api, stop)
        if validity(self.home.read("serving.pem").encode()).renewal_due(now):
            self._renew_serving(api, stop)
            self.changed.set()
        if now - self._read_at >= READ_AGAIN:
            self._read_at = now
            if self._learn(api):
                self.changed.set()

    def _renew(self, api: ApiClient, stop: threading.Event) -> None:
        request = joining.make_request(CLIENT_SIGNER, self._given.node)
        certificate = joining.obtain(api, request, self._clock, stop)
        access = load_kubeconfig(self.home.path("kubeconfig"))
        self._store(Identity(self._given.node, self._given.server), access.ca_pem, certificate, request.key)
        log.info("the node's certificate was renewed")
        self.changed.set()

    def _renew_serving(self, api: ApiClient, stop: threading.Event) -> None:
        name = daemon_configs.serving_name(self._given.node)
        request = joining.make_request(SERVING_SIGNER, self._given.node, name)
        certificate = joining.obtain(api, request, self._clock, stop)
        self.home.write("serving.pem", certificate.decode() + request.key)


def _client(home: Home) -> AbstractContextManager[ApiClient]:
    """Return a client as the node, which is closed at the end."""
    access = load_kubeconfig(home.path("kubeconfig"))
    return contextlib.closing(ApiClient.of(access, user_agent=AGENT, timeout_s=TIMEOUT_S))


def _refusable(call: Callable[[], Any]) -> None:
    """Make a call whose refusal is the user's to answer.

    Raises:
        ConfigurationError: the server refuses what the node's file declares.
    """
    try:
        call()
    except AlreadyExists:
        raise
    except StatusError as error:
        if error.code in {400, 403, 422}:
            raise ConfigurationError(f"the cluster refuses what the node's file declares: {error}") from error
        raise


def address_of(declared: Declared, server: str) -> str:
    """Return where others reach this machine: as declared, one of IPv6 only where it reaches ``server`` by IPv6."""
    if told := declared.internal_ip():
        return told
    found = own_address(server)
    return (declared.internal_ip(ipv6=True) or found) if ":" in found else found


def own_address(server: str) -> str:
    """Return the address of this machine that leads to ``server``; nothing is sent."""
    parts = urlsplit(server)
    try:
        return way_out(parts.hostname or "", parts.port or 443)
    except OSError as error:
        raise ConfigurationError(
            f"there is no route from here to {server}: {error}; give the node's address in its file (status.address)"
        ) from error
