"""Service-account tokens: what they say, and when they stop being good."""

from __future__ import annotations

import base64
from datetime import timedelta
from pathlib import Path
from typing import Any

import jwt
import orjson
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from minik8s_modules.api.errors import BadRequest, Conflict, Invalid, NotFound
from minik8s_modules.api.kinds import POD, SECRET, SERVICE_ACCOUNT
from minik8s_modules.api.objects import JsonObject, uid
from minik8s_modules.apiserver.access.keys import main, signing_key
from minik8s_modules.apiserver.access.tokens import InvalidToken, TokenAuthenticator, Tokens
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.keyfiles import KeyFiles, read_signing_key
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.verbs import deleting, writing
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.base.errors import ConfigurationError

ROBOT = Target(SERVICE_ACCOUNT, "default", "robot")
TOLD = ("aud", "exp", "iss", "jti", "nbf", "sub")
ISSUER = "https://kubernetes.default.svc"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "sa.key"
    path.write_bytes(signing_key())
    return path


@pytest.fixture
def tokens(backend: Backend, key: Path, options: Options) -> Tokens:
    make(backend, ROBOT, options)
    return Tokens(backend, KeyFiles(key), ISSUER)


def make(backend: Backend, target: Target, options: Options, **fields: Any) -> JsonObject:
    obj = {"metadata": {"name": target.name}, **fields}
    return writing.create(backend, target._replace(name=""), obj, options).object


def pod(backend: Backend, options: Options, name: str = "web", account: str = "robot") -> JsonObject:
    container = {"name": "c", "image": "busybox:1"}
    spec = {"serviceAccountName": account, "containers": [container]}
    return make(backend, Target(POD, "default", name), options, spec=spec)


def issue(tokens: Tokens, **spec: Any) -> str:
    return str(tokens.request(ROBOT, {"spec": spec})["status"]["token"])


def unverified(token: str) -> JsonObject:
    return jwt.decode(token, options={"verify_signature": False})


def remove(backend: Backend, target: Target, options: Options) -> None:
    deleting.delete(backend, target, {"gracePeriodSeconds": 0}, options)


def test_a_token_speaks_for_its_account(tokens: Tokens, backend: Backend):
    user = tokens.check(issue(tokens)).user
    assert user.name == "system:serviceaccount:default:robot"
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated")
    assert user.uid == uid(backend.get(ROBOT).object)
    assert user.fact("authentication.kubernetes.io/credential-id").startswith("JTI=")


def test_claims_are_those_of_kubernetes(tokens: Tokens, backend: Backend, options: Options):
    pod(backend, options)
    ref = {"apiVersion": "v1", "kind": "Pod", "name": "web"}
    claims = unverified(issue(tokens, boundObjectRef=ref, audiences=["a", "b"], expirationSeconds=700))
    assert (claims["aud"], claims["exp"] - claims["iat"], claims["iss"]) == (["a", "b"], 700, ISSUER)
    assert claims["sub"] == "system:serviceaccount:default:robot"
    assert set(claims["kubernetes.io"]) == {"namespace", "serviceaccount", "pod"}


def test_a_token_ends_in_time(tokens: Tokens, clock: FakeClock):
    token = issue(tokens, expirationSeconds=600)
    clock.advance(599)
    tokens.check(token)
    clock.advance(1)
    with pytest.raises(InvalidToken, match="expired"):
        tokens.check(token)


def test_no_token_outlives_what_the_cluster_allows(tokens: Tokens, clock: FakeClock):
    collected: list[str] = []
    made = tokens.request(ROBOT, {"spec": {"expirationSeconds": 1 << 32}}, warn=collected.append)
    assert collected == ["requested expiration of 4294967296 seconds shortened to 86400 seconds"]
    clock.advance(86_399)
    tokens.check(made["status"]["token"])
    clock.advance(1)
    with pytest.raises(InvalidToken, match="expired"):
        tokens.check(made["status"]["token"])


def test_a_token_ends_with_its_account_also_when_another_of_its_name_comes(
    tokens: Tokens, backend: Backend, options: Options
):
    token = issue(tokens)
    tokens.check(token)
    remove(backend, ROBOT, options)
    with pytest.raises(InvalidToken, match="gone"):
        tokens.check(token)
    make(backend, ROBOT, options)
    with pytest.raises(InvalidToken, match="gone"):
        tokens.check(token)


@pytest.mark.parametrize("kind", [POD, SECRET], ids=["pod", "secret"])
def test_a_token_ends_with_what_it_is_bound_to(tokens: Tokens, backend: Backend, options: Options, kind):
    made = pod(backend, options) if kind is POD else make(backend, Target(SECRET, "default", "web"), options)
    ref = {"apiVersion": "v1", "kind": kind.kind, "name": "web", "uid": uid(made)}
    token, unbound = issue(tokens, boundObjectRef=ref), issue(tokens)
    assert tokens.check(token).user.fact("authentication.kubernetes.io/pod-name") == ("web" if kind is POD else "")
    remove(backend, Target(kind, "default", "web"), options)
    with pytest.raises(InvalidToken, match="gone"):
        tokens.check(token)
    tokens.check(unbound)


