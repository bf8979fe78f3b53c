"""What BENCHMARKS.md says of a figure, and how an idle cluster's account is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks import __main__ as bench
from tests.benchmarks.__main__ import Row, document
from tests.benchmarks.figures import Figure
from tests.benchmarks.idle import Account, figures_of


@pytest.mark.parametrize(("value", "verdict"), [(99.0, "met"), (100.0, "met"), (100.1, "missed")])
def test_a_bar_is_an_upper_limit(value: float, verdict: str) -> None:
    assert Figure("x", value, "ms", 100.0).verdict == verdict


def test_a_missed_bar_stands_out_and_figures_without_a_bar_stand_apart() -> None:
    rows = [
        Row(Figure("slow", 3.0, "ms", 2.0, "n=1"), 0.5, "01-02 03:04"),
        Row(Figure("just told", 1234.5, "us"), 0.5, ""),
    ]
    text = document(rows, "2 cores")
    assert "| slow | ≤ 2 ms | 3.00 ms | **missed** | 0.5 | 01-02 03:04 | n=1 |" in text
    assert text.index("## Other figures") < text.index("| just told | 1234 us | 0.5 |  |  |")


def test_a_group_that_fails_takes_nothing_from_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "TARGET", tmp_path / "BENCHMARKS.md")
    monkeypatch.setattr(bench, "KEPT", tmp_path / "cache" / "benchmarks.json")
    values = iter([1.0, 2.0])

    def fails(_: float) -> list[Row]:
        raise OSError("no lab")

    def found(_: float) -> list[Row]:
        return [Row(Figure("fast", next(values), "ms", 2.0), 0.5, "01-02 03:04")]

    monkeypatch.setattr(bench, "GROUPS", {"good": found, "bad": fails})
    assert bench.measure_groups(["good", "bad"], 0.0, "2 cores") == ["bad: OSError: no lab"]
    assert "| fast | ≤ 2 ms | 1.00 ms |" in bench.TARGET.read_text()
    assert bench.measure_groups(["bad", "good"], 0.0, "2 cores") == ["bad: OSError: no lab"]
    assert bench.TARGET.read_text().count("| fast | ≤ 2 ms | 2.00 ms |") == 1
    assert list(bench.kept()) == ["good"]


def test_etcd_and_docker_are_told_beside_and_are_no_part_of_ours() -> None:
    account = Account()
    account.pss_mb = {"reconciler": 20.0, "play": 50.0, "etcd": 500.0, "dockerd": 500.0}
    found = {figure.name: figure.value for figure in figures_of(account, 60.0, timer_s=0.6)}
    assert found["idle: PSS of ours"] == 70.0
    assert found["idle: PSS of etcd"] == 500.0
    assert found["idle: CPU of ours"] == 1.0
