"""kubectl logs against a real API server, gateway and dockerd."""

from __future__ import annotations

import re
import subprocess
import threading
import time

from minik8s_modules.api.kinds import POD
from tests.integration.streams.conftest import Streaming

COUNT = "for i in 1 2 3; do echo line $i; done; sleep 0.2; echo oops >&2; sleep 3600"


def test_the_whole_log_and_parts_of_it(streaming: Streaming) -> None:
    streaming.pod("plain", COUNT)
    whole = "line 1\nline 2\nline 3\noops\n"
    streaming.until(lambda: streaming.kubectl("logs", "plain").stdout == whole)
    assert streaming.kubectl("logs", "plain", "--tail=2").stdout == "line 3\noops\n"
    assert streaming.kubectl("logs", "plain", "--tail=0").stdout == ""
    assert streaming.kubectl("logs", "plain", "--limit-bytes=9").stdout == "line 1\nli"
    stamped = streaming.kubectl("logs", "plain", "--timestamps", "--tail=1").stdout
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z oops\n", stamped)


def test_since_leaves_out_what_is_older(streaming: Streaming) -> None:
    streaming.pod("aging", "echo old; sleep 12; echo new; sleep 3600")
    streaming.until(lambda: "new" in streaming.kubectl("logs", "aging").stdout)
    assert streaming.kubectl("logs", "aging", "--since=9s").stdout == "new\n"  # asked for within 9 s
    assert streaming.kubectl("logs", "aging", "--since-time=2020-01-01T00:00:00Z").stdout == "old\nnew\n"
    assert streaming.kubectl("logs", "aging", "--since=1h").stdout == "old\nnew\n"


def test_following_ends_with_the_container(streaming: Streaming) -> None:
    streaming.pod("short", "for i in 1 2 3 4; do echo tick $i; sleep 0.3; done")
    began = time.monotonic()
    done = streaming.kubectl("logs", "-f", "short")
    assert done.stdout == "tick 1\ntick 2\ntick 3\ntick 4\n"
    assert time.monotonic() - began < 60


def test_previous_is_the_earlier_attempt(streaming: Streaming) -> None:
    pod = streaming.pod("again", "echo attempt $(cat /proc/sys/kernel/random/uuid); exit 1")
    streaming.until(lambda: not streaming.inspect(pod)["State"]["Running"])
    pod = streaming.report(pod)
    first = streaming.kubectl("logs", "again").stdout
    done = streaming.kubectl("logs", "again", "--previous", check=False)
    assert done.returncode == 1
    assert 'previous terminated container "app" in pod "again" not found' in done.stderr
    streaming.restart(pod)
    assert streaming.kubectl("logs", "again", "--previous").stdout == first
    assert streaming.until(lambda: streaming.kubectl("logs", "again").stdout) != first


def test_a_container_must_be_named_when_there_are_several(streaming: Streaming) -> None:
    streaming.pod("pair", "echo first; sleep 3600", "echo second; sleep 3600")
    answer = streaming.server.request("GET", "/api/v1/namespaces/default/pods/pair/log")
    assert (answer.code, answer.json["reason"]) == (400, "BadRequest")
    assert answer.json["message"] == "a container name must be specified for pod pair, choose one of: [app app1]"
    streaming.until(lambda: streaming.kubectl("logs", "pair", "-c", "app1").stdout == "second\n")

    def everything() -> list[str]:
        return sorted(streaming.kubectl("logs", "pair", "--all-containers", "--prefix").stdout.splitlines())

    streaming.until(lambda: everything() == ["[pod/pair/app1] second", "[pod/pair/app] first"])
    wrong = streaming.kubectl("logs", "pair", "-c", "nope", check=False)
    assert "container nope is not valid for pod pair" in wrong.stderr


def test_a_container_that_waits_has_no_log(streaming: Streaming) -> None:
    pod = streaming.pod("waits", "sleep 3600")
    waiting = [{"name": "app", "image": "i", "imageID": "", "ready": False, "restartCount": 0,
                "state": {"waiting": {"reason": "ContainerCreating"}}, "lastState": {}}]  # fmt: skip
    streaming.admin.patch(POD, "waits", "default", {"status": {"containerStatuses": waiting}}, subresource="status")
    done = streaming.kubectl("logs", "waits", check=False)
    assert done.returncode == 1
    why = 'Error from server (BadRequest): container "app" in pod "waits" is waiting to start: ContainerCreating'
    assert why in done.stderr.splitlines()
    streaming.report(pod)


