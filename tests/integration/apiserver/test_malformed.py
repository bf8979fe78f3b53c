"""Whatever comes in: a clear 4xx with a Status, never a 500, and nothing stored by a refused write."""

from __future__ import annotations

import json
import socket
import time

import pytest

from tests.integration.apiserver.conftest import Namespace, pod
from tests.support.apiserver import Answer, ApiServerProcess

YAML = "application/yaml"
JSON = "application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
BOMB = "\n".join(
    ["a0: &a0 [x,x,x,x,x,x,x,x,x]", *(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))]
)

BODIES = {
    "no JSON": (JSON, b"{", 400),
    "an empty body": (JSON, b"", 400),
    "a list": (JSON, b"[]", 400),
    "null": (JSON, b"null", 400),
    "a string": (JSON, b'"x"', 400),
    "broken UTF-8": (JSON, b'{"metadata": {"name": "\xff"}}', 400),
    "a lone surrogate": (JSON, b'{"metadata": {"name": "\\ud800"}}', 400),
    "deep nesting": (JSON, b'{"data":' + b"[" * 900 + b"]" * 900 + b"}", 400),
    "very deep nesting": (JSON, b"[" * 100_000, 400),
    "metadata that is a list": (JSON, b'{"metadata": []}', 400),
    "metadata that is a text": (JSON, b'{"metadata": "x"}', 400),
    "a name that is a number": (JSON, b'{"metadata": {"name": 5}}', 400),
    "labels that are a list": (JSON, b'{"metadata": {"name": "a", "labels": []}}', 400),
    "data that is a number": (JSON, b'{"metadata": {"name": "a"}, "data": 3}', 400),
    "no name": (JSON, b"{}", 422),
    "a name with a slash": (JSON, b'{"metadata": {"name": "a/b"}}', 422),
    "a name that climbs": (JSON, b'{"metadata": {"name": "../../x"}}', 422),
    "a name with a newline": (JSON, b'{"metadata": {"name": "a\\nb"}}', 422),
    "a name with NUL": (JSON, b'{"metadata": {"name": "a\\u0000"}}', 422),
    "a long name": (JSON, b'{"metadata": {"name": "' + b"a" * 300 + b'"}}', 422),
    "another kind": (JSON, b'{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}', 400),
    "another version": (JSON, b'{"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "a"}}', 400),
    "a kind that is a map": (JSON, b'{"kind": {}, "metadata": {"name": "a"}}', 400),
    "another namespace": (JSON, b'{"metadata": {"name": "a", "namespace": "kube-system"}}', 400),
    "a resourceVersion": (JSON, b'{"metadata": {"name": "a", "resourceVersion": "7"}}', 400),
    "broken YAML": (YAML, b"a: [", 400),
    "a YAML tab": (YAML, b"a:\n\t- b", 400),
    "two YAML documents": (YAML, b"metadata: {name: a}\n---\nmetadata: {name: b}\n", 400),
    "a YAML bomb": (YAML, BOMB.encode(), 400),
    "deep YAML": (YAML, b"[" * 50_000, 400),
    "a YAML object tag": (YAML, b"!!python/object/apply:os.system [id]", 400),
    "a YAML number key": (YAML, b"metadata: {name: a}\ndata: {1: x}", 400),
    "a YAML NaN": (YAML, b"metadata: {name: a}\ndata: {x: .nan}", 400),
    "a YAML key given twice": (YAML, b"metadata: {name: a}\ndata: {x: a, x: b}", 400),
    "binary YAML": (YAML, b"metadata: {name: a}\ndata: {x: !!binary aGk=}", 400),
    "no protobuf": (PROTOBUF, b"xyz", 400),
    "cut protobuf": (PROTOBUF, b"k8s\x00\x0a\x10\x0a\x02v1", 400),
    "a media type nobody reads": ("text/plain", b"hello", 415),
    "a 2 MB object": (JSON, json.dumps({"metadata": {"name": "a"}, "data": {"x": "y" * 2_000_000}}).encode(), 413),
    "a 5 MB body": (JSON, b"x" * 5_000_000, 413),
}  # fmt: skip


