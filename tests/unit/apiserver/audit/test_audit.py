"""The audit log: what it tells of whom, what it keeps to itself, and that nobody waits for it."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api.kinds import Kind
from minik8s_modules.apiserver.audit import audit_log
from minik8s_modules.apiserver.audit.audit import Entry, event, level_of
from minik8s_modules.apiserver.audit.audit_files import LogFile
from minik8s_modules.apiserver.audit.audit_log import AuditLog
from minik8s_modules.apiserver.authorization.identity import User
from minik8s_modules.apiserver.http.target import Target, parse
from minik8s_modules.base.clock import FakeClock, SystemClock
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.metrics import Registry

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JANE = User("jane", ("people",))


def entry(path: str = "/api/v1/namespaces/default/pods/web", verb: str = "get", **fields: Any) -> Entry:
    given: dict[str, Any] = {
        "audit_id": "1", "verb": verb, "uri": path, "target": parse(path), "user": JANE, "acting": JANE,
        "source": "192.0.2.1", "agent": "test", "code": 200, "message": "", "began": NOW, "ended": NOW, "body": b"",
        "media": "application/json", "notes": {},
    }  # fmt: skip
    return Entry(**{**given, **fields})


def logged(each: Entry) -> Any:
    return event(each, level_of(each))


def test_an_event_says_who_what_where_and_how_it_ended():
    found = logged(entry(code=404, message="not there", notes={"authorization.k8s.io/decision": "allow"}))
    assert found["apiVersion"] == "audit.k8s.io/v1"
    assert (found["stage"], found["level"], found["verb"]) == ("ResponseComplete", "Metadata", "get")
    assert found["user"] == {"username": "jane", "groups": ["people"]}
    assert found["objectRef"] == {"resource": "pods", "namespace": "default", "name": "web", "apiVersion": "v1"}
    assert found["responseStatus"] == {"metadata": {}, "code": 404, "status": "Failure", "message": "not there"}
    assert found["annotations"] == {"authorization.k8s.io/decision": "allow"}
    assert found["requestReceivedTimestamp"] == "2026-01-01T00:00:00.000000Z"
    assert "impersonatedUser" not in found


@pytest.mark.parametrize(
    ("verb", "below", "code", "stage", "status"),
    [
        ("create", "", 201, "ResponseComplete", {"code": 201}),
        ("get", "", 503, "ResponseComplete", {"code": 503}),
        ("get", "", 0, "ResponseComplete", {}),
        ("watch", "", 200, "ResponseStarted", {"code": 200}),
        ("get", "echo", 101, "ResponseStarted", {"code": 101}),
        ("get", "log", 200, "ResponseStarted", {"code": 200}),
    ],
)
def test_what_an_extension_answered_is_told(verb: str, below: str, code: int, stage: str, status: dict[str, int]):
    flunders = Kind("wardle.example.com", "v1", "", "flunders", "", stored=False)
    found = logged(entry(verb=verb, target=Target(flunders, "default", "one", below), code=code))
    assert found["stage"] == stage
    assert found["responseStatus"] == {"metadata": {}, **status}


def test_impersonation_is_told():
    found = logged(entry(acting=User("joe", ())))
    assert (found["user"]["username"], found["impersonatedUser"]["username"]) == ("jane", "joe")


BODY = b'{"kind": "Pod",\n "spec": {}}'


@pytest.mark.parametrize(
    ("path", "body", "kept"),
    [
        ("/api/v1/namespaces/default/pods", BODY, True),
        ("/api/v1/namespaces/default/secrets", b'{"data": {"a": "canary"}}', False),
        ("/api/v1/namespaces/default/configmaps", b'{"kind": "Secret", "data": {"a": "canary"}}', False),
        ("/api/v1/namespaces/default/serviceaccounts/a/token", b"{}", False),
        ("/apis/authentication.k8s.io/v1/tokenreviews", b'{"spec": {"token": "canary"}}', False),
        ("/apis/minik8s.io/v1/plans", b'{"spec": {"objects": []}}', False),
        ("/api/v1/namespaces/default/pods", b"no JSON", False),
    ],
)
def test_bodies_are_told_unless_they_may_hold_a_secret(path: str, body: bytes, *, kept: bool):
    found = logged(entry(path, "create", body=body, message="canary", code=400))
    assert ("requestObject" in found) is kept
    assert found["level"] == ("Request" if kept else "Metadata")
    assert "canary" not in json.dumps({**found, "responseStatus": None}) or kept
    if "secrets" in path or "token" in path:
        assert "canary" not in json.dumps(found)


LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"


@pytest.mark.parametrize(
    ("given", "level"),
    [
        (entry("/healthz"), "None"),
        (entry("/api/v1/namespaces/default/events", "create"), "Metadata"),
        (entry("/api/v1/namespaces/default/events", "create", user=User("system:node:n1", ())), "None"),
        (entry("/api/v1/namespaces/default/events", "delete", user=User("system:node:n1", ())), "Metadata"),
        (entry(LEASE, "update", user=User("system:node:n1", ())), "None"),
        (entry(LEASE, "delete", user=User("system:node:n1", ())), "Request"),
        (entry(LEASE, "update", user=User("system:serviceaccount:default:web", ())), "Request"),
        (entry(LEASE, "get", user=User("system:serviceaccount:default:web", ())), "Metadata"),
        (entry("/healthz/../api", "get"), "None"),
        (entry("/healthz-of-mine", "get"), "Metadata"),
        (entry(verb="list", user=User("system:kube-scheduler", ())), "None"),
        (entry(verb="list", user=User("system:kube-scheduler-of-mine", ())), "Metadata"),
        (entry(verb="update", user=User("system:kube-scheduler", ())), "Request"),
        (entry(verb="list"), "Metadata"),
        (entry("/apis", "get"), "Metadata"),
        (entry(verb="delete", user=None, code=401), "Request"),
    ],
)
def test_the_policy(given: Entry, level: str):
    assert level_of(given) == level


class Files:
    """A log's file and its former ones."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self, suffix: str = "") -> list[Any]:
        """What one of them holds."""
        return [json.loads(line) for line in Path(f"{self.path}{suffix}").read_text().splitlines()]


