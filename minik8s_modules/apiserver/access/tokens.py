"""Service-account tokens: made by serviceaccounts/token, checked on every request that carries one.

A token is a JWT that names its account and, when bound, the pod, secret or node it lives with. Checking has two
halves. The signature, issuer and form never change for one token, so they are checked once and remembered by the
token's digest. Time, audience, and whether account and bound object are still there (same uid, not long deleted) are
looked at each time, in the watch cache: a token ends at the moment what it is bound to goes. Source of claims and
wording: kubernetes ``pkg/serviceaccount/claims.go``.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

import jwt
from jwt.types import Options

from minik8s_modules.api import cause
from minik8s_modules.api.errors import BadRequest, Conflict, Invalid
from minik8s_modules.api.kinds import NODE, POD, SECRET, SERVICE_ACCOUNT, Kind
from minik8s_modules.api.objects import JsonObject, deletion_timestamp, name, spec, uid
from minik8s_modules.apiserver.authorization.identity import (
    ALL_AUTHENTICATED,
    User,
    account_groups,
    account_name,
)
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.keyfiles import KeyFiles
from minik8s_modules.apiserver.http.settings import LONGEST_S, LONGEST_WISH_S
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.base.clock import parse_rfc3339, rfc3339

DEFAULT_S, SHORTEST_S = 3600, 600
# how long a token outlives the deletion time of what it is bound to (validator of bound tokens)
DELETION_LEEWAY_S = 60
_REMEMBERED = 4096
# what is checked once: signature, issuer and form. Time and audience are looked at each time
_LASTING: Options = {
    "require": ["aud", "exp", "iss", "jti", "nbf", "sub"],
    "verify_aud": False,
    "verify_exp": False,
    "verify_iat": False,
    "verify_nbf": False,
}
_PRIVATE = "kubernetes.io"
_EXTRA = "authentication.kubernetes.io/"
_BINDABLE: Mapping[tuple[str, str], Kind] = {("v1", kind.kind): kind for kind in (POD, SECRET, NODE)}


class InvalidToken(Exception):
    """A token that is not, or no longer, good; the message says why."""


class TokenOwner(NamedTuple):
    """Who a token speaks for, and the audiences that it and the question have in common."""

    user: User
    audiences: tuple[str, ...]


class Tokens:
    """Makes and checks tokens.

    Args:
        backend: where accounts and bound objects are.
        keys: the signing key and those that verify.
        issuer: the ``iss`` of all tokens; also the audience of this API.
        longest_s: how long a token lives at most.
    """

    def __init__(self, backend: Backend, keys: KeyFiles, issuer: str, longest_s: int = LONGEST_S) -> None:
        self._backend = backend
        self._longest_s = longest_s
        self._keys = keys
        self.issuer = issuer
        self._verified = lru_cache(_REMEMBERED)(self._verify)
        self._generation = -1

    def request(
        self,
        target: Target,
        wanted: JsonObject,
        *,
        dry_run: bool = False,
        warn: Callable[[str], None] = lambda _text: None,
    ) -> JsonObject:
        """Return the TokenRequest ``wanted`` for the account at ``target``, with its token; a dry run makes none.

        What lives longer than tokens may is shortened; the answer and ``warn`` tell.

        Raises:
            NotFound: account or bound object is not there.
            Invalid: the time is too short or too long, or the reference is of a kind tokens are not bound to.
            Conflict: the bound object is another one than the reference's uid says.
        """
        account = self._backend.get(target).object
        asked = spec(wanted)
        lifetime_s = self._lifetime_s(asked, warn)
        private = self._bound(target, account, asked.get("boundObjectRef") or {})
        now_s = int(self._backend.clock.now().timestamp())
        audiences = asked.get("audiences") or [self.issuer]
        claims = {
            "aud": audiences,
            "exp": now_s + lifetime_s,
            "iat": now_s,
            "iss": self.issuer,
            "jti": str(uuid.uuid4()),
            _PRIVATE: private,
            "nbf": now_s,
            "sub": account_name(target.namespace, target.name),
        }
        expires = datetime.fromtimestamp(now_s + lifetime_s, tz=UTC)
        status = {"token": "" if dry_run else self._keys.signer().sign(claims), "expirationTimestamp": rfc3339(expires)}
        return {**wanted, "spec": {**asked, "audiences": audiences, "expirationSeconds": lifetime_s}, "status": status}

    def _lifetime_s(self, asked: JsonObject, warn: Callable[[str], None]) -> int:
        wish_s = int(asked.get("expirationSeconds") or DEFAULT_S)
        if not SHORTEST_S <= wish_s <= LONGEST_WISH_S:
            raise Invalid(TOKEN_REQUEST, "", [_bad_lifetime(wish_s)])
        if wish_s > self._longest_s:
            warn(f"requested expiration of {wish_s} seconds shortened to {self._longest_s} seconds")
        return min(wish_s, self._longest_s)

    def _bound(self, target: Target, account: JsonObject, ref: JsonObject) -> JsonObject:
        private = {"namespace": target.namespace, "serviceaccount": {"name": target.name, "uid": uid(account)}}
        if not ref:
            return private
        kind = _BINDABLE.get((ref.get("apiVersion", ""), ref.get("kind", "")))
        if kind is None:
            text = 'cannot bind token for object of this kind; use a v1 "Pod", "Secret" or "Node"'
            raise Invalid(TOKEN_REQUEST, "", [cause.invalid("spec.boundObjectRef", ref.get("kind", ""), text)])
        found = self._backend.get(Target(kind, target.namespace if kind.namespaced else "", ref.get("name", ""))).object
        if ref.get("uid") and ref["uid"] != uid(found):
            why = f"the UID in the bound object reference ({ref['uid']}) does not match the UID in record. "
            raise Conflict(kind, name(found), f"{why}The object might have been deleted and then recreated")
        private[kind.kind.lower()] = {"name": name(found), "uid": uid(found)}
        if kind is POD:
            self._check_pod(target, found)
            node = self._backend.cache.get(NODE.key("", spec(found).get("nodeName") or ""))
            if node is not None:
                private["node"] = {"name": name(node.object), "uid": uid(node.object)}
        return private

    @staticmethod
    def _check_pod(target: Target, pod: JsonObject) -> None:
        account = spec(pod).get("serviceAccountName") or ""
        if account != target.name:
            why = f'cannot bind token for serviceaccount "{target.name}" to pod running with different serviceaccount'
            raise BadRequest(f"{why} name.")

    def check(self, token: str, audiences: Sequence[str] = ()) -> TokenOwner:
        """Return who ``token`` speaks for.

        Args:
            token: a JWT.
            audiences: at least one must be the token's; () stands for this API.

        Raises:
            InvalidToken: it is not, or no longer, good.
        """
        if self._keys.generation() != self._generation:
            self._generation = self._keys.generation()
            self._verified.cache_clear()
        claims = self._verified(hashlib.sha256(token.encode()).digest(), _Hidden(token))
        self._check_time(claims)
        shared = tuple(each for each in audiences or (self.issuer,) if each in claims["aud"])
        if not shared:
            raise InvalidToken(f"token audiences {claims['aud']} is invalid for the target audiences")
        return TokenOwner(self._user(claims), shared)

    def _verify(self, _digest: bytes, hidden: _Hidden) -> JsonObject:
        try:
            key = self._keys.verifier(str(jwt.get_unverified_header(hidden.token).get("kid")))
            if key is None:
                raise InvalidToken("the token is signed by an unknown key")
            return jwt.decode(hidden.token, key.key, [key.algorithm], _LASTING, issuer=self.issuer)
        except jwt.InvalidTokenError as error:
            raise InvalidToken(f"the token cannot be trusted: {error}") from error

    def _check_time(self, claims: JsonObject) -> None:
        now_s = self._backend.clock.now().timestamp()
        if now_s >= claims["exp"]:
            raise InvalidToken("service account token has expired")
        if now_s < claims["nbf"] - DELETION_LEEWAY_S:
            raise InvalidToken("the token is not valid yet")

    def _user(self, claims: JsonObject) -> User:
        private = claims[_PRIVATE]
        space, account = private["namespace"], private["serviceaccount"]
        self._check_there(SERVICE_ACCOUNT, space, account, 0)
        extra = {f"{_EXTRA}credential-id": (f"JTI={claims['jti']}",)}
        for kind in (POD, SECRET, NODE):
            ref = private.get(kind.kind.lower())
            if not ref:
                continue
            if kind is not NODE or "pod" not in private:  # the node of a pod is only told, not looked at
                self._check_there(kind, space if kind.namespaced else "", ref, DELETION_LEEWAY_S)
            if kind is not SECRET:
                extra[f"{_EXTRA}{kind.kind.lower()}-name"] = (ref["name"],)
                extra[f"{_EXTRA}{kind.kind.lower()}-uid"] = (ref["uid"],)
        groups = (*account_groups(space), ALL_AUTHENTICATED)
        return User(account_name(space, account["name"]), groups, account["uid"], tuple(sorted(extra.items())))

    def _check_there(self, kind: Kind, space: str, ref: Mapping[str, str], leeway_s: int) -> None:
        found = self._backend.cache.get(kind.key(space, ref["name"]))
        if found is None or uid(found.object) != ref["uid"]:
            raise InvalidToken(f'{kind.singular_name} "{ref["name"]}" of the token is gone')
        deleted = deletion_timestamp(found.object)
        now_s = self._backend.clock.now().timestamp()
        if deleted and now_s > parse_rfc3339(deleted).timestamp() + leeway_s:
            raise InvalidToken(f'{kind.singular_name} "{ref["name"]}" of the token has been deleted')

    def documents(self, address: str) -> tuple[JsonObject, JsonObject]:
        """Return the OpenID configuration (whose keys are found at ``address``) and the JSON Web Key Set."""
        keys = self._keys.verifiers()
        configuration = {
            "issuer": self.issuer,
            "jwks_uri": f"{address}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": sorted({key.algorithm for key in keys}),
        }
        return configuration, {"keys": [key.jwk() for key in keys]}

    def review(self, review: JsonObject) -> JsonObject:
        """Return the TokenReview with its answer."""
        asked = spec(review)
        try:
            known = self.check(asked.get("token") or "", asked.get("audiences") or ())
        except InvalidToken as error:
            return {**_without_token(review), "status": {"user": {}, "error": str(error)}}
        status = {"authenticated": True, "user": known.user.info(), "audiences": list(known.audiences)}
        return {**_without_token(review), "status": status}


class _Hidden(NamedTuple):
    """A token that does not take part in a cache's key: its digest does."""

    token: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hidden)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "<token>"