def _is_status(answer: Answer) -> bool:
    return bool(answer.json["kind"] == "Status" and answer.json["status"] == "Failure" and answer.json["message"])


@pytest.mark.parametrize("case", BODIES)
def test_a_body_that_cannot_be_used_is_refused(namespace: Namespace, case: str):
    media, body, code = BODIES[case]
    path, headers = namespace.path("configmaps"), {"Content-Type": media}
    answer = namespace.server.request("POST", path, body, headers=headers)
    assert answer.code == code, answer.body
    assert _is_status(answer)
    listed = namespace.server.request("GET", path).json["items"]
    assert listed == []


@pytest.mark.parametrize("media", [JSON, YAML, "application/merge-patch+json", "application/json-patch+json"])
@pytest.mark.parametrize("case", ["no JSON", "a list", "null", "a string", "deep nesting", "metadata that is a list"])
def test_patches_and_updates_that_cannot_be_used_change_nothing(namespace: Namespace, media: str, case: str):
    before = namespace.create("a", data={"k": "v"}).json
    body = BODIES[case][1]
    path, headers = namespace.path("configmaps", "a"), {"Content-Type": media}
    for method in ("PUT", "PATCH"):
        answer = namespace.server.request(method, path, body, headers=headers)
        # an empty list is a JSON patch without operations, which is no error
        assert 400 <= answer.code < 500 or (case == "a list" and "json-patch" in media), answer.body
    assert namespace.get("a").json == before


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": []},
        {"containers": "x"},
        {"containers": [{"name": "c"}]},
        {"containers": [{"name": "C!", "image": "x"}]},
        {"containers": [{"name": "c", "image": "x"}], "terminationGracePeriodSeconds": "soon"},
        {"containers": [{"name": "c", "image": "x", "resources": {"limits": {"memory": "lots"}}}]},
        {"containers": [{"name": "c", "image": "x", "ports": [{"containerPort": 99999999999}]}]},
        {"containers": [None]},
        {"containers": [{"name": "c", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "../../etc"}]}]},
        {"containers": [{"name": "c", "image": "x"}], "volumes": [{"name": "v", "hostPath": {"path": "../x"}}]},
    ],
)
def test_pods_that_make_no_sense_are_refused(namespace: Namespace, spec: object):
    answer = namespace.server.request("POST", namespace.path("pods"), {"metadata": {"name": "a"}, "spec": spec})
    assert answer.code in {400, 422}, answer.body
    assert _is_status(answer)
    assert namespace.get("a", "pods").code == 404


def test_templates_stay_literal(namespace: Namespace):
    text = "{{ lookup('pipe','id') }} {% raw %}"
    assert namespace.create("a", data={"k": text}).json["data"]["k"] == text


def test_unknown_fields_are_refused_warned_about_or_ignored(namespace: Namespace):
    body = {"metadata": {"name": "a"}, "spec": {**pod("a")["spec"], "restartPolicies": "Never"}}
    path = namespace.path("pods") + "?dryRun=All&fieldValidation="
    strict = namespace.server.request("POST", path + "Strict", body)
    assert (strict.code, strict.json["message"]) == (
        400,
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.restartPolicies"',
    )
    warned = namespace.server.request("POST", path + "Warn", body)
    assert warned.code == 201
    assert 'unknown field \\"spec.restartPolicies\\"' in warned.headers["warning"]
    assert "warning" not in namespace.server.request("POST", path + "Ignore", body).headers


