"""README's "Three replicas behind an address, a name and a path", installed: planned, applied, reached and traced."""

from __future__ import annotations

import http.client
import re
from pathlib import Path

import psutil

from minik8s_modules.api.kinds import NAMESPACE
from tests.support.clusters.installed import Installed, is_here

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "web.yml"


def _get(host: str) -> tuple[int, str]:
    """Return code and body of the node's nginx."""
    connection = http.client.HTTPConnection("127.0.0.1", 80, timeout=60)
    try:
        connection.request("GET", "/", headers={"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.read().decode().strip()
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error)
    finally:
        connection.close()


def test_the_example_is_planned_applied_reached_and_traced(cluster: Installed, namespace: str, tmp_path: Path) -> None:
    host = f"{namespace}.example"
    file = tmp_path / "web.yml"
    file.write_text(EXAMPLE.read_text().replace("web.example", host))
    given = ("-n", namespace, "-f", str(file))
    planned = cluster.minik8s("plan", "--full", *given)
    assert planned.returncode == 0, planned.stderr
    assert "as they will be when 3 new pods are ready" in planned.stdout
    assert len(set(re.findall(r"\[\d\]: (10\.\S+:8080)", planned.stdout))) == 3, planned.stdout
    for step in (
        f"services: set {namespace}/web:http",
        f"dns: set service/{namespace}/web",
        f"ingress: write {host}",
    ):
        assert step in planned.stdout, planned.stdout

    cluster.kubectl("apply", *given)
    assert cluster.minik8s("rollout", "status", "deployment/web", "-n", namespace).returncode == 0
    pods = set(cluster.pods(namespace))
    # nginx's workers of before a reload answer for a moment beside the new ones
    cluster.until(lambda: {_get(host)[1] for _ in range(40)} == pods)
    traced = cluster.minik8s("trace", f"{host}/")
    assert traced.returncode == 0, traced.stdout
    for part in ("ingress", f"{namespace}/web", *pods):
        assert part in traced.stdout
    assert cluster.minik8s("why", "-n", namespace, "ingress/web", "service/web").stdout.count("as it should be") == 2
    assert "no changes" in cluster.minik8s("plan", *given).stdout

    # of two namespaces without a HostGrant the first has the host; `default` is granted every host, and would take it
    other = f"{namespace}-other"
    cluster.admin.create(NAMESPACE, {"metadata": {"name": other}})
    try:
        refused = cluster.kubectl("-n", other, "apply", "-f", str(file), "--dry-run=server", check=False)
    finally:
        cluster.drop_namespace(other)
    assert f"host {host} path / is in use by Ingress {namespace}/web" in refused.stderr

    cluster.kubectl("-n", namespace, "scale", "deployment/web", "--replicas=0")
    cluster.until(lambda: "has no endpoints" in _get(host)[1], 60)
    why = cluster.minik8s("why", "-n", namespace, "ingress/web").stdout
    assert f"Service {namespace}/web has no endpoints (nginx answers 503): no pod of namespace" in why
    cluster.kubectl("delete", *given)
    cluster.until(lambda: _get(host)[0] == 404)


def test_names_are_not_served_by_root() -> None:
    def serves(process: psutil.Process) -> bool:
        try:
            return is_here(process) and "-conf=/var/lib/minik8s/dns/Corefile" in process.cmdline()
        except psutil.Error:
            return False

    assert [one.username() for one in psutil.process_iter() if serves(one)] == ["minik8s-dns"]