def _without_token(review: JsonObject) -> JsonObject:
    return {**review, "spec": {key: value for key, value in spec(review).items() if key != "token"}}


def _bad_lifetime(lifetime_s: Any) -> Any:
    if lifetime_s < SHORTEST_S:
        text = "may not specify a duration less than 10 minutes"
    else:
        text = "may not specify a duration larger than 2^32 seconds"
    return cause.invalid("spec.expirationSeconds", lifetime_s, text)


TOKEN_REQUEST = Kind(
    "authentication.k8s.io", "v1", "TokenRequest", "tokenrequests", "io.k8s.api.authentication.v1.TokenRequest"
)


class TokenAuthenticator:
    """Users of ``Authorization: Bearer`` headers; ``certificates`` is asked first, ``newcomer`` for other tokens."""

    def __init__(
        self,
        certificates: Callable[[Mapping[str, Any]], User | None],
        tokens: Tokens | None,
        newcomer: Callable[[str], User | None] = lambda _token: None,
    ) -> None:
        self._certificates = certificates
        self._tokens = tokens
        self._newcomer = newcomer

    def __call__(self, environ: Mapping[str, Any]) -> User | None:
        """Return the user of a request, None when it shows neither a certificate nor a good token."""
        user = self._certificates(environ)
        header = environ.get("HTTP_AUTHORIZATION", "")
        if user is not None or not header.startswith("Bearer "):
            return user
        token = header.removeprefix("Bearer ").strip()
        found = self._newcomer(token)
        if found is not None or self._tokens is None:
            return found
        try:
            return self._tokens.check(token).user
        except InvalidToken:
            return None
