"""Whom Prometheus scrapes: each file of tests/cases/decide_targets; a file holds what was written, never more."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from minik8s_modules.monitoring.targets import decide_envoy, decide_node, decide_pod

CASES = sorted((Path(__file__).parents[2] / "cases" / "decide_targets").glob("*.yml"))

DECIDERS = {"pod": decide_pod, "node": decide_node, "envoy": decide_envoy}


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_decide_targets(path: Path):
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    (decide, obj) = next((DECIDERS[kind], case[kind]) for kind in DECIDERS if kind in case)
    found = decide(obj)
    assert found.problem == case.get("problem", "")
    if "expect" in case:
        assert found.content == case["expect"]
    for entry in yaml.safe_load(found.content) or []:
        assert set(entry) <= {"targets", "labels"}
        assert "path" not in case or entry["labels"]["__metrics_path__"] == case["path"]


@pytest.mark.parametrize("text", ['/"', "/'", "/{{ x }}", "/%0a", "/: #", "/\\n", "/&a *b !!c"])
def test_what_somebody_writes_stays_a_value(text: str):
    annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": "80", "prometheus.io/path": text}
    pod = {"metadata": {"name": "p", "namespace": "n", "annotations": annotations}, "status": {"podIP": "10.0.0.1"}}
    (entry,) = yaml.safe_load(decide_pod(pod).content)
    assert entry["labels"]["__metrics_path__"] == text
    assert entry["targets"] == ["10.0.0.1:80"]


@pytest.mark.parametrize("text", ["/\n", "/\0", "/\x1b[", "/\x85", "m", "//" + "x" * 2000])
def test_what_is_no_path_is_refused(text: str):
    annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": "80", "prometheus.io/path": text}
    pod = {"metadata": {"name": "p", "namespace": "n", "annotations": annotations}, "status": {"podIP": "10.0.0.1"}}
    assert decide_pod(pod).content == ""
    assert "prometheus.io/path" in decide_pod(pod).problem


@pytest.mark.parametrize("text", ["0", "65536", "0080809999", "008080" + "0" * 5000, "٨٠", "-1", "8_0"])
def test_what_is_no_port_is_refused_in_few_words(text: str):
    annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": text}
    pod = {"metadata": {"name": "p", "namespace": "n", "annotations": annotations}, "status": {"podIP": "10.0.0.1"}}
    found = decide_pod(pod)
    assert found.content == ""
    assert "is not a number from 1 to 65535" in found.problem
    assert len(found.problem) < 200
