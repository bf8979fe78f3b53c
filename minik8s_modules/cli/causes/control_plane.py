"""Why the API server itself does not answer, or not as it should: without etcd it still shows what it knew before."""

from __future__ import annotations

from minik8s_modules.api.errors import StatusError
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.cli.causes.faults import Fault
from minik8s_modules.client.api import ApiClient

_DAEMONS = "'minik8s-*'"
_SERVER_ERROR = 500


def silence(client: ApiClient) -> Fault | None:
    """Return why the API server answers nobody, None where it does."""
    try:
        answer = client.raw("GET", "/readyz?verbose")
    except (StatusError, TemporaryError) as error:
        told = f"the API server does not answer: {error}"
        return Fault(told, f"systemctl status {_DAEMONS} || supervisorctl status")
    if answer.status < _SERVER_ERROR:
        return None
    lines = answer.data.decode("utf-8", "replace").splitlines()
    failed = "; ".join(line.removeprefix("[-]") for line in lines if line.startswith("[-]"))
    etcd = "minik8s-etcd" if "etcd" in failed else "minik8s-apiserver"
    told = f"the API server is not ready: {failed or f'it answers {answer.status}'}"
    return Fault(told, f"journalctl -u {etcd} -n 20 || tail -n 20 /var/log/minik8s/{etcd}.log")
