"""How streams end, and that one does not hold up another: slow readers, fifty at once, deaths on every side."""

from __future__ import annotations

import http.client
import os
import ssl
import time

import psutil
import pytest

from tests.integration.streams.conftest import Streaming

ENDLESS = "while true; do echo 0123456789012345678901234567890123456789012345678901234567890123456789; done"


def memory_mib(pid: int) -> float:
    return psutil.Process(pid).memory_info().rss / 2**20


def worker(streaming: Streaming) -> int:
    """Return the pid of the API server's worker."""
    return psutil.Process(streaming.server.pid).children()[0].pid


def open_files(streaming: Streaming) -> tuple[int, int]:
    """Return the numbers of open files of the process of streams, and of the gateway."""
    assert streaming.parser is not None
    assert streaming.gateway is not None
    return psutil.Process(streaming.parser.pid).num_fds(), psutil.Process(streaming.gateway.pid).num_fds()


def resting(streaming: Streaming) -> tuple[int, int]:
    """Return the same once the numbers have stood still for a second: the gateway of an earlier test has just begun."""
    found, since = open_files(streaming), time.monotonic()
    while time.monotonic() - since < 1.0:
        time.sleep(0.05)
        if (now := open_files(streaming)) != found:
            found, since = now, time.monotonic()
    return found


def settled(streaming: Streaming, before: tuple[int, int]) -> bool:
    parser, gateway = open_files(streaming)
    return parser <= before[0] and gateway <= before[1]


@pytest.fixture(scope="module")
def shell(streaming: Streaming) -> str:
    streaming.pod("hub", "echo here; sleep 3600")
    return "hub"


def test_a_reader_that_does_not_read_stops_its_own_stream_only(streaming: Streaming, shell: str) -> None:
    assert streaming.parser is not None
    slow = [streaming.popen("exec", shell, "--", "sh", "-c", ENDLESS) for _ in range(3)]
    try:
        for process in slow:
            assert process.stdout is not None
            assert os.read(process.stdout.fileno(), 10)
        time.sleep(2)
        before = memory_mib(streaming.parser.pid), memory_mib(worker(streaming))
        began = time.monotonic()
        assert streaming.kubectl("exec", shell, "--", "echo", "quick").stdout == "quick\n"
        assert time.monotonic() - began < 30
        time.sleep(2)
        after = memory_mib(streaming.parser.pid), memory_mib(worker(streaming))
        assert after[0] - before[0] < 8
        assert after[1] - before[1] < 8
        # the processes stand still in write(2): nobody reads
        parser = psutil.Process(streaming.parser.pid)
        streaming.until(lambda: parser.cpu_percent(interval=1.0) < 20, 60)
    finally:
        for process in slow:
            process.kill()
            process.communicate()


def test_fifty_streams_at_once(streaming: Streaming, shell: str) -> None:
    assert streaming.parser is not None
    processes = [streaming.popen("exec", "-i", shell, "--", "cat") for _ in range(50)]
    try:
        for number, process in enumerate(processes):
            assert process.stdin is not None
            process.stdin.write(b"stream %d\n" % number)
            process.stdin.flush()
        for number, process in enumerate(processes):
            assert process.stdout is not None
            assert process.stdout.readline() == b"stream %d\n" % number
        assert psutil.Process(streaming.parser.pid).num_threads() < 20
        assert streaming.server.request("GET", "/metrics").body.count(b"apiserver_streams 50") == 1
    finally:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        codes = [process.wait(30) for process in processes]
        for process in processes:
            process.stdin = None
            process.communicate()
    assert codes == [0] * 50
    streaming.until(lambda: b"apiserver_streams 0.0\n" in streaming.server.request("GET", "/metrics").body)


def test_streams_end_with_their_pod(streaming: Streaming) -> None:
    pod = streaming.pod("mortal", "sleep 3600")
    following = streaming.popen("logs", "-f", "mortal")
    running = streaming.popen("exec", "mortal", "--", "sh", "-c", "echo on; sleep 1000")
    assert running.stdout is not None
    assert running.stdout.readline() == b"on\n"
    streaming.node.docker.kill(streaming.inspect(pod)["Id"], "KILL")
    assert following.wait(60) == 0
    assert running.wait(60) == 137
    following.communicate()
    running.communicate()


