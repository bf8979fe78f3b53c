"""What the role ``monitoring`` installs, and what daemons tell, in the eyes of Prometheus' own promtool."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api.kinds import NODE, POD
from minik8s_modules.base.metrics import Registry
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.autoscaling.figures import AutoscalerFigures
from minik8s_modules.monitoring.object_metrics import ObjectMetrics
from minik8s_modules.monitoring.target_files import TargetFiles
from minik8s_modules.runtime.informers import Informers
from minik8s_modules.runtime.queue_metrics import QueueMetrics
from minik8s_modules.scheduler.running.metrics import Counts
from tests.support.clients import promtool
from tests.support.monitored import ROLE, Server, configuration
from tests.support.repository import docs_site
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[3]
RULES = sorted((ROLE / "files" / "rules").glob("*.yml"))
DASHBOARDS = sorted((ROLE / "files" / "dashboards").glob("*.json"))
DECLARED = docs_site.metrics()
KUBELETS = (ROOT / "minik8s_modules" / "apiserver" / "nodes" / "node_metrics.py").read_text()
CASES = ROOT / "tests" / "cases" / "alerts"


def run(*arguments: str | Path, stdin: str = "") -> str:
    done = subprocess.run([promtool(), *arguments], input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("rules", RULES, ids=lambda path: path.stem)
def test_each_alert_fires_when_it_should_and_not_otherwise(rules: Path):
    run("check", "rules", rules)
    case = CASES / rules.name
    run("test", "rules", case)
    whole = [rule for group in yaml.safe_load(rules.read_text())["groups"] for rule in group["rules"]]
    declared = {rule["alert"] for rule in whole if "alert" in rule}
    tests = yaml.safe_load(case.read_text())["tests"]
    tried = {(each["alertname"], bool(each["exp_alerts"])) for test in tests for each in test["alert_rule_test"]}
    assert tried == {(name, fires) for name in declared for fires in (True, False)}


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda path: path.stem)
def test_each_panel_asks_in_promql_for_metrics_that_there_are(tmp_path: Path, dashboard: Path):
    panels = json.loads(dashboard.read_text())["panels"]
    asked = [target["expr"].replace("$", "") for panel in panels for target in panel["targets"]]
    assert len(asked) >= 4
    rules = [{"record": f"r{number}", "expr": each} for number, each in enumerate(asked)]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    run("check", "rules", "--lint=none", file)
    assert [name for each in asked for name in metrics_in(each) if not known(name)] == []


@pytest.mark.parametrize("rules", RULES, ids=lambda path: path.stem)
def test_alerts_are_about_metrics_that_there_are(rules: Path):
    asked = [rule["expr"] for group in yaml.safe_load(rules.read_text())["groups"] for rule in group["rules"]]
    assert [name for each in asked for name in metrics_in(each) if not known(name)] == []


def metrics_in(expression: str) -> set[str]:
    """Return the metrics that an expression names: words with an underscore, outside braces and lists of labels."""
    bare = re.sub(r"\{[^}]*\}|(by|on|group_left) *\([^)]*\)|\b\w+:[\w:]+", "", expression)  # nor recorded ones
    return set(re.findall(r"\b[a-z]+(?:_[a-z0-9]+)+\b", bare)) - {"histogram_quantile", "max_over_time", "group_left"}


def known(name: str) -> bool:
    """Return whether a metric is declared in our code, or the node exporter's or Envoys' (attacks/…statistics…)."""
    base = re.sub(r"_(bucket|total)$", "", name)
    return (
        name.startswith(("node_", "envoy_"))
        or f"`{base}`" in DECLARED
        or f"`{name}`" in DECLARED
        or f'"{name}"' in KUBELETS
    )


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"monitoring_node_exporter_port": 0, "monitoring_scheduler": "", "monitoring_pilot": ""},
        {"monitoring_others": ["192.0.2.2:6443"]},
    ],
    ids=["defaults", "less", "several"],
)
def test_the_configuration_is_one_of_prometheus(tmp_path: Path, more: dict[str, Any]):
    ca = tmp_path / "ca.crt"
    ca.write_text("")
    document = configuration(Server(6443, 10250, ca, tmp_path / "k"), tmp_path, 10270, **more)
    (tmp_path / "token").write_text("t")
    file = tmp_path / "prometheus.yml"
    file.write_text(yaml.safe_dump(document))
    run("check", "config", "--syntax-only", file)
    jobs = {job["job_name"]: job for job in document["scrape_configs"]}
    assert {"apiserver", "kubelet", "cadvisor", "kube-state-metrics", "diy"} <= set(jobs)
    assert "authorization" not in jobs["diy"]
    assert "authorization" not in jobs.get("envoy", {})
    assert ("envoy" in jobs) == (more.get("monitoring_pilot") != "")
    assert "authorization" not in jobs.get("node-exporter", {})


def test_metrics_follow_prometheus_rules(tmp_path: Path):
    api = FakeApi()
    informers = Informers(api)
    metrics = ObjectMetrics(informers)
    TargetFiles(informers, tmp_path, metrics)
    api.create(POD, {"metadata": {"name": "p", "namespace": "n"}, "status": {"phase": "Running"}})
    api.create(NODE, {"metadata": {"name": "n"}})
    informers.start()
    try:
        until(lambda: 'pod="p"' in metrics.text() and 'node="n"' in metrics.text())
        run("check", "metrics", stdin=metrics.text())
    finally:
        api.cut_watches()
        informers.stop()


def test_metrics_of_controllers_and_scheduler_follow_them_too():
    registry = Registry()
    QueueMetrics(registry).queue("a").added("k", 0.0)
    AutoscalerFigures(registry)
    Counts(registry).attempt("scheduled", "default", 0.1)
    run("check", "metrics", stdin=registry.text())
