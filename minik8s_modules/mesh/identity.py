"""Whose sidecar asks: the Pod that the token in its request was issued to, as the API server says.

What a sidecar says of itself (its node id) counts for nothing: who has a Pod's token learns what that Pod's namespace
may know, and no more. The Pods of a Gateway have a service account of their own: whoever may make Pods in a namespace
may learn what its Gateways are told, certificates among it, as with the Secrets of that namespace.
"""

from __future__ import annotations

from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import NAMESPACE, POD, TOKEN_REVIEW
from minik8s_modules.api.network.authorization import AUTHORIZATION_POLICY
from minik8s_modules.api.network.gateway_api import PREFIX
from minik8s_modules.api.pods.mutual_tls import MODES, MTLS, STRICT, can_speak, has_ipv6
from minik8s_modules.client.interface import Api
from minik8s_modules.mesh.authorizations.guards import Guard, Policies, newest
from minik8s_modules.mesh.identities.securing import Peers

AGAIN_S = 30.0
"""After which a stream ends whose Pod is still ahead of the copies; its successor asks again."""
_ACCOUNT, _POD = "system:serviceaccount:", "authentication.kubernetes.io/pod-name"


class Sidecar(NamedTuple):
    """The Pod that a sidecar stands beside, its service account, and whether its node leads what comes in to TLS.

    ``space_speaks_tls`` is whether its Namespace had the label when that was asked, and ``has_ipv6`` whether the Pod
    had an address of IPv6; it may get its addresses later. ``labels`` are the Pod's, and ``newest_policy`` is the
    resourceVersion of the AuthorizationPolicy of its Namespace that was written last, when that was asked.
    """

    namespace: str
    pod: str
    account: str = ""
    speaks_tls: bool = False
    uid: str = ""
    space_speaks_tls: bool = False
    has_ipv6: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    newest_policy: int = 0

    @property
    def scope(self) -> str:
        """Return what it is told of: its namespace, or the Gateway whose Pods have that account."""
        return f"{self.namespace}/{self.account}" if self.account.startswith(PREFIX) else self.namespace


def sidecar_of(api: Api, authorization: str) -> Sidecar | None:
    """Return the Pod of the bearer token in a header's value; None if it is no token of a Pod that there is.

    Raises:
        StatusError: the API server refused to say.
        TemporaryError: no API server could be asked.
    """
    kind, _, token = authorization.partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        return None
    review = objects.status(api.create(TOKEN_REVIEW, {"spec": {"token": token.strip()}}))
    user = review.get("user") or {}
    pods = (user.get("extra") or {}).get(_POD) or []
    name = str(user.get("username", ""))
    if not review.get("authenticated") or not name.startswith(_ACCOUNT) or len(pods) != 1:
        return None
    namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
    return Sidecar(namespace, pods[0], account)


def known_sidecar(api: Api, authorization: str) -> Sidecar | None:
    """Return as ``sidecar_of`` what the Pod itself says, too; raises as that."""
    found = sidecar_of(api, authorization)
    if found is None:
        return None
    try:
        pod = api.get(POD, found.pod, found.namespace)
        speaks = can_speak(objects.spec(pod))
        space = objects.labels(api.get(NAMESPACE, found.namespace)) if speaks else {}
    except NotFound:
        return None
    return found._replace(
        speaks_tls=speaks,
        uid=objects.uid(pod),
        space_speaks_tls=space.get(MTLS) in MODES,
        has_ipv6=has_ipv6(pod),
        labels=tuple(sorted(objects.labels(pod).items())),
        newest_policy=_newest_policy(api, found.namespace) if speaks else 0,
    )


def _newest_policy(api: Api, namespace: str) -> int:
    try:
        return newest(api.list(AUTHORIZATION_POLICY, namespace).items)
    except NotFound:  # nobody has defined the kind
        return 0


class Listening:
    """How one sidecar is told to take connections: strictly, until it is known better. Belongs to its stream.

    The pilot's copies may be older than the Pod, and older than the label of the Namespace by which the Pod got such a
    sidecar. So whether the Namespace has the label is asked when the stream begins, and once more if copies have not
    caught up with the answer for long: the label may be gone again. AuthorizationPolicies are asked for likewise: until
    the copies have the latest of then, the sidecar is told nothing at all, and a new one thus lets nobody in.
    """

    def __init__(self, sidecar: Sidecar) -> None:
        self.sidecar = sidecar
        self._space_is_ahead = sidecar.space_speaks_tls
        self._policies_are_ahead = bool(sidecar.newest_policy)
        self._has_ipv6 = sidecar.has_ipv6

    @property
    def is_ahead(self) -> bool:
        """Whether what the API server said when the stream began is newer than all copies since."""
        return self._space_is_ahead or self._policies_are_ahead

    def knows(self, policies: Policies) -> bool:
        """Return whether copies of policies have been as new as those that there were when the stream began."""
        self._policies_are_ahead = self._policies_are_ahead and policies.newest < self.sidecar.newest_policy
        return not self._policies_are_ahead

    def guard(self, peers: Peers, policies: Policies) -> Guard | None:
        """Return what is enforced at the sidecar; None where nothing is."""
        sidecar = self.sidecar
        if not sidecar.speaks_tls or not policies.declared:
            return None
        labels = peers.labels(sidecar.namespace, sidecar.pod, sidecar.uid)
        return policies.guard(sidecar.namespace, sidecar.pod, dict(sidecar.labels) if labels is None else labels)

    def told(self, peers: Peers) -> list[tuple[str, bool]]:
        """Return the modes of the listeners of what comes in, and whether each is of IPv6.

        There is none at a Pod whose node leads nothing there. One that has had an address of IPv6 keeps it.
        """
        sidecar = self.sidecar
        self._has_ipv6 = self._has_ipv6 or peers.has_ipv6(sidecar.namespace, sidecar.pod, sidecar.uid)
        self._space_is_ahead = self._space_is_ahead and sidecar.namespace not in peers.namespaces
        if not sidecar.speaks_tls:
            return []
        mode = STRICT if self._space_is_ahead else peers.mode(sidecar.namespace, sidecar.pod, sidecar.uid)
        return [(mode, ipv6) for ipv6 in (False, True)[: 1 + self._has_ipv6]]
