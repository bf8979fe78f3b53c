"""Bootstrap tokens: what a machine without a certificate joins with, and how it knows the cluster. Pure.

A token is ``ID.SECRET``, kept as the Secret ``kube-system/bootstrap-token-ID`` in Kubernetes' form. It ends at its
``expiration``, and here it is good for one certificate: the signer claims it for one signing request (``used-by``,
``used-at``) before it approves that one. The newcomer still reads its certificate with the token; a cleaner takes the
Secret away afterwards. The cluster shows itself by ConfigMap ``kube-public/cluster-info``: a kubeconfig with the
authorities, signed with each token's secret (a detached JWS), and by hashes of the authorities' public keys. Source:
https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/, kubernetes ``staging/src/k8s.io/
cluster-bootstrap``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import parse_rfc3339, rfc3339
from minik8s_modules.base.places import place

SECRET_TYPE = "bootstrap.kubernetes.io/token"  # noqa: S105 - a type of Secrets
NAMESPACE, PREFIX = "kube-system", "bootstrap-token-"
USER, GROUP = "system:bootstrap:", "system:bootstrappers"
CLUSTER_INFO = ("kube-public", "cluster-info")
KUBECONFIG_KEY, SIGNATURE_KEY = "kubeconfig", "jws-kubeconfig-"
USAGES = ("signing", "authentication")
USED_BY, USED_AT = "used-by", "used-at"
USED_KEPT = timedelta(minutes=5)
"""How long a used token still reads: its owner fetches the certificate."""
_FORM = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_EXTRA_GROUP = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]")
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
_HASH = re.compile(r"sha256:[0-9a-f]{64}")


class BootstrapToken(NamedTuple):
    """A token's two parts."""

    id: str
    secret: str

    def __str__(self) -> str:
        """Return it as it is written; the only way to see the secret."""
        return f"{self.id}.{self.secret}"

    def __repr__(self) -> str:
        """Return the part that is no secret."""
        return f"<token {self.id}>"


def parse_token(text: str) -> BootstrapToken:
    """Return the token in ``text``.

    Raises:
        ValueError: it has another form; the message does not repeat it.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(
            "a token is 6 characters, a dot and 16 characters, all of a-z and 0-9, as abcdef.0123456789abcdef"
        )
    return BootstrapToken(*found.groups())


def new_token(choice: Callable[[str], str]) -> BootstrapToken:
    """Return a fresh token; ``choice`` picks a character of a text (``secrets.choice``)."""
    return BootstrapToken("".join(choice(_ALPHABET) for _ in range(6)), "".join(choice(_ALPHABET) for _ in range(16)))


def secret_of(token: BootstrapToken, expires: datetime | None, description: str = "") -> JsonObject:
    """Return the Secret of a new token; without ``expires`` it does not end by itself."""
    values = {
        "token-id": token.id,
        "token-secret": token.secret,
        **({"expiration": rfc3339(expires)} if expires else {}),
        **({"description": description} if description else {}),
        **{f"usage-bootstrap-{usage}": "true" for usage in USAGES},
        "auth-extra-groups": f"{GROUP}:minik8s:nodes",
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": SECRET_TYPE,
        "metadata": {"name": f"{PREFIX}{token.id}", "namespace": NAMESPACE},
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in values.items()},
    }


def text_of(secret: JsonObject, key: str) -> str:
    """Return what the Secret holds at ``key``, "" for nothing readable."""
    try:
        return base64.b64decode(str((secret.get("data") or {}).get(key) or ""), validate=True).decode()
    except ValueError:
        return ""


def token_of(secret: JsonObject) -> BootstrapToken | None:
    """Return the token that a Secret is, None when it is none in good form."""
    if secret.get("type") != SECRET_TYPE:
        return None
    parts = (text_of(secret, "token-id"), text_of(secret, "token-secret"))
    whole = _FORM.fullmatch(".".join(parts)) and objects.name(secret) == f"{PREFIX}{parts[0]}"
    return BootstrapToken(*parts) if whole else None


def expiration(secret: JsonObject) -> datetime | None:
    """Return when the token ends, None for never.

    Raises:
        ValueError: that cannot be read; such a token is good for nothing.
    """
    text = text_of(secret, "expiration")
    return parse_rfc3339(text) if text else None


def end_of(secret: JsonObject) -> datetime | None:
    """Return when the Secret is to be deleted, None for never: at its expiration, or when its certificate was fetched.

    Raises:
        ValueError: a time cannot be read.
    """
    used = text_of(secret, USED_AT)
    ends = [end for end in (expiration(secret), parse_rfc3339(used) + USED_KEPT if used else None) if end]
    return min(ends, default=None)


def usable(secret: JsonObject, usage: str, now: datetime) -> bool:
    """Return whether the token may be used for ``usage`` (signing or authentication) now."""
    if text_of(secret, f"usage-bootstrap-{usage}") != "true" or objects.is_deleting(secret):
        return False
    try:
        end = end_of(secret)
    except ValueError:
        return False
    return end is None or now < end


def matches(secret: JsonObject, token: BootstrapToken, now: datetime) -> bool:
    """Return whether the Secret is this token and good for authentication now."""
    known = token_of(secret)
    same = known is not None and hmac.compare_digest(str(known).encode(), str(token).encode())
    return same and usable(secret, "authentication", now)


def groups_of(secret: JsonObject) -> tuple[str, ...] | None:
    """Return the groups of who shows the token; None when it asks for one that is not for tokens to give."""
    extra = [group for group in text_of(secret, "auth-extra-groups").split(",") if group]
    if any(_EXTRA_GROUP.fullmatch(group) is None for group in extra):
        return None
    return (*sorted(set(extra)), GROUP)


# --- how the cluster shows itself -------------------------------------------------------------------


def parse_hash(text: str) -> str:
    """Return a hash of a public key, in lower case.

    Raises:
        ValueError: it is none.
    """
    wanted = text.strip().lower()
    if _HASH.fullmatch(wanted) is None:
        raise ValueError(f"a hash of the cluster's authority is sha256: and 64 hex digits, not {text!r}")
    return wanted


def signature(content: str, token: BootstrapToken) -> str:
    """Return the detached JWS (RFC 7515, appendix F) of ``content`` by the token's secret: HS256, the id as ``kid``."""
    head = _base64url(json.dumps({"alg": "HS256", "kid": token.id}, separators=(",", ":")).encode())
    signed = f"{head}.{_base64url(content.encode())}".encode()
    return f"{head}..{_base64url(hmac.new(token.secret.encode(), signed, hashlib.sha256).digest())}"


