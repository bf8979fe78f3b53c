"""Paths and methods become targets and verbs."""

from __future__ import annotations

import pytest

from minik8s_modules.apiserver.http.target import parse, unserved, verb_of


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/pods", ("Pod", "", "", "")),
        ("/api/v1/pods/", ("Pod", "", "", "")),
        ("/api/v1/namespaces/ns/pods", ("Pod", "ns", "", "")),
        ("/api/v1/namespaces/ns/pods/web", ("Pod", "ns", "web", "")),
        ("/api/v1/namespaces/ns/pods/web/status", ("Pod", "ns", "web", "status")),
        ("/api/v1/namespaces/ns", ("Namespace", "", "ns", "")),
        ("/api/v1/namespaces/ns/finalize", ("Namespace", "", "ns", "finalize")),
        ("/api/v1/namespaces/ns/status", ("Namespace", "", "ns", "status")),
        ("/api/v1/nodes/n/status", ("Node", "", "n", "status")),
        ("/apis/coordination.k8s.io/v1/namespaces/ns/leases/l", ("Lease", "ns", "l", "")),
        ("/apis/minik8s.io/v1/podaddresses/10.0.0.1", ("PodAddress", "", "10.0.0.1", "")),
    ],
)
def test_paths_that_are_served(path: str, expected: tuple[str, ...]):
    target = parse(path)
    assert target is not None
    assert (target.kind.kind, *target[1:]) == expected


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/api",
        "/api/v1",
        "/apis",
        "/apis/coordination.k8s.io",
        "/apis/coordination.k8s.io/v1",
        "/api/v2/pods",
        "/api/v1/unicorns",
        "/api/v1/pods/web",
        "/api/v1/namespaces/ns/nodes",
        "/api/v1/namespaces/ns/nodes/n",
        "/api/v1/namespaces/ns/pods/web/log/x",
        "/api/v1/namespaces/ns/pods/web/unknown",
        "/api/v1/namespaces/ns/configmaps/c/status",
        "/api/v1/namespaces//pods",
        "/apis/coordination.k8s.io/v1/pods",
        "/other/v1/pods",
    ],
)
def test_paths_that_are_not(path: str):
    assert parse(path) is None


@pytest.mark.parametrize(
    ("method", "path", "watch", "verb"),
    [
        ("GET", "/api/v1/pods", False, "list"),
        ("GET", "/api/v1/pods", True, "watch"),
        ("HEAD", "/api/v1/nodes/n", False, "get"),
        ("POST", "/api/v1/namespaces/ns/pods", False, "create"),
        ("POST", "/api/v1/pods", False, None),
        ("DELETE", "/api/v1/pods", False, None),
        ("DELETE", "/api/v1/nodes", False, "deletecollection"),
        ("DELETE", "/api/v1/namespaces", False, None),
        ("PUT", "/api/v1/nodes", False, None),
        ("PATCH", "/api/v1/nodes/n/status", False, "patch"),
        ("DELETE", "/api/v1/nodes/n/status", False, None),
        ("POST", "/api/v1/namespaces/ns/pods/p/binding", False, "create"),
        ("GET", "/api/v1/namespaces/ns/pods/p/binding", False, None),
        ("PUT", "/api/v1/namespaces/ns/finalize", False, "update"),
        ("GET", "/apis/minik8s.io/v1/plans", False, None),
    ],
)
def test_verbs(method: str, path: str, watch: bool, verb: str | None):  # noqa: FBT001 - a parameter of the table
    target = parse(path)
    assert target is not None
    assert verb_of(method, target, watch=watch) == verb


def test_what_this_version_does_not_serve_of_a_pod_says_what_to_do():
    message = unserved("/api/v1/namespaces/default/pods/web/log").message
    assert message.startswith("pods/log: logs are not served")
    assert "docker logs" in message
    assert unserved("/api/v1/namespaces/default/pods/web/nope").message == unserved("/api/v1/nope").message
    # kubectl debug reads the details of a 404 whether there are any or not
    assert "details" in unserved("/api/v1/nope").status()