def test_fields_given_twice_are_refused_or_warned_about(namespace: Namespace):
    body = b'{"metadata": {"name": "a"}, "data": {"k": "v", "k": "w"}}'
    path = namespace.path("configmaps") + "?fieldValidation="
    strict = namespace.server.request("POST", path + "Strict", body)
    assert (strict.code, 'duplicate field "k"' in strict.json["message"]) == (400, True)
    assert "duplicate field" in namespace.server.request("POST", path + "Warn", body).headers["warning"]


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/api/v1/namespaces/default/pods/..%2f..%2fx", 404),
        ("GET", "/api/v1/namespaces/../nodes", 404),
        ("GET", "/api/v1/namespaces//pods", 404),
        ("GET", "/api/v1/unicorns", 404),
        ("GET", "/apis/example.com/v1/unicorns", 404),
        ("GET", "/api/v1/namespaces/default/pods/a/b/c/d", 404),
        ("GET", "/api/v1/pods/a", 404),
        ("GET", "/nothing", 404),
        ("POST", "/api/v1/pods", 405),
        ("DELETE", "/api/v1/pods", 405),
        ("PUT", "/api/v1/namespaces/default/pods", 405),
        ("PATCH", "/api/v1/nodes", 405),
        ("DELETE", "/api/v1/namespaces", 405),
        ("BREW", "/api/v1/nodes", 405),
        ("GET", "/apis/minik8s.io/v1/plans", 405),
        ("POST", "/api", 405),
        ("POST", "/version", 405),
    ],
)
def test_paths_and_methods_that_serve_nothing(server: ApiServerProcess, method: str, path: str, code: int):
    answer = server.request(method, path, {} if method in {"POST", "PUT", "PATCH"} else None)
    assert answer.code == code, answer.body
    assert _is_status(answer)


@pytest.mark.parametrize("query", ["dryRun=Some", "fieldValidation=Maybe", "fieldManager=" + "m" * 200])
def test_write_options_that_are_not_served_are_refused(namespace: Namespace, query: str):
    path = namespace.path("configmaps") + "?" + query
    assert namespace.server.request("POST", path, {"metadata": {"name": "a"}}).code == 400
    assert namespace.get("a").code == 404


def _raw(server: ApiServerProcess, data: bytes) -> socket.socket:
    sock = server.context(server.admin).wrap_socket(
        socket.create_connection(("127.0.0.1", server.port)), server_hostname="localhost"
    )
    sock.sendall(data)
    return sock


def test_a_body_that_is_cut_off_stores_nothing(namespace: Namespace):
    body = b'{"metadata": {"name": "a"}}'
    head = f"POST {namespace.path('configmaps')} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body) + 50}\r\n\r\n"
    sock = _raw(namespace.server, head.encode() + body)
    sock.close()
    chunked = f"POST {namespace.path('configmaps')} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    sock = _raw(namespace.server, chunked.encode() + b"1b\r\n" + body + b"\r\n")
    sock.close()
    time.sleep(0.3)
    assert namespace.server.request("GET", namespace.path("configmaps")).json["items"] == []


def test_a_chunked_body_is_read(namespace: Namespace):
    connection = namespace.server.connection()
    parts = [b'{"metadata": ', b'{"name": "a"}}']
    headers = {"Content-Type": JSON}
    connection.request("POST", namespace.path("configmaps"), iter(parts), headers, encode_chunked=True)
    assert connection.getresponse().status == 201
    connection.close()


def test_slow_clients_do_not_hold_up_others(server: ApiServerProcess):
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
    slow = [_raw(server, b"GET /api/v1/nod") for _ in range(40)]
    began = time.monotonic()
    for _ in range(5):
        assert server.request("GET", "/api/v1/nodes").code == 200
    assert time.monotonic() - began < 9, "those who are slow have 10 s"
    for sock in (*idle, *slow):
        sock.close()


def test_garbage_instead_of_tls_hurts_nobody(server: ApiServerProcess):
    for data in (b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01\x00\x00", b"\x00" * 1000):
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            sock.sendall(data)
    assert server.request("GET", "/readyz").code == 200
