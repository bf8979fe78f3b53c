"""Writes down which sidecars enforce an AuthorizationPolicy, and why others do not.

Each pilot does so for the sidecars that it serves, and keeps what others have written of theirs. What is written of a
generation of a policy stays true of Pods that are there; a sidecar keeps what it has when its pilot goes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import datetime
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, NotFound
from minik8s_modules.api.kinds import ENDPOINT_SLICE
from minik8s_modules.api.network.authorization import AUTHORIZATION_POLICY, needs_http, selects
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.pods.mutual_tls import MTLS
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.mesh.authorizations.following import PolicyCopies
from minik8s_modules.mesh.authorizations.guards import Guard, http_ports_of, spec_text
from minik8s_modules.runtime.controller import Context, Loop, Looping
from minik8s_modules.runtime.informers import BY_NAMESPACE

ENFORCED, PROTOCOL_KNOWN, UNREADABLE = "Enforced", "ProtocolKnown", "Unreadable"
_TOGETHER_S, _AGAIN_S = 0.1, 0.1
_SHOWN = 5


class Heard(NamedTuple):
    """What a sidecar enforces; if it has refused that, its words."""

    guard: Guard | None
    refusal: str | None = None


_NOTHING = Heard(None)


class Pods(NamedTuple):
    """The Pods of a namespace by name, with their labels: those whose sidecars enforce policies, and others.

    ``secured`` is whether the Namespace has mutual TLS.
    """

    secured: bool = False
    able: Mapping[str, Mapping[str, str]] = {}
    unable: Mapping[str, Mapping[str, str]] = {}


class Around(NamedTuple):
    """What a status is decided by, besides the policy: the Pods, those with a port of HTTP, and what was heard."""

    pods: Pods
    with_http: Set[str] = frozenset()
    heard: Mapping[str, Heard] = {}


def decide_status(policy: JsonObject, around: Around, now: datetime, fault: str = "") -> JsonObject:
    """Return the status of a policy; ``fault`` is why it denies everything in place of what it says."""
    status, generation = objects.status(policy), objects.metadata(policy).get("generation")
    chosen = sorted(name for name, labels in around.pods.able.items() if selects(policy, labels))
    blind = sorted(name for name, labels in around.pods.unable.items() if selects(policy, labels))
    old = status if status.get("observedGeneration") == generation else {}
    enforced, refused = _acknowledged(policy, chosen, old, around.heard)
    holds, why, text = _enforced(around.pods, chosen, blind, enforced, refused)
    if fault:
        holds, why = ("False", why if holds == "False" else UNREADABLE)
        text = f"it cannot be read and denies everything ({text}): {fault}"
    found = [(ENFORCED, holds, why, text)]
    if needs_http([policy]):
        unknown = [name for name in chosen if name not in around.with_http]
        found.append((PROTOCOL_KNOWN, *_protocol(unknown)))
    before = status.get("conditions") or ()
    observed = {"observedGeneration": generation} if generation is not None else {}
    told = [objects.condition_since(kind, holds, (why, text), before, rfc3339(now)) for kind, holds, why, text in found]
    return {
        **observed,
        **({"enforcedBy": enforced} if enforced else {}),
        **({"refusedBy": refused} if refused else {}),
        "conditions": [{**each, **observed} for each in told],
    }


def _acknowledged(
    policy: JsonObject, chosen: Sequence[str], old: JsonObject, heard: Mapping[str, Heard]
) -> tuple[list[str], list[str]]:
    own = (objects.name(policy), spec_text(policy))

    def said(pod: str) -> tuple[bool, bool]:
        found = heard.get(pod, _NOTHING)
        if found.guard is None or own not in found.guard.policies:  # perhaps it has told another pilot since
            return pod in (old.get("enforcedBy") or ()), pod in (old.get("refusedBy") or ())
        return found.refusal is None, found.refusal is not None

    answers = {pod: said(pod) for pod in chosen}
    return [pod for pod in chosen if answers[pod][0]], [pod for pod in chosen if answers[pod][1]]


def _enforced(
    pods: Pods, chosen: Sequence[str], blind: Sequence[str], enforced: Sequence[str], refused: Sequence[str]
) -> tuple[str, str, str]:
    if not pods.secured:
        return "False", "NoMutualTLS", f"the Namespace has no label {MTLS}: sidecars of its Pods enforce no policy"
    if blind:
        text = f"Pods without a sidecar that takes mutual TLS let everything in: {_listed(blind)}"
        return "False", "PodsWithoutSidecar", text
    if refused:
        return "False", "RefusedBySidecar", f"sidecars keep what they had, as Events say: {_listed(refused)}"
    waiting = [name for name in chosen if name not in enforced]
    if waiting:
        return "False", "WaitsForSidecars", f"not acknowledged yet by the sidecars of {_listed(waiting)}"
    if not chosen:
        return "Unknown", "NoPods", "it selects no Pod"
    return "True", ENFORCED, f"by {len(chosen)} sidecar{'s' if len(chosen) != 1 else ''}"


def _protocol(unknown: Sequence[str]) -> tuple[str, str, str]:
    if not unknown:
        return "True", PROTOCOL_KNOWN, ""
    text = (
        "hosts, methods and paths match nothing where a rule allows, and everything where it denies, at Pods of which "
        f"no Service says that a port is one of HTTP, by its appProtocol or a name such as http: {_listed(unknown)}"
    )
    return "False", "NoHTTPPort", text


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


class Enforcements(Looping):
    """Writes them; a key is a namespace. Shared by threads.

    Args:
        context: of the process.
        policies: the policies there are; whoever starts them is another.
        pods_of: returns the Pods of a namespace; None while they are not known.
    """

    def __init__(self, context: Context, policies: PolicyCopies, pods_of: Callable[[str], Pods | None]) -> None:
        self._context = context
        self._policies = policies
        self._pods_of = pods_of
        self._lock = threading.Lock()
        self._heard: dict[str, dict[str, Heard]] = {}
        self._loop = Loop(context, "mesh-enforcements", self.sync, workers=1)
        self._slices = self._loop.watch(ENDPOINT_SLICE, self._of_policies, BY_NAMESPACE)
        policies.follow(self.look)

    def look(self, namespaces: Iterable[str] | None) -> None:
        """Decide again on the policies of namespaces, None for all; those without any cost nothing."""
        declared = self._policies.get()
        for each in declared if namespaces is None else namespaces:
            if each in declared:
                self._loop.add(Key(each, ""))

    def heard(self, namespace: str, pod: str, said: Heard) -> None:
        """Note what the sidecar of a Pod enforces, and tell a refusal of what came of policies."""
        with self._lock:
            of = self._heard.setdefault(namespace, {})
            if of.get(pod, _NOTHING) == said:
                return
            of[pod] = said
            if said == _NOTHING:
                del of[pod]
        for name in said.guard.names if said.guard is not None and said.refusal is not None else ():
            about = {
                "apiVersion": AUTHORIZATION_POLICY.api_version,
                "kind": AUTHORIZATION_POLICY.kind,
                "name": name,
                "namespace": namespace,
            }
            text = f"the sidecar of Pod {pod} refused it: {said.refusal}"
            self._context.recorder.event(about, "Warning", "RefusedBySidecar", text)
        self._loop.add_after(Key(namespace, ""), _TOGETHER_S)

    def sync(self, key: Key) -> None:
        """Write what is new of a namespace.

        Raises:
            StatusError: the API refused; it is tried again.
        """
        pods = self._pods_of(key.namespace)
        if pods is None or not self._policies.ready:
            self._loop.add_after(key, _AGAIN_S)
            return
        with self._lock:
            heard = {pod: said for pod, said in self._heard.get(key.namespace, {}).items() if pod in pods.able}
            self._heard[key.namespace] = heard
            heard = dict(heard)
        http = http_ports_of(self._slices.by_index(BY_NAMESPACE, key.namespace))
        around = Around(pods, {name for name, ports in http.items() if ports}, heard)
        for policy in self._policies.get().get(key.namespace, ()):
            status = decide_status(policy, around, self._context.clock.now(), self._policies.fault_of(policy))
            if status == objects.status(policy) or objects.is_deleting(policy):
                continue
            try:
                self._context.client.update(AUTHORIZATION_POLICY, {**policy, "status": status}, subresource="status")
            except (Conflict, NotFound):
                continue  # our copy is older than the object; its change brings the key back

    def _of_policies(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        namespace = objects.namespace(new if new is not None else old or {})
        return [Key(namespace, "")] if namespace in self._known() else []

    def _known(self) -> Set[str]:
        with self._lock:
            return self._heard.keys()