def test_what_a_token_can_be_bound_to(tokens: Tokens, backend: Backend, options: Options):
    pod(backend, options)
    pod(backend, options, "other", "somebody")
    ref = {"apiVersion": "v1", "kind": "Pod", "name": "web"}
    with pytest.raises(Conflict, match="does not match the UID in record"):
        issue(tokens, boundObjectRef={**ref, "uid": "1"})
    with pytest.raises(NotFound):
        issue(tokens, boundObjectRef={**ref, "name": "nothing"})
    with pytest.raises(BadRequest, match="different serviceaccount"):
        issue(tokens, boundObjectRef={**ref, "name": "other"})
    with pytest.raises(Invalid, match="cannot bind token"):
        issue(tokens, boundObjectRef={**ref, "kind": "Service"})
    with pytest.raises(Invalid, match="less than 10 minutes"):
        issue(tokens, expirationSeconds=60)
    with pytest.raises(NotFound):
        tokens.request(ROBOT._replace(name="nobody"), {})
    assert tokens.request(ROBOT, {}, dry_run=True)["status"]["token"] == ""


def test_audiences_must_meet(tokens: Tokens):
    token = issue(tokens, audiences=["vault", "db"])
    with pytest.raises(InvalidToken, match="audiences"):
        tokens.check(token)
    assert tokens.check(token, ["db", "x"]).audiences == ("db",)


def forged(token: str, **claims: Any) -> str:
    head, body, signature = token.split(".")
    changed = {**orjson.loads(base64.urlsafe_b64decode(body + "==")), **claims}
    return f"{head}.{base64.urlsafe_b64encode(orjson.dumps(changed)).rstrip(b'=').decode()}.{signature}"


def test_forged_tokens_are_refused(tokens: Tokens, key: Path):
    token = issue(tokens)
    tokens.check(token)
    own, stranger = read_signing_key(key.read_bytes()), read_signing_key(signing_key())
    claims = unverified(token)
    head = {"kid": own.public.id}
    known = own.public.key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    ).hex()
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
    bad = [
        forged(token, sub="system:serviceaccount:kube-system:admin"),
        forged(token, iss="https://other"),
        stranger.sign(claims),
        jwt.encode(claims, stranger.key, "ES256", head),
        jwt.encode(claims, known, "HS256", head),
        jwt.encode(claims, "", "none", head),
        own.sign({**claims, "iss": "https://other"}),
        *(own.sign({claim: value for claim, value in claims.items() if claim != gone}) for gone in TOLD),
        f"{none}.{token.split('.')[1]}.",
        token[:-4] + "AAAA",
        token + "A",
        "a.b.c",
        "",
        "ä.ö.ü",
    ]
    for each in bad:
        with pytest.raises(InvalidToken):
            tokens.check(each)


def test_keys_rotate_while_running(tokens: Tokens, backend: Backend, key: Path, tmp_path: Path):
    files = KeyFiles(key, [tmp_path / "sa.key"])
    running = Tokens(backend, files, ISSUER)
    old = issue(running)
    (tmp_path / "old.pub").write_bytes(key.read_bytes())
    both = KeyFiles(key, [tmp_path / "old.pub"])
    rotated = Tokens(backend, both, ISSUER)
    key.write_bytes(signing_key())
    new = issue(rotated)
    assert jwt.get_unverified_header(new)["kid"] != jwt.get_unverified_header(old)["kid"]
    rotated.check(new)
    rotated.check(old)
    (tmp_path / "old.pub").write_bytes(key.read_bytes())
    with pytest.raises(InvalidToken):
        rotated.check(old)


def test_rsa_keys_sign_too_and_others_are_refused(tmp_path: Path, tokens: Tokens):
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    signer = read_signing_key(rsa.generate_private_key(65537, 2048).private_bytes(*form))
    token = signer.sign({"a": 1})
    assert jwt.get_unverified_header(token) == {"alg": "RS256", "kid": signer.public.id}
    assert jwt.decode(token, signer.public.key, ["RS256"]) == {"a": 1}
    assert set(signer.public.jwk()) == {"use", "kty", "kid", "alg", "n", "e"}
    odd = tmp_path / "odd.key"
    odd.write_bytes(ec.generate_private_key(ec.SECP384R1()).private_bytes(*form))
    with pytest.raises(ConfigurationError, match="P-256"):
        KeyFiles(odd)


def test_a_review_tells_whose_a_token_is(tokens: Tokens):
    answered = tokens.review({"spec": {"token": issue(tokens, audiences=["db"]), "audiences": ["db"]}})
    assert answered["status"]["authenticated"] is True
    assert answered["status"]["audiences"] == ["db"]
    assert answered["status"]["user"]["username"] == "system:serviceaccount:default:robot"
    assert "token" not in answered["spec"]
    assert tokens.review({"spec": {"token": "x"}})["status"]["error"]


def test_headers_are_asked_only_without_a_certificate(tokens: Tokens):
    header = {"HTTP_AUTHORIZATION": f"Bearer {issue(tokens)}"}
    found = TokenAuthenticator(lambda _: None, tokens)(header)
    assert found is not None
    assert found.name.endswith(":robot")
    assert TokenAuthenticator(lambda _: None, tokens)({"HTTP_AUTHORIZATION": "Bearer x"}) is None
    assert TokenAuthenticator(lambda _: found, tokens)({"HTTP_AUTHORIZATION": "Bearer x"}) is found
    assert TokenAuthenticator(lambda _: None, None)(header) is None


def test_a_key_file_is_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "new.key"
    assert main(["signing-key", str(path)]) == 0
    made = path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    assert main(["signing-key", str(path)]) == 0
    assert path.read_bytes() == made
    assert capsys.readouterr().out == f"made {path}\nkept {path}\n"
    assert main(["signing-key", str(tmp_path / "none" / "x")]) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["new.key"]
    read_signing_key(made)


def test_time_is_the_clocks(tokens: Tokens, clock: FakeClock):
    asked = tokens.request(ROBOT, {"spec": {"expirationSeconds": 600}})
    assert asked["status"]["expirationTimestamp"] == (clock.now() + timedelta(seconds=600)).strftime(
        "%Y-%m-%dT%H:%M:%SZ"
    )
