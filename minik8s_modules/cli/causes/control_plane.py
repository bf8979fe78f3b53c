"""Why the API server itself does not answer, or not as it should: without etcd it still shows what it knew before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import mktime_tz, parsedate_tz
from typing import NamedTuple

from minik8s_modules.api.errors import StatusError
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.cli.causes.faults import Fault
from minik8s_modules.cli.causes.nodes import SKEW, off
from minik8s_modules.client.api import ApiClient

_DAEMONS = "'minik8s-*'"
_SERVER_ERROR = 500


class Server(NamedTuple):
    """How the API server is.

    Attributes:
        silence: why it answers nobody, or from memory alone; None where it is well.
        remarks: what makes it slow, or its answers look wrong.
        now: the time by its clock, which Leases and certificates are judged by; None where it is not known.
    """

    silence: Fault | None = None
    remarks: tuple[Fault, ...] = ()
    now: datetime | None = None


def asked(client: ApiClient) -> Server:
    """Return how the API server is."""
    began = datetime.now(UTC)
    try:
        answer = client.raw("GET", "/readyz?verbose")
    except (StatusError, TemporaryError) as error:
        text = f"the API server does not answer: {error}"
        return Server(Fault(text, f"systemctl status {_DAEMONS} || supervisorctl status"))
    lines = answer.data.decode("utf-8", "replace").splitlines()
    now = _time_of(str(answer.headers.get("Date") or ""))
    remarks = (*_slow(lines), *(_own_clock(began, now) if now else ()))
    return Server(_not_ready(answer.status, lines), remarks, now)


def _not_ready(status: int, lines: list[str]) -> Fault | None:
    if status < _SERVER_ERROR:
        return None
    failed = "; ".join(line.removeprefix("[-]") for line in lines if line.startswith("[-]"))
    etcd = "minik8s-etcd" if "etcd" in failed else "minik8s-apiserver"
    return Fault(f"the API server is not ready: {failed or f'it answers {status}'}", _log_of(etcd))


def _log_of(daemon: str) -> str:
    return f"journalctl -u {daemon} -n 20 || tail -n 20 /var/log/minik8s/{daemon}.log"


def _slow(lines: list[str]) -> list[Fault]:
    """Return what the checks that pass remark (apiserver/serving/health.py)."""
    remarks = [line.removeprefix("[+]").partition(" ok: ") for line in lines if line.startswith("[+]")]
    return [Fault(f"{check} is {remark}", _log_of(f"minik8s-{check}")) for check, _, remark in remarks if remark]


def _time_of(date: str) -> datetime | None:
    parsed = parsedate_tz(date)
    return datetime.fromtimestamp(mktime_tz(parsed), UTC) if parsed else None


def _own_clock(began: datetime, now: datetime) -> list[Fault]:
    """Return that this machine's clock is off; ``now`` is the server's time, cut to seconds, after ``began``."""
    ended = datetime.now(UTC)
    behind = max(now - ended, timedelta(0)) or min(now + timedelta(seconds=1) - began, timedelta(0))
    if abs(behind) <= SKEW:
        return []
    return [Fault(f"this machine's clock is {off(-behind)} the API server's", "timedatectl status || date -u")]
