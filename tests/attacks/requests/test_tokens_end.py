"""No token lives longer than the cluster allows, whoever asks, and however.

The attack: who may ask for a token once asks for one of 136 years, and keeps what he has after his rights to ask are
gone. As Kubernetes' --service-account-max-token-expiration: a longer wish is shortened, and the answer says so.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.base.clock import parse_rfc3339
from tests.integration.apiserver.conftest import Namespace
from tests.support.apiserver import ApiServerProcess, own_server
from tests.support.pki import Authority

DAY_S = 86_400
LONGEST_WISH_S = 1 << 32


def claims(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


@pytest.fixture
def account(server: ApiServerProcess, namespace: Namespace) -> str:
    """Return the path at which a robot's tokens are asked for."""
    assert server.request("POST", namespace.path("serviceaccounts"), {"metadata": {"name": "robot"}}).code == 201
    return f"{namespace.path('serviceaccounts', 'robot')}/token"


@pytest.mark.parametrize("wished_s", [DAY_S + 1, 365 * DAY_S, LONGEST_WISH_S])
def test_a_token_lives_a_day_at_most(server: ApiServerProcess, account: str, wished_s: int):
    answer = server.request("POST", account, {"spec": {"expirationSeconds": wished_s}})
    assert answer.code == 201, answer.body
    made = answer.json
    found = claims(made["status"]["token"])
    assert found["exp"] - found["iat"] == DAY_S
    assert made["spec"]["expirationSeconds"] == DAY_S
    assert parse_rfc3339(made["status"]["expirationTimestamp"]).timestamp() == found["exp"]
    assert f"requested expiration of {wished_s} seconds shortened to {DAY_S} seconds" in answer.headers["warning"]


@pytest.mark.parametrize("wished_s", [600, 3600, DAY_S])
def test_who_asks_for_less_gets_it_without_a_word(server: ApiServerProcess, account: str, wished_s: int):
    answer = server.request("POST", account, {"spec": {"expirationSeconds": wished_s}})
    found = claims(answer.json["status"]["token"])
    assert (found["exp"] - found["iat"], "warning" in answer.headers) == (wished_s, False)


def test_tokens_of_pods_and_dry_runs_are_shortened_too(server: ApiServerProcess, namespace: Namespace, account: str):
    pod = {
        "metadata": {"name": "p"},
        "spec": {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "a"}]},
    }
    assert server.request("POST", namespace.path("pods"), pod).code == 201
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "p"}
    wish = {"spec": {"expirationSeconds": LONGEST_WISH_S, "boundObjectRef": bound}}
    assert server.request("POST", account, wish).json["spec"]["expirationSeconds"] == DAY_S
    assert server.request("POST", f"{account}?dryRun=All", wish).json["spec"]["expirationSeconds"] == DAY_S


def test_kubectl_says_what_was_shortened(server: ApiServerProcess, namespace: Namespace, account: str):
    done = server.kubectl("create", "token", "robot", "--duration=8760h", f"--namespace={namespace.name}")
    assert claims(done.stdout)["exp"] - claims(done.stdout)["iat"] == DAY_S
    assert "shortened to 86400 seconds" in done.stderr


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    """An API server whose tokens live an hour."""
    folder: Path = tmp_path_factory.mktemp("strict")
    key = Authority(folder / "sa", "sa").issue("sa", "service-accounts").key
    with own_server(folder, service_accounts={"signing_key": str(key), "max_token_seconds": 3600}) as server:
        yield server


def test_an_administrator_sets_the_time(strict: ApiServerProcess):
    strict.kubectl("create", "serviceaccount", "robot")
    token = strict.kubectl("create", "token", "robot", "--duration=2h").stdout
    assert claims(token)["exp"] - claims(token)["iat"] == 3600
