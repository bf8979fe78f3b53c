"""A real Envoy with the bootstrap of sidecars and Gateways: who reaches the Pod's address gets its statistics alone.

The administration behind them could end the Envoy, and shows its configuration, the keys of certificates among it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.mesh.resources import connection_manager
from tests.support.docker.envoy import ROLE, envoy_program
from tests.support.waiting import until

WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 60
NAMESPACE, DEVICE = f"mk8t-stats-{WORKER}", f"mst{WORKER}"
HERE, THERE = f"198.19.{100 + WORKER}.1", f"198.19.{100 + WORKER}.2"
STATISTICS, SERVICE = 15090, 9080
PATH = "/stats/prometheus"
GET = "GET {} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{}\r\n"


def run(*words: str, check: bool = True) -> None:
    subprocess.run(words, check=check, capture_output=True)


def asked(request: str, port: int = STATISTICS) -> str:
    """Return all that is answered; "" where the connection is refused or ended."""
    try:
        with socket.create_connection((THERE, port), timeout=30) as connection:
            connection.sendall(request.encode("latin-1"))
            answer = b""
            while received := connection.recv(65536):
                answer += received
    except ConnectionError:
        return ""
    return answer.decode()


def get(path: str, headers: str = "", port: int = STATISTICS) -> str:
    return asked(GET.format(path, headers), port)


def code(answer: str) -> str:
    return answer.partition("\r\n")[0].partition(" ")[2][:3]


def configuration(folder: str) -> dict[str, Any]:
    """Return the bootstrap, which waits for no pilot, with a Service as a pilot would tell it."""
    for file in ("ca.crt", "token"):
        Path(folder, file).write_text("")
    text = (ROLE / "files/bootstrap.yaml").read_text()
    whole: dict[str, Any] = yaml.safe_load(text.replace("/var/run/secrets/kubernetes.io/serviceaccount", folder))
    for each in ("lds_config", "cds_config"):
        whole["dynamic_resources"][each]["initial_fetch_timeout"] = "0.1s"
    name = f"reviews.shop:{SERVICE}"
    failing = {"match": {"path": "/failing"}, "direct_response": {"status": 503}}
    leading = {"match": {"prefix": "/"}, "route": {"cluster": name}}
    http = connection_manager(name, [])
    del http["rds"]
    http["route_config"] = {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [failing, leading]}]}
    address = {"socket_address": {"address": "0.0.0.0", "port_value": SERVICE}}
    chains = [{"filters": [{"name": "http", "typed_config": http}]}]
    whole["static_resources"]["listeners"].append({"name": name, "address": address, "filter_chains": chains})
    whole["static_resources"]["clusters"].append({"name": name, "type": "STATIC"})
    return whole


@pytest.fixture(scope="module", autouse=True)
def envoy() -> Iterator[subprocess.Popen[bytes]]:
    """Run one in a network of its own, as a Pod's."""
    run("ip", "netns", "del", NAMESPACE, check=False)  # of a run that was killed
    inside = ("ip", "netns", "exec", NAMESPACE)
    run("ip", "netns", "add", NAMESPACE)
    run("ip", "link", "add", DEVICE, "type", "veth", "peer", "name", "eth0", "netns", NAMESPACE)
    run("ip", "addr", "add", f"{HERE}/30", "dev", DEVICE)
    run("ip", "link", "set", DEVICE, "up")
    for words in (f"addr add {THERE}/30 dev eth0", "link set lo up", "link set eth0 up"):
        run(*inside, "ip", *words.split())
    with tempfile.TemporaryDirectory(prefix="mk8t-stats-") as folder:
        file = Path(folder, "bootstrap.yaml")
        file.write_text(yaml.safe_dump(configuration(folder)))
        Path(folder).chmod(0o755)
        options = ["--config-path", str(file), "--concurrency", "1", "--use-dynamic-base-id", "--log-level", "error"]
        argv = [*inside, "setpriv", "--reuid", "1337", "--clear-groups", str(envoy_program()), *options]
        process = subprocess.Popen(argv)
        until(lambda: process.poll() is not None or code(get(PATH)) == "200", 120)
        assert process.poll() is None
        yield process
        process.kill()
        process.wait()
    run("ip", "netns", "del", NAMESPACE)


