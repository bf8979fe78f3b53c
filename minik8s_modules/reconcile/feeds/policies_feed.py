"""Keeps the ``PolicyBook`` of a shard, and with it the section ``policies`` of its nodes.

Namespaces and all Pods of the cluster are watched from the first NetworkPolicy on: a cluster without any pays nothing.
Handlers run inside informers' locks and only note; deciding happens in the loop's threads (``entries``). A Pod whose
address was claimed a moment ago is asked for again there, so that its rules are in the same item as its sandbox.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import NAMESPACE, NETWORK_POLICY, POD
from minik8s_modules.api.network.network_policies import Pod, Policy, parse_policy, pod_of
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.pods.mirror_pods import node_uid
from minik8s_modules.client.informer import Informer
from minik8s_modules.client.interface import Source
from minik8s_modules.reconcile.network.policies import PolicyBook, filter_entry
from minik8s_modules.reconcile.values.values import Entries, Settings

log = logging.getLogger(__name__)
SECTION = "policies"
_BOUND = "spec.nodeName!="


class PolicyState(NamedTuple):
    """What is known of policies and of those whom they are about."""

    policies: tuple[Policy, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = {}
    pods: tuple[Pod, ...] = ()


class PolicyFeed:
    """Thread-safe.

    Args:
        api: an ``ApiClient``.
        settings: of the installation.
        address_of: has a Pod's address by its UID, None for none.
        on_change: called when a node's section may have changed, and when a first list is complete.
        active: False where the reconciler may not read all Pods: a node's own, which reads the policies alone.
    """

    def __init__(
        self,
        api: Source,
        settings: Settings,
        address_of: Callable[[str], str | None],
        on_change: Callable[[], None],
        *,
        active: bool,
    ) -> None:
        self._settings, self._address_of, self._on_change = settings, address_of, on_change
        self._active = active
        self._policies = Informer(api, NETWORK_POLICY, indexes={"namespace": objects.namespace}, on_synced=on_change)
        self._namespaces = Informer(api, NAMESPACE, on_synced=on_change)
        self._pods = Informer(api, POD, field_selector=_BOUND, transform=_read_of, on_synced=on_change)
        self._noting = threading.Lock()
        self._begun = False
        self._noted: set[tuple[str, Key]] = set()
        self._lock = threading.Lock()
        self._book = PolicyBook(settings.dual_stack)
        self._homeless: dict[Key, Pod] = {}
        """Pods that have no address yet."""

    def start(self) -> None:
        """List and watch; returns at once."""
        self._policies.add_handler(self._on_policy if self._active else self._on_foreign)
        self._policies.start()

    def stop(self) -> None:
        """End the watches."""
        for informer in (self._policies, self._namespaces, self._pods):
            informer.stop()

    def wait_synced(self, timeout_s: float) -> bool:
        """Return whether everything that counts was listed once, waiting up to ``timeout_s`` for each kind."""
        others = (self._namespaces, self._pods)
        return self._policies.wait_synced(timeout_s) and (
            not self._begun or all(informer.wait_synced(timeout_s) for informer in others)
        )

    def policy(self, key: Key) -> JsonObject | None:
        """Return a NetworkPolicy, None when there is none."""
        return self._policies.get(key.namespace, key.name)

    def pod(self, key: Key) -> JsonObject | None:
        """Return what is read of a Pod, None when there is none."""
        return self._pods.get(key.namespace, key.name)

    def policies_on(self, node: str) -> list[JsonObject]:
        """Return the NetworkPolicies that select a Pod of a node."""
        with self._lock:
            keys = self._book.policies_on(node)
        found = (self.policy(Key(*key.split("/", 1))) for key in keys)
        return [one for one in found if one is not None]

    def unenforced(self, pod: JsonObject) -> str:
        """Return a NetworkPolicy that selects a Pod, where this reconciler may not read what to enforce it by."""
        if self._active or not self._settings.policies_required or objects.spec(pod).get("hostNetwork"):
            return ""
        found = (_parsed(one) for one in self._policies.by_index("namespace", objects.namespace(pod)))
        labels = objects.labels(pod)
        return min((one.key for one in found if one is not None and one.selector.matches(labels)), default="")

    def _on_foreign(self, old: JsonObject | None, new: JsonObject | None) -> None:
        if old is None or new is None or objects.spec(old) != objects.spec(new):
            self._on_change()

    def known(self) -> PolicyState:
        """Return everything that policies are decided by, as things stand now."""
        with self._lock:
            self._take_notes()
            return PolicyState(tuple(self._book.policies()), dict(self._book.namespaces()), tuple(self._book.pods()))

    def entries(self, node: JsonObject) -> Entries:
        """Return the section ``policies`` of a node, as things stand now."""
        if not self._begun:
            return {}
        with self._lock:
            self._take_notes()
            name = objects.name(node)
            for key in [key for key, pod in self._homeless.items() if pod.node == name]:
                self._take_pod(key)
            return self._book.entries(name, filter_entry(node, self._settings))

    def _take_notes(self) -> None:
        with self._noting:
            noted, self._noted = self._noted, set()
        for kind, key in noted:
            try:
                self._take_note(kind, key)
            except Exception:  # one that cannot be read keeps no other from being taken
                log.exception("%s %s stays what it was to policies", kind, key)

    def _take_note(self, kind: str, key: Key) -> None:
        if kind == NETWORK_POLICY.kind:
            self._book.put_policy(str(key), _parsed(self._policies.get(*key)))
        elif kind == NAMESPACE.kind:
            found = self._namespaces.get("", key.name)
            self._book.put_namespace(key.name, objects.labels(found) if found is not None else None)
        else:
            self._take_pod(key)

    def _take_pod(self, key: Key) -> None:
        found = self._pods.get(*key)
        pod = pod_of(found, self._address_of(node_uid(found)) or "") if found is not None else None
        self._book.put_pod(str(key), pod)
        if pod is not None and not pod.address:
            self._homeless[key] = pod
        else:
            self._homeless.pop(key, None)

    def _begin(self) -> None:
        with self._noting:
            begun, self._begun = self._begun, True
        if not begun:
            self._namespaces.add_handler(self._on_namespace)
            self._pods.add_handler(self._on_pod)
            self._namespaces.start()
            self._pods.start()

    def _on_policy(self, old: JsonObject | None, new: JsonObject | None) -> None:
        self._begin()
        if old is None or new is None or objects.spec(old) != objects.spec(new):
            self._note(NETWORK_POLICY.kind, objects.key(new or old or {}))

    def _on_namespace(self, old: JsonObject | None, new: JsonObject | None) -> None:
        if old is None or new is None or objects.labels(old) != objects.labels(new):
            self._note(NAMESPACE.kind, objects.key(new or old or {}))

    def _on_pod(self, old: JsonObject | None, new: JsonObject | None) -> None:
        if old is None or new is None or pod_of(old) != pod_of(new):
            self._note(POD.kind, objects.key(new or old or {}))

    def on_address(self, old: JsonObject | None, new: JsonObject | None) -> None:
        """Handle a change of a PodAddress, once ``address_of`` knows it."""
        spec = objects.spec(new or old or {})
        if self._begun and spec.get("podName"):
            self._note(POD.kind, Key(str(spec.get("podNamespace") or ""), str(spec["podName"])))

    def _note(self, kind: str, key: Key) -> None:
        with self._noting:
            self._noted.add((kind, key))
        self._on_change()


def _parsed(policy: JsonObject | None) -> Policy | None:
    if policy is None:
        return None
    try:
        return parse_policy(policy)
    except Exception:
        # stored by somebody who validates otherwise; it isolates whom it selects and allows nothing
        log.exception("NetworkPolicy %s cannot be read: it allows nothing", objects.key(policy))
        spec = {**objects.spec(policy), "ingress": [], "egress": []}
        return parse_policy({**policy, "spec": spec})


def _read_of(pod: JsonObject) -> JsonObject:
    """Return what policies read of a Pod."""
    metadata = objects.metadata(pod)
    spec = objects.spec(pod)
    kept = ("name", "namespace", "uid", "resourceVersion", "labels", "annotations")
    return {
        "apiVersion": POD.api_version,
        "kind": POD.kind,
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        "spec": {
            **{name: spec[name] for name in ("nodeName", "hostNetwork") if name in spec},
            **{
                field: [{"ports": one["ports"]} for one in spec.get(field) or [] if one.get("ports")]
                for field in ("containers", "initContainers")
            },
        },
        "status": {"phase": objects.status(pod).get("phase")},
    }