def is_signed(content: str, given: str, token: BootstrapToken) -> bool:
    """Return whether ``given`` is the signature of ``content`` by ``token``; kubeadm's are alike."""
    return hmac.compare_digest(given.encode(), signature(content, token).encode())


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def server_of(endpoints: JsonObject | None) -> str:
    """Return the URL of the API server that ``default/kubernetes`` names first, "" when it names none."""
    for subset in (endpoints or {}).get("subsets") or []:
        for address, port in zip(subset.get("addresses") or [], subset.get("ports") or [], strict=False):
            return f"https://{place(address['ip'], port['port'])}"
    return ""


def signed_info(kubeconfig: str, tokens: Iterable[JsonObject], now: datetime) -> Mapping[str, str]:
    """Return the data of cluster-info: the kubeconfig, and its signature by each token that is good for signing."""
    data = {KUBECONFIG_KEY: kubeconfig}
    for secret in tokens:
        token = token_of(secret)
        if token is not None and usable(secret, "signing", now):
            data[f"{SIGNATURE_KEY}{token.id}"] = signature(kubeconfig, token)
    return dict(sorted(data.items()))


def authorities_of(kubeconfig: str) -> bytes:
    """Return the authorities (PEM) that a kubeconfig of cluster-info names, "" when it names none."""
    try:
        cluster = json.loads(kubeconfig)["clusters"][0]["cluster"]
        return base64.b64decode(cluster["certificate-authority-data"], validate=True)
    except (ValueError, KeyError, IndexError, TypeError):
        return b""


def cluster_kubeconfig(server: str, authorities: bytes) -> str:
    """Return the kubeconfig of cluster-info: where the cluster is and whom it is known by, without a user."""
    cluster = {"certificate-authority-data": base64.b64encode(authorities).decode(), "server": server}
    # JSON is YAML; one form that never changes, since it is signed
    return json.dumps(
        {"apiVersion": "v1", "clusters": [{"cluster": cluster, "name": ""}], "kind": "Config"}, sort_keys=True
    )
