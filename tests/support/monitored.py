"""``minik8s-monitoring`` and Prometheus as the role ``monitoring`` runs them, as processes in front of any API server.

with Monitored(folder, Server(url, port, ca, kubeconfig)) as monitored:
    monitored.prometheus.targets("kubelet")

The configuration of Prometheus is the role's own template, read every second.
"""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import yaml
from ansible.plugins.filter.core import to_bool
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.nativetypes import NativeEnvironment

from tests.support.etcd import free_port
from tests.support.pki import Certificate
from tests.support.servers.prometheus import Prometheus

ROLE = Path(__file__).resolve().parents[2] / "roles" / "monitoring"


class Server(NamedTuple):
    """An API server: its port on 127.0.0.1, the kubelets', its authority, and a kubeconfig for minik8s-monitoring."""

    port: int
    kubelet_port: int
    ca: Path
    kubeconfig: Path


class Adapter(NamedTuple):
    """Where custom metrics are served, with what certificate, and the authority of front proxies."""

    address: str
    port: int
    certificate: Certificate
    client_ca: Path


def configuration(server: Server, directory: Path, figures_port: int, **more: Any) -> dict[str, Any]:
    """Return Prometheus' configuration as the role's template makes it of its defaults."""
    environment = Environment(loader=FileSystemLoader(ROLE / "templates"), trim_blocks=True, undefined=StrictUndefined)
    environment.filters["bool"] = to_bool
    (directory / "pki").mkdir(exist_ok=True)
    (directory / "pki" / "ca.crt").write_bytes(server.ca.read_bytes())
    values = {
        **yaml.safe_load((ROLE / "defaults" / "main.yml").read_text()),
        "monitoring_scrape_interval_s": 1,
        "monitoring_config": str(ROLE / "files"),
        "monitoring_directory": str(directory),
        "monitoring_figures_port": figures_port,
        "monitoring_controllers": "127.0.0.1:9",
        "monitoring_scheduler": "127.0.0.1:9",
        "monitoring_pilot": "127.0.0.1:9",
        "monitoring_others": [],
        "minik8s_config_dir": str(directory),
        "minik8s_api_port": server.port,
        "minik8s_kubelet_port": server.kubelet_port,
        "monitoring_server_name": "localhost",
        **more,
    }
    document: dict[str, Any] = yaml.safe_load(environment.get_template("prometheus.yml.j2").render(values))
    return document


class Monitored:
    """See the top of this file; ``more`` are variables of the role."""

    def __init__(
        self, folder: Path, server: Server, serving: Certificate, adapter: Adapter | None = None, **more: Any
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("nodes", "pods", "envoys"):
            (folder / name).mkdir()
        self.log = folder / "monitoring.log"
        self.figures_port = free_port()
        document = configuration(server, folder, self.figures_port, **more)
        jobs = document.pop("scrape_configs")
        self.prometheus = Prometheus(folder / "prometheus", jobs, **document)
        self._config = folder / "monitoring.yml"
        values: dict[str, Any] = {
            "kubeconfig": str(server.kubeconfig),
            "directory": str(folder),
            "token_of": "monitoring/prometheus",
            "metrics": {
                "listen": f"127.0.0.1:{self.figures_port}", "cert": str(serving.cert), "key": str(serving.key),
            },
        }  # fmt: skip
        if adapter is not None:
            values["adapter"] = {
                "listen": f"{adapter.address}:{adapter.port}",
                "cert": str(adapter.certificate.cert),
                "key": str(adapter.certificate.key),
                "client_ca": str(adapter.client_ca),
                "prometheus": self.prometheus.url,
            }
        self._config.write_text(yaml.safe_dump(values))
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Monitored:
        """Start both."""
        self.start()
        self.prometheus.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End both."""
        self.kill9()
        self.prometheus.stop()

    def start(self) -> None:
        """Start minik8s-monitoring."""
        with self.log.open("ab") as log:
            argv = [sys.executable, "-m", "minik8s_modules.monitoring.main", "--config", str(self._config)]
            self.process = subprocess.Popen(argv, stdout=log, stderr=log)

    def kill9(self) -> None:
        """Kill minik8s-monitoring."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)

    def up(self, job: str) -> dict[str, str]:
        """Return the health of a job's targets by what ``instance`` names them."""
        return {each["labels"]["instance"]: each["health"] for each in self.prometheus.targets(job)}


def objects() -> list[dict[str, Any]]:
    """Return the objects that the role makes: account, rights, namespace."""
    variables = yaml.safe_load((ROLE / "vars" / "main.yml").read_text())
    return [*variables["monitoring_objects"]]


def adapter_objects(adapter: Adapter, ca: Path) -> list[dict[str, Any]]:
    """Return what leads API servers to custom metrics, as the role makes it."""
    variables = yaml.safe_load((ROLE / "vars" / "main.yml").read_text())
    authority = base64.b64encode(ca.read_bytes()).decode()
    values = {
        "monitoring_adapter_port": adapter.port,
        "minik8s_node_address": adapter.address,
        "monitoring_authority": authority,
    }
    made: list[dict[str, Any]] = _rendered(variables["monitoring_adapter_objects"], values)
    return made


def _rendered(value: Any, values: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _rendered(each, values) for key, each in value.items()}
    if isinstance(value, list):
        return [_rendered(each, values) for each in value]
    native = NativeEnvironment(undefined=StrictUndefined)
    return native.from_string(value).render(values) if isinstance(value, str) else value