def opened(path: Path, metrics: Registry, *, max_bytes: int = 100_000, backups: int = 1) -> AuditLog:
    """A log on a file at ``path``."""
    return AuditLog(lambda: LogFile(path, max_bytes, backups, 0, SystemClock()), metrics, SystemClock())


def test_lines_reach_the_file_and_it_is_rotated(tmp_path: Path):
    files, metrics = Files(tmp_path / "audit.log"), Registry()
    log = opened(files.path, metrics, max_bytes=2_000, backups=2)
    log.start()
    for number in range(30):
        log.record(entry(audit_id=str(number)))
    log.stop()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit.log", "audit.log.1", "audit.log.2"]
    kept = [each["auditID"] for suffix in (".2", ".1", "") for each in files.lines(suffix)]
    assert kept == [str(number) for number in range(30 - len(kept), 30)]
    assert all(path.stat().st_size <= 2_000 and path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())


def test_a_log_goes_on_where_the_last_one_ended(tmp_path: Path):
    for _ in range(2):
        log = opened(tmp_path / "audit.log", Registry())
        log.start()
        log.record(entry())
        log.stop()
    assert len(Files(tmp_path / "audit.log").lines()) == 2


class Stuck(LogFile):
    """A file on a disk that hangs until it is let go."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, 100_000, 0, 0, SystemClock())
        self.go = threading.Event()

    def write(self, line: bytes) -> None:
        """Write once the disk goes on."""
        self.go.wait(60)
        super().write(line)

    def write_together(self, lines: Sequence[bytes]) -> bool:
        """Write once the disk goes on."""
        self.go.wait(60)
        return super().write_together(lines)


def test_requests_do_not_wait_for_a_slow_disk(tmp_path: Path):
    stuck, metrics = Stuck(tmp_path / "audit.log"), Registry()
    log = AuditLog(lambda: stuck, metrics, SystemClock(), queued=6)
    log.start()
    for _ in range(20):
        log.record(entry())
    log.record(entry(user=User("joe", ()), verb="delete"))  # another's event finds room
    stuck.go.set()
    log.stop()
    lines = Files(tmp_path / "audit.log").lines()
    listed = [line["annotations"] for line in lines if line["stage"] == "Panic"]
    (lost,) = [each["minik8s.io/audit-events-lost-by-user"] for each in listed]
    assert f'apiserver_audit_error_total{{reason="queue full"}} {lost.removeprefix("jane: ")}' in metrics.text()
    assert len(lines) - 1 + int(lost.removeprefix("jane: ")) == 21
    assert [line["user"]["username"] for line in lines].count("joe") == 1


def test_a_full_disk_loses_events_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    descriptor = os.open("/dev/full", os.O_WRONLY)
    file = LogFile(tmp_path / "audit.log", 100_000, 0, 0, SystemClock())
    os.dup2(descriptor, file._file)  # the disk is full from here on
    os.close(descriptor)
    metrics = Registry()
    log = AuditLog(lambda: file, metrics, SystemClock())
    log.start()
    log.record(entry())
    log.stop()
    assert "audit events are lost" in caplog.text
    assert 'reason="OSError"' in metrics.text()


def test_events_that_have_gathered_are_written_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    written: list[bytes] = []

    def write(_file: int, data: bytes) -> int:
        written.append(data)
        return len(data)

    monkeypatch.setattr(os, "write", write)
    log = opened(tmp_path / "audit.log", Registry())
    for number in range(50):
        log.record(entry(audit_id=str(number)))
    log.start()
    log.stop()
    (told,) = written
    assert [json.loads(line)["auditID"] for line in told.splitlines()] == [str(each) for each in range(50)]


def test_events_gather_until_there_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(audit_log, "_GATHER_S", 3600.0)
    written, came, once = [], threading.Event(), os.write

    def write(file: int, data: bytes) -> int:
        written.append(data)
        came.set()
        return once(file, data)

    monkeypatch.setattr(os, "write", write)
    log = opened(tmp_path / "audit.log", Registry())
    log.start()
    for number in range(audit_log._TOGETHER):
        log.record(entry(user=User(str(number % 2), ())))
        time.sleep(0.001)
    assert came.wait(60)
    log.record(entry())
    log.stop()
    assert [len(each.splitlines()) for each in written] == [audit_log._TOGETHER, 1]


@pytest.mark.parametrize("shared", [False, True])
def test_events_of_which_a_disk_takes_half_are_written_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, shared: bool
):
    once, cuts = os.write, [300]
    monkeypatch.setattr(os, "write", lambda file, data: once(file, data[: cuts.pop()] if cuts else data))
    path = tmp_path / "audit.log"
    log = AuditLog(
        lambda: LogFile(path, 100_000, 1, 0, SystemClock(), shared=shared), metrics := Registry(), SystemClock()
    )
    for number in range(3):
        log.record(entry(audit_id=str(number)))
    log.start()
    log.stop()
    assert [line["auditID"] for line in Files(path).lines()] == ["0", "1", "2"]
    assert "apiserver_audit_event_total 3" in metrics.text()


@pytest.mark.parametrize("shared", [False, True])
def test_a_line_that_may_not_be_taken_back_is_ended_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, shared: bool
):
    """On a full disk, of a file that may only grow (``chattr +a``)."""
    once, cuts = os.write, [300]
    monkeypatch.setattr(os, "write", lambda file, data: once(file, data[: cuts.pop()] if cuts else data))
    monkeypatch.setattr(os, "ftruncate", _not_permitted)
    path = tmp_path / "audit.log"
    log = AuditLog(lambda: LogFile(path, 100_000, 1, 0, SystemClock(), shared=shared), Registry(), SystemClock())
    for number in range(3):
        log.record(entry(audit_id=str(number)))
    log.start()
    log.stop()
    torn, *lines = path.read_bytes().splitlines()
    assert len(torn) == 300
    assert [json.loads(line)["auditID"] for line in lines] == ["0", "1", "2"]


def _not_permitted(_file: int, _size: int) -> None:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def test_a_file_that_begins_after_a_torn_line_begins_with_a_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "audit.log"
    file = LogFile(path, 20, 1, 0, SystemClock())
    file.write(b"first\n")
    with monkeypatch.context() as full:
        write = os.write
        full.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
        with pytest.raises(OSError, match="No space left"):
            file.write(b"second\n")
    file.write(b"a third line\n")
    assert path.read_bytes() == b"a third line\n"
    file.close()


def test_a_path_that_cannot_be_opened_is_named(tmp_path: Path):
    with pytest.raises(ConfigurationError, match=r"audit\.path: cannot open .*nothing"):
        opened(tmp_path / "nothing" / "audit.log", Registry())


def test_what_cannot_be_told_in_full_is_told_without_its_body(tmp_path: Path):
    metrics = Registry()
    log = opened(tmp_path / "audit.log", metrics)
    log.start()
    bodies = [b'{"kind": {}}', b'{"x": ' + b"[" * 254 + b"]" * 254 + b"}", b'{"x": "\\ud800"}', b'{"kind": "Pod"}']
    for number, body in enumerate(bodies):
        log.record(entry("/api/v1/namespaces/default/pods", "create", audit_id=str(number), body=body))
    log.record(entry(audit_id="4", agent="a\ud800\n{}", notes={"odd": 2**70}))
    log.stop()
    lines = Files(tmp_path / "audit.log").lines()
    assert [line["auditID"] for line in lines] == ["0", "1", "2", "3", "4"]
    assert ["requestObject" in line for line in lines] == [True, False, False, True, False]
    assert lines[4]["annotations"]["minik8s.io/audit-error"] == "TypeError"
    assert "apiserver_audit_error_total{" not in metrics.text()


def test_a_file_is_rotated_and_removed_by_age(tmp_path: Path):
    clock = FakeClock(datetime.now(UTC))
    file = LogFile(tmp_path / "audit.log", 100_000, 3, 30, clock)
    file.write(b"first\n")
    file.tidy()
    assert [path.name for path in tmp_path.iterdir()] == ["audit.log"]
    clock.advance(30 * 86400 + 1)
    file.tidy()
    file.write(b"second\n")
    assert (tmp_path / "audit.log").read_bytes() == b"second\n"
    assert not (tmp_path / "audit.log.1").exists()  # its last event is as old
    file.close()


def test_the_age_of_a_file_is_that_of_its_first_event(tmp_path: Path):
    path = tmp_path / "audit.log"
    path.write_text(json.dumps({"requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z"}) + "\nlast\n")
    file = LogFile(path, 100_000, 3, 30, FakeClock(datetime(2026, 2, 1, tzinfo=UTC)))
    file.tidy()
    assert path.read_bytes() == b""
    assert (tmp_path / "audit.log.1").read_text().endswith("last\n")
    file.close()


def test_processes_that_share_a_file_lose_and_cut_no_line_when_it_is_rotated(tmp_path: Path):
    path, clock = tmp_path / "audit.log", SystemClock()
    files = [LogFile(path, 1_000, 100, 30, clock, shared=True) for _ in range(3)]

    def write(number: int) -> None:
        for line in range(200):
            files[number].write(b"%d-%03d %s\n" % (number, line, b"x" * 40))
        files[number].tidy()

    with ThreadPoolExecutor(len(files)) as pool:
        list(pool.map(write, range(len(files))))
    for file in files:
        file.close()
    found = [each for each in tmp_path.iterdir() if each.suffix != ".lock"]
    lines = sorted(line for each in found for line in each.read_bytes().splitlines(keepends=True))
    assert lines == sorted(
        b"%d-%03d %s\n" % (number, line, b"x" * 40) for number in range(len(files)) for line in range(200)
    )
    assert len(found) > 20
    assert all(each.stat().st_size <= 1_000 for each in found)
    assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o600}


def test_a_line_that_others_go_on_after_is_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, clock = tmp_path / "audit.log", SystemClock()
    one, other = (LogFile(path, 100_000, 3, 30, clock, shared=True) for _ in range(2))
    one.write(b"first\n")
    with monkeypatch.context() as full:
        write = os.write
        full.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
        with pytest.raises(OSError, match="No space left"):
            one.write(b"second\n")
    other.write(b"third\n")
    assert path.read_bytes() == b"first\nthird\n"


@pytest.mark.parametrize("shared", [False, True])
def test_a_log_that_cannot_be_opened_for_a_while_is_written_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, shared: bool
):
    path = tmp_path / "audit.log"
    file = LogFile(path, 100, 3, 30, SystemClock(), shared=shared)
    file.write(b"a" * 99 + b"\n")
    with monkeypatch.context() as full:
        full.setattr(LogFile, "_open", _refused)
        for _ in range(2):  # the second finds the file renamed already
            with pytest.raises(OSError, match="Too many open files"):
                file.write(b"b\n")
    client, server = socket.socketpair()  # gets the lowest numbers that are free
    with client, server:
        file.write(b"c\n")
        with pytest.raises(BlockingIOError):
            server.recv(1, socket.MSG_DONTWAIT)
    assert path.read_bytes() == b"c\n"
    assert path.with_name("audit.log.1").read_bytes() == b"a" * 99 + b"\n"
    assert not path.with_name("audit.log.2").exists()
    file.close()


def _refused(_self: LogFile) -> int:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