def test_a_client_that_goes_away_leaves_nothing(streaming: Streaming, shell: str) -> None:
    noisy = streaming.pod("noisy", ENDLESS + " & sleep 3600")
    open_before = resting(streaming)
    clients = [streaming.popen("logs", "-f", "noisy") for _ in range(3)]
    clients += [streaming.popen("exec", "-i", shell, "--", "cat") for _ in range(3)]
    streaming.until(lambda: b"apiserver_streams 6" in streaming.server.request("GET", "/metrics").body)
    for process in clients:
        process.kill()
        process.communicate()
    streaming.until(lambda: b"apiserver_streams 0.0\n" in streaming.server.request("GET", "/metrics").body)
    streaming.until(lambda: settled(streaming, open_before))
    # its words, and Docker's writing them down, keep both processors busy for as long as it lives
    streaming.node.docker.kill(streaming.inspect(noisy)["Id"], "KILL")


def test_a_dead_gateway_is_told(streaming: Streaming, shell: str) -> None:
    assert streaming.parser is not None
    parser, open_before = streaming.parser.pid, resting(streaming)[0]
    following = streaming.popen("logs", "-f", shell)
    running = streaming.popen("exec", shell, "--", "sh", "-c", "echo on; sleep 1000")
    assert running.stdout is not None
    assert running.stdout.readline() == b"on\n"
    assert following.stdout is not None
    assert following.stdout.readline() == b"here\n"
    streaming.until(lambda: b"apiserver_streams 2" in streaming.server.request("GET", "/metrics").body)
    streaming.kill_gateway()
    try:
        assert running.wait(60) != 0
        assert following.wait(60) != 0
        assert running.communicate()[1].decode().strip().endswith("unexpected EOF")
        assert following.communicate()[1].decode().strip() == "error: unexpected EOF"
        done = streaming.kubectl("logs", shell, check=False)
        assert done.returncode == 1
        assert "the gateway does not answer" in done.stderr
    finally:
        streaming.start_gateway()
    assert streaming.kubectl("exec", shell, "--", "echo", "again").stdout == "again\n"
    streaming.until(lambda: psutil.Process(parser).num_fds() <= open_before)


def test_a_dead_process_of_streams_is_told(streaming: Streaming, shell: str) -> None:
    assert streaming.kubectl("exec", shell, "--", "echo", "on").stdout == "on\n"
    open_before = resting(streaming)[1]
    following = streaming.popen("logs", "-f", shell)
    running = streaming.popen("exec", "-i", shell, "--", "sh", "-c", "echo on; cat; touch /tmp/ended")
    assert running.stdout is not None
    assert running.stdout.readline() == b"on\n"
    assert following.stdout is not None
    assert following.stdout.readline() == b"here\n"
    streaming.until(lambda: b"apiserver_streams 2" in streaming.server.request("GET", "/metrics").body)
    streaming.kill_parser()
    try:
        assert running.wait(60) != 0
        assert following.wait(60) != 0
        assert running.communicate()[1].decode().strip().endswith("unexpected EOF")
        assert following.communicate()[1].decode().strip() == "error: unexpected EOF"
        done = streaming.kubectl("logs", shell, check=False)
        assert done.returncode == 1
        assert f"error dialing backend: gateway https://127.0.0.1:{streaming.port} cannot be reached" in done.stderr
    finally:
        streaming.start_parser()
        streaming.until(streaming.admin_reaches)
    # the command's stdin has ended with the process that held it
    streaming.until(lambda: streaming.kubectl("exec", shell, "--", "ls", "/tmp/ended", check=False).returncode == 0)
    streaming.until(lambda: open_files(streaming)[1] <= open_before)


def test_nobody_but_the_api_server_is_served(streaming: Streaming) -> None:
    other = streaming.authority.issue("other", "system:minik8s:reconciler")
    context = ssl.create_default_context(cafile=str(streaming.authority.ca))
    with pytest.raises(OSError, match=r"."):
        ask(streaming, context)
    context.load_cert_chain(other.cert, other.key)
    status, answer = ask(streaming, context)
    assert status == 403
    assert b"it names system:minik8s:reconciler" in answer


def ask(streaming: Streaming, context: ssl.SSLContext) -> tuple[int, bytes]:
    connection = http.client.HTTPSConnection("127.0.0.1", streaming.port, context=context, timeout=60)
    try:
        connection.request("GET", f"/nodes/{streaming.node.name}/pods/x/log?namespace=default&pod=x")
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_silence_holds_no_thread(streaming: Streaming, shell: str) -> None:
    """A stream costs no thread, on either side."""
    threads = psutil.Process(worker(streaming)).num_threads()
    clients = [streaming.popen("logs", "-f", shell) for _ in range(20)]
    streaming.until(lambda: b"apiserver_streams 20" in streaming.server.request("GET", "/metrics").body)
    assert psutil.Process(worker(streaming)).num_threads() <= threads + 8
    for process in clients:
        process.kill()
        process.communicate()