def test_the_log_of_a_terminal_is_plain(streaming: Streaming) -> None:
    streaming.pod("tty", "echo seen; sleep 3600", tty=True)
    path = "/api/v1/namespaces/default/pods/tty/log"
    assert streaming.until(lambda: streaming.server.request("GET", path).body) == b"seen\r\n"


def test_one_stream_alone(streaming: Streaming) -> None:
    streaming.pod("both", "echo out; echo err >&2; sleep 3600")
    path = "/api/v1/namespaces/default/pods/both/log"
    streaming.until(lambda: len(streaming.server.request("GET", path).body) == 8)
    assert streaming.server.request("GET", f"{path}?stream=Stdout").body == b"out\n"
    assert streaming.server.request("GET", f"{path}?stream=Stderr").body == b"err\n"


def test_options_out_of_range_are_refused(streaming: Streaming) -> None:
    streaming.pod("options", "sleep 3600")
    path = "/api/v1/namespaces/default/pods/options/log"
    for query, code, each in (
        ("tailLines=-1", 422, "tailLines: Invalid value: -1: must be greater than or equal to 0"),
        ("limitBytes=0", 422, "limitBytes: Invalid value: 0: must be greater than 0"),
        ("tailLines=x", 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("sinceSeconds=5&sinceTime=2020-01-01T00:00:00Z", 422, "at most one of `sinceTime` or `sinceSeconds`"),
        ("insecureSkipTLSVerifyBackend=true", 400, "is not supported"),
    ):
        answer = streaming.server.request("GET", f"{path}?{query}")
        assert answer.code == code, answer
        assert each in answer.json["message"]


def test_who_may_not_read_logs_is_refused(streaming: Streaming) -> None:
    streaming.pod("closed", "sleep 3600")
    other = streaming.server.identity("mallory")
    for what, method in (("log", "GET"), ("exec", "POST"), ("exec", "GET"), ("portforward", "POST")):
        answer = streaming.server.request(method, f"/api/v1/namespaces/default/pods/closed/{what}", client=other)
        assert answer.code == 403
        verb = "create" if method == "POST" else "get"
        assert f'cannot {verb} resource "pods/{what}"' in answer.json["message"]
    answer = streaming.server.request("GET", "/api/v1/namespaces/default/pods/closed/exec?command=x&stdout=true")
    assert (answer.code, answer.json["message"]) == (400, "Upgrade request required")


# 24 MB of text; Docker begins a new file every 10 MB and keeps five
WRITE = (
    'awk \'BEGIN { t = sprintf("%980s", ""); for (i = 0; i < 24000; i++)'
    ' { printf "%08d%s\\n", i, t; if (i % 2000 == 0) system("sleep 0.1") } }\'; echo over'
)
WRITTEN = [*(f"{number:08d}" for number in range(24000)), "over"]


def test_following_goes_on_over_rotations(streaming: Streaming) -> None:
    pod = streaming.pod("rotating", WRITE)
    followed = streaming.kubectl("logs", "-f", "rotating").stdout.splitlines()
    assert [line[:8] for line in followed] == WRITTEN
    limits = streaming.inspect(pod)["HostConfig"]["LogConfig"]
    assert limits == {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "5"}}


def test_who_reads_only_after_two_rotations_is_told_all(streaming: Streaming) -> None:
    """Docker's follower gives the rest of its file, and then what is in the last one; the file between is lost."""
    much = WRITE.replace("24000", "43000")  # what lies between Docker and the reader has room for many megabytes
    streaming.pod("unread", f"echo begun; until [ -e /go ]; do sleep 0.1; done; {much}; touch /written; sleep 3600")
    kubectl = streaming.popen("logs", "-f", "unread", stderr=subprocess.STDOUT)
    timer = threading.Timer(240, kubectl.kill)
    timer.start()
    try:
        assert kubectl.stdout is not None
        assert kubectl.stdout.readline() == b"begun\n"
        streaming.kubectl("exec", "unread", "--", "touch", "/go")
        streaming.until(
            lambda: streaming.kubectl("exec", "unread", "--", "test", "-e", "/written", check=False).returncode == 0,
            240,
        )
        followed: list[bytes] = []
        while not followed or followed[-1] not in {b"over", b""}:
            followed.append(kubectl.stdout.readline()[:8].strip())
        assert [line.decode() for line in followed] == [*(f"{number:08d}" for number in range(43000)), "over"]
    finally:
        timer.cancel()
        kubectl.kill()
        kubectl.communicate()
