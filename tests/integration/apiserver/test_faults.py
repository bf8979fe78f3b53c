"""What happens to the API server when etcd goes, when its worker dies, and when it is told to stop."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import psutil
import pytest

from tests.support.api_watch import ApiWatch
from tests.support.apiserver import ApiServerProcess
from tests.support.etcd import EtcdServer
from tests.support.pki import Authority

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def etcd(tmp_path) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path / "etcd").start()
    yield server
    server.stop()


@pytest.fixture
def api(tmp_path, etcd: EtcdServer) -> Iterator[ApiServerProcess]:
    server = ApiServerProcess(tmp_path / "api", etcd.endpoint).start()
    yield server
    server.stop()


def _eventually(check, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_without_etcd_writes_are_told_to_come_back_and_go_on_when_it_returns(api: ApiServerProcess, etcd: EtcdServer):
    assert api.request("POST", CONFIG_MAPS, {"metadata": {"name": "before"}}).code == 201
    watch = ApiWatch(api, f"{CONFIG_MAPS}?fieldSelector=metadata.name%3Dafter")
    etcd.kill9()
    # the client waits 20 s for an answer: three times as long as the server for etcd, for a busy machine
    answer = api.request("POST", CONFIG_MAPS, {"metadata": {"name": "during"}})
    assert (answer.code, answer.json["reason"]) == (503, "ServiceUnavailable")
    assert int(answer.headers["retry-after"]) >= 1
    ready = api.request("GET", "/readyz")
    assert ready.code == 503
    assert b"[-]etcd failed" in ready.body
    assert api.request("GET", "/livez").code == 200
    etcd.start()
    _eventually(lambda: api.request("POST", CONFIG_MAPS, {"metadata": {"name": "after"}}).code == 201)
    assert watch.names(1) == [("ADDED", "after")]
    assert api.request("GET", f"{CONFIG_MAPS}/before").code == 200
    assert api.request("GET", "/readyz").code == 200
    watch.close()


def test_it_starts_before_etcd_and_becomes_ready_with_it(tmp_path):
    etcd = EtcdServer(tmp_path / "etcd")
    api = ApiServerProcess(tmp_path / "api", etcd.endpoint).start(ready=False)
    try:
        assert api.request("GET", "/readyz").code == 503
        answer = api.request("GET", CONFIG_MAPS)
        assert (answer.code, answer.json["reason"]) == (503, "ServiceUnavailable")
        etcd.start()
        api.wait_for("/readyz")
        assert api.request("GET", "/api/v1/namespaces/default").code == 200
    finally:
        api.stop()
        etcd.stop()


def test_a_watch_of_before_a_restart_goes_on_after_it_with_what_it_missed(api: ApiServerProcess):
    """Else all clients of a large cluster would list everything at the very moment its API server is back."""
    seen = api.request("POST", CONFIG_MAPS, {"metadata": {"name": "a"}}).json["metadata"]["resourceVersion"]
    assert api.request("POST", CONFIG_MAPS, {"metadata": {"name": "b"}}).code == 201
    assert api.request("DELETE", f"{CONFIG_MAPS}/a").code == 200
    api.kill9()
    api.start()
    watch = ApiWatch(api, f"{CONFIG_MAPS}?resourceVersion={seen}")
    assert watch.names(2) == [("ADDED", "b"), ("DELETED", "a")]
    assert api.request("GET", f"{CONFIG_MAPS}/a").code == 404
    watch.close()


def test_a_killed_worker_is_replaced_and_nothing_is_lost(api: ApiServerProcess):
    made = api.request("POST", CONFIG_MAPS, {"metadata": {"name": "a"}}).json
    (worker,) = psutil.Process(api.pid).children()
    os.kill(worker.pid, signal.SIGKILL)
    api.wait_for("/readyz")
    assert api.request("GET", f"{CONFIG_MAPS}/a").json == made


def test_a_watch_resumes_after_a_restart(api: ApiServerProcess):
    revision = api.request("GET", CONFIG_MAPS).json["metadata"]["resourceVersion"]
    api.stop()
    api.start()
    watch = ApiWatch(api, f"{CONFIG_MAPS}?resourceVersion={revision}")
    api.request("POST", CONFIG_MAPS, {"metadata": {"name": "a"}})
    kind, obj = watch.next()
    # the new server's history may begin after the revision: then the client is told to list again
    assert kind == "ERROR" or obj["metadata"]["name"] == "a"
    watch.close()


PATIENT = """
import sys
from minik8s_modules.apiserver import main
from minik8s_modules.apiserver.serving import server
server.GRACE_S = 600
sys.exit(main.main())
"""


def test_it_stops_at_once_and_ends_watches_cleanly(tmp_path, etcd: EtcdServer):
    """Neither an idle connection nor a watch uses up the time for requests that are being answered.

    That time is 10 minutes here, of which `stop` waits one: a bound below the usual 5 s fails on a busy machine.
    """
    api = ApiServerProcess(tmp_path / "api", etcd.endpoint)
    api.program = ("-c", PATIENT)
    api.start()
    watch = ApiWatch(api, CONFIG_MAPS)
    idle = api.connection()
    idle.request("GET", "/version")
    idle.getresponse().read()
    assert api.stop() == 0
    idle.close()
    while not watch.ended():
        continue
    watch.close()


def test_a_hangup_makes_a_new_worker_without_a_refused_connection(api: ApiServerProcess):
    (old,) = psutil.Process(api.pid).children()
    os.kill(api.pid, signal.SIGHUP)

    def replaced() -> bool:
        assert api.request("GET", "/livez").code == 200
        return old.pid not in [child.pid for child in psutil.Process(api.pid).children()]

    _eventually(replaced)
    api.wait_for("/readyz")


def test_the_epoch_stays_over_restarts(api: ApiServerProcess):
    path = "/api/v1/namespaces/kube-system/configmaps/minik8s-cluster"
    epoch = api.request("GET", path).json["data"]["epoch"]
    assert abs(int(epoch) - time.time()) < 60
    api.stop()
    api.start()
    assert api.request("GET", path).json["data"]["epoch"] == epoch


def test_it_reaches_an_etcd_that_asks_for_its_certificate(tmp_path):
    authority = Authority(tmp_path / "etcd-pki", "etcd")
    serving = authority.issue("server", "localhost")
    arguments = ["--cert-file", str(serving.cert), "--key-file", str(serving.key)]
    arguments += ["--trusted-ca-file", str(authority.ca), "--client-cert-auth"]
    etcd = EtcdServer(tmp_path / "etcd-tls", scheme="https", arguments=arguments).start()
    client = authority.issue("apiserver", "apiserver")
    files = {"ca": str(authority.ca), "cert": str(client.cert), "key": str(client.key)}
    api = ApiServerProcess(tmp_path / "api", etcd.endpoint, etcd={"endpoints": [etcd.endpoint], **files})
    try:
        api.start()
        assert api.request("POST", CONFIG_MAPS, {"metadata": {"name": "a"}}).code == 201
    finally:
        api.stop()
        etcd.stop()