def test_statistics_are_told_by_service_and_nothing_else_is():
    for path in ("/", "/failing"):
        assert code(get(path, port=SERVICE)) == "503"
    until(lambda: "envoy_http_downstream_rq_time_bucket" in get(PATH), 120)  # histograms are merged each five seconds
    body = get(PATH)
    of_service = 'service="reviews",service_namespace="shop",service_port="9080"'
    labels = [line for line in body.splitlines() if line.startswith("envoy_http_downstream_rq{")]
    assert [sorted(each[25:].partition("}")[0].split(",")) for each in labels] == [
        sorted(f'code_class="5xx",{of_service}'.split(","))
    ]
    assert labels[0].endswith(" 2")
    of_cluster = [line for line in body.splitlines() if line.startswith("envoy_cluster_upstream_rq{")]
    assert [set(each[26:].partition("}")[0].split(",")) for each in of_cluster] == [
        {'code_class="5xx"', *of_service.split(",")}
    ]
    told = {line.partition("{")[0].rpartition("_bucket")[0] or line.partition("{")[0] for line in body.splitlines()
            if line.startswith("envoy_")}  # fmt: skip
    assert {name for name in told if "_rq" not in name} <= {"envoy_control_plane_connected_state"}


@pytest.mark.parametrize(
    "path",
    [
        "/", "/quitquitquit", "/config_dump", "/stats", "/stats/", "/clusters", "/certs", "/memory", "/ready",
        "/listeners",
        f"{PATH}/", f"{PATH}?", f"{PATH}?filter=.", f"/{PATH}", "/stats//prometheus", f"{PATH}/../../quitquitquit",
        "/stats/prometheus/..;/config_dump", f"{PATH}%2f..%2f..%2fquitquitquit", "/stats%2fprometheus",
        "/%73tats/prometheus",
        f"{PATH}#/../../config_dump", f"{PATH}\\..\\..\\config_dump", "/STATS/PROMETHEUS", f"{PATH};a", "*",
        f"{PATH}%00",
        "http://127.0.0.1:15000/config_dump", "http://127.0.0.1:15000//stats/prometheus", "127.0.0.1:15000",
    ],
)  # fmt: skip
def test_no_other_path_is_answered(path: str, envoy: subprocess.Popen[bytes]):
    answer = get(path)
    assert code(answer) in {"400", "404"}, answer
    assert "envoy_" not in answer
    assert envoy.poll() is None


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "PRI", "get"])
def test_no_other_method_is_answered(method: str):
    for path in (PATH, "/quitquitquit", "127.0.0.1:15000"):
        request = f"{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        assert code(asked(request)) in {"400", "403", "404", "405"}


@pytest.mark.parametrize(
    "headers",
    [
        "x-envoy-original-path: /quitquitquit\r\n",
        "x-original-url: /config_dump\r\nx-rewrite-url: /config_dump\r\n",
        "x-http-method-override: POST\r\n",
        "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
        "x-envoy-upstream-alt-stat-name: reviews.shop_1\r\nx-envoy-internal: true\r\n",
        "x-forwarded-for: 127.0.0.1\r\nx-envoy-upstream-alt-stat-name: a\r\n",
    ],
)
def test_headers_lead_nowhere_else_and_make_no_series(headers: str):
    answer = get(PATH, headers)
    assert code(answer) in {"200", "400", "403"}
    assert "configs" not in answer
    assert "administration" not in get(PATH)
    assert "shop_1" not in get(PATH)
    assert 'service_port="1"' not in get(PATH)


def test_a_second_request_behind_the_first_is_another_request(envoy: subprocess.Popen[bytes]):
    hidden = "POST /quitquitquit HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
    for lengths in (
        f"Content-Length: {len(hidden)}\r\n",
        f"Content-Length: 0\r\nContent-Length: {len(hidden)}\r\n",
        f"Content-Length: {len(hidden)}\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
    ):
        asked(f"GET {PATH} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lengths}\r\n{hidden}")
        assert envoy.poll() is None
        assert code(get(PATH)) == "200"


def test_the_administration_itself_is_not_reached():
    assert get("/ready", port=15000) == ""
