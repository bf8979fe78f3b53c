"""Which credential is for which image, as kubelet's keyring has it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from minik8s_modules.reconcile.storage.pull_secrets import credentials, missing_event, pull_key, pulls_of
from minik8s_modules.reconcile.values.values import PullState


def config(**auths: Any) -> dict[str, Any]:
    """Return a dockerconfigjson Secret with an entry a registry."""
    data = {"auths": auths}
    encoded = base64.b64encode(json.dumps(data).encode()).decode()
    return {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": encoded}}


def pod(image: str, *names: str) -> dict[str, Any]:
    """Return a pod with an image and pull secrets."""
    secrets = [{"name": name} for name in names]
    spec = {"containers": [{"name": "app", "image": image}], "imagePullSecrets": secrets}
    return {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec}


def user(name: str) -> dict[str, str]:
    """Return an entry of a user, the way kubectl writes it."""
    return {"username": name, "password": "pw", "auth": base64.b64encode(f"{name}:pw".encode()).decode()}


def found(image: str, **auths: Any) -> list[str]:
    """Return the users tried for an image."""
    return [one.username for one in credentials(pod(image, "s"), image, {"n/s": config(**auths)})]


@pytest.mark.parametrize(
    ("image", "registry", "fits"),
    [
        ("registry.example.com/team/app:1", "registry.example.com", True),
        ("registry.example.com/team/app:1", "other.example.com", False),
        ("registry.example.com/team/app:1", "https://registry.example.com/v2/", True),
        ("registry.example.com/team/app:1", "registry.example.com/team", True),
        ("registry.example.com/team/app:1", "registry.example.com/else", False),
        ("registry.example.com/app@sha256:" + "0" * 64, "registry.example.com", True),
        ("registry.example.com/app:1", "*.example.com", True),
        ("a.registry.example.com/app:1", "*.example.com", False),
        ("localhost:5000/app:1", "localhost:5000", True),
        ("localhost:5000/app:1", "localhost:5001", False),
        ("busybox", "https://index.docker.io/v1/", True),
        ("docker.io/library/busybox:1", "docker.io", True),
        ("Not A Name", "docker.io", False),
    ],
)
def test_an_entry_is_for_the_images_of_its_registry(image: str, registry: str, fits: bool) -> None:  # noqa: FBT001
    assert found(image, **{registry: user("me")}) == (["me"] if fits else [])


def test_the_more_precise_entry_is_tried_first() -> None:
    image = "r.example.com/team/app:1"
    auths = {"r.example.com": user("all"), "r.example.com/team": user("team")}
    assert found(image, **auths) == ["team", "all"]


def test_the_older_form_is_read_too_and_what_is_neither_is_skipped() -> None:
    old = base64.b64encode(json.dumps({"https://r.example.com": {"auth": user("old")["auth"]}}).encode()).decode()
    secrets = {
        "n/old": {"type": "kubernetes.io/dockercfg", "data": {".dockercfg": old}},
        "n/odd": {"type": "Opaque", "data": {".dockerconfigjson": old}},
        "n/broken": {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "e30="}},
    }
    image = "r.example.com/app:1"
    tried = credentials(pod(image, "old", "odd", "broken", "missing"), image, secrets)
    assert [one.auth() for one in tried] == [{"username": "old", "password": "pw", "serveraddress": "r.example.com"}]


def test_a_secret_shows_nowhere() -> None:
    image = "r.example.com/app:1"
    given = credentials(
        pod(image, "s"), image, {"n/s": config(**{"r.example.com": {"username": "u", "password": "hid3"}})}
    )
    assert "hid3" not in f"{given} {given!r} {pull_key(image, given)}"


def test_a_pod_sees_the_pulls_made_with_its_own_credentials() -> None:
    image, secrets = "r.example.com/app:1", {"n/s": config(**{"r.example.com": user("me")})}
    mine = pull_key(image, credentials(pod(image, "s"), image, secrets))
    failed, good = PullState(failures=3), PullState(active=True)
    assert pulls_of(pod(image, "s"), secrets, {image: failed, mine: good})[image] == good
    assert image not in pulls_of(pod(image, "s"), secrets, {image: failed})
    assert pulls_of(pod(image), {}, {image: failed})[image] == failed


def test_a_missing_secret_is_told() -> None:
    (event,) = missing_event(pod("a", "s", "t"), {"n/s": {}})
    assert event.reason == "FailedToRetrieveImagePullSecret"
    assert "(t)" in event.message


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        r'{"auths": {"docker.io": {"username": "\ud800", "password": "pw"}}}',
        r'{"auths": {"docker.io": {"username": "me", "password": "\udfff"}}}',
        r'{"auths": {"[a-\ud800]*.docker.io": {"username": "me", "password": "pw"}}}',
    ],
)
def test_what_cannot_be_sent_is_no_credential(text: str) -> None:
    data = {".dockerconfigjson": base64.b64encode(text.encode()).decode()}
    secret = {"type": "kubernetes.io/dockerconfigjson", "data": data}
    assert credentials(pod("docker.io/app:1", "s"), "docker.io/app:1", {"n/s": secret}) == ()
