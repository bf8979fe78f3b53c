"""What BENCHMARKS.md says of a figure, and how an idle cluster's account is read."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.benchmarks import __main__ as bench
from tests.benchmarks import idle
from tests.benchmarks.__main__ import Kept
from tests.benchmarks.figures import Figure
from tests.benchmarks.idle import Account, figures_of, until_observed
from tests.benchmarks.machine import REPOSITORY, Run, commit
from tests.benchmarks.network.services import in_turns
from tests.benchmarks.report import Measured, Row, compare, comparison, document, measured, read


@pytest.mark.parametrize(("value", "verdict"), [(99.0, "met"), (100.0, "met"), (100.1, "missed")])
def test_a_bar_is_an_upper_limit(value: float, verdict: str) -> None:
    assert Figure("x", value, "ms", 100.0).verdict == verdict


RUN = Run("0123456789ab", 0.5, 1500.0, "cores 2")


def test_a_missed_bar_stands_out_and_figures_without_a_bar_stand_apart() -> None:
    rows = [
        Row(Figure("slow", 3.0, "ms", 2.0, "n=1"), 0.5, "01-02 03:04", 0.25),
        Row(Figure("just told", 1234.5, "us"), 0.5, "", 0.25),
    ]
    text = document(rows, RUN, ["overlay: OSError: no lab"])
    assert "| slow | ≤ 2 ms | 3.00 ms | **missed** | 0.5 | 0.250 s | 01-02 03:04 | n=1 |" in text
    assert text.index("## Other figures") < text.index("| just told | 1234 us | 0.5 | 0.250 s |  |  |")
    assert "commit 0123456789ab · machine factor: Python workload 0.500 s CPU, openssl sha256 1500 MB/s" in text
    assert "Not measured in this run: overlay: OSError: no lab" in text


def test_a_written_file_is_read_as_what_was_measured() -> None:
    rows = [
        Row(Figure("share", 1.25, "% of a core", 3.0), 0.5, "01-02 03:04", 0.25),
        Row(Figure("ratio", 1.5, "x", None, "n=1"), 0.5, "01-02 03:04", 0.5),
        Row(Figure("count", 2.0, ""), 0.5, "01-02 03:04", 0.5),
    ]
    assert read(document(rows, RUN)) == measured(rows)


def test_the_committed_file_is_read() -> None:
    found = read((REPOSITORY / "BENCHMARKS.md").read_text(encoding="utf-8"))
    assert found["API server: GET, CPU"].unit == "us"
    # what is longer than something else may be shorter by what a measurement is uncertain
    assert all(each.value >= 0 or " over " in name for name, each in found.items())


@pytest.mark.parametrize(
    ("unit", "before", "after", "ratio"),
    [
        ("ms", (100.0, 0.5), (100.0, 0.5), 1.0),
        ("ms", (100.0, 0.5), (200.0, 1.0), 1.0),  # the machine had half the speed
        ("ms", (100.0, 0.5), (200.0, 0.5), 2.0),
        ("% of a core", (1.0, 0.5), (1.0, 0.25), 2.0),
        ("1/s", (1000.0, 0.5), (500.0, 1.0), 1.0),
        ("1/s", (1000.0, 0.5), (500.0, 0.5), 2.0),
        ("MB", (100.0, 0.5), (150.0, 1.0), 1.5),
        ("ms", (100.0, 0.0), (150.0, 1.0), 1.5),  # nobody has told the factor
        ("ms", (0.0, 0.5), (1.0, 0.5), 1.0),
    ],
)
def test_runs_are_compared_by_the_machines_factor(
    unit: str, before: tuple[float, float], after: tuple[float, float], ratio: float
) -> None:
    old, new = (Measured(value, unit, factor) for value, factor in (before, after))
    (change,) = compare({"x": old, "only before": old}, {"x": new, "only after": new})
    assert change.ratio == pytest.approx(ratio)


def test_a_comparison_says_what_is_slower_and_what_is_faster() -> None:
    old = {name: Measured(100.0, "ms", 0.5) for name in ("slow", "same", "fast")}
    new = {"slow": Measured(130.0, "ms", 0.5), "same": Measured(110.0, "ms", 0.5), "fast": Measured(50.0, "ms", 0.5)}
    lines = comparison(compare(old, new)).splitlines()
    assert [line.split()[0] for line in lines] == ["compared", "slower", "slow", "faster", "fast"]
    assert "no machine factor" in comparison(compare({"x": Measured(1.0, "ms", 0.0)}, {"x": Measured(1.0, "ms", 0.5)}))


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where BENCHMARKS.md would be written, with two groups of which the second fails."""
    monkeypatch.setattr(bench, "TARGET", tmp_path / "BENCHMARKS.md")
    monkeypatch.setattr(bench, "KEPT", tmp_path / "cache" / "benchmarks.json")
    values = iter([1.0, 2.0, 3.0])

    def fails(_: float) -> list[Row]:
        raise OSError("no lab")

    def found(_: float) -> list[Row]:
        return [Row(Figure("fast", next(values), "ms", 2.0), 0.5, "01-02 03:04", 0.25)]

    monkeypatch.setattr(bench, "GROUPS", {"good": found, "bad": fails})
    return tmp_path / "BENCHMARKS.md"


def run(commit: str, *names: str, whole: bool = True) -> Kept:
    kept = bench.begun(RUN._replace(commit=commit), whole=whole)
    bench.measure_groups(kept, {name: bench.GROUPS[name] for name in names}, 0.0, bench.keep)
    return kept


def test_a_group_that_fails_takes_nothing_from_the_others(written: Path) -> None:
    assert run("aaaa", "bad", "good").failures == {"bad": "OSError: no lab"}
    assert "| fast | ≤ 2 ms | 1.00 ms |" in written.read_text()
    assert "Not measured in this run: bad: OSError: no lab" in written.read_text()
    assert run("aaaa", "good", "bad").failures == {"bad": "OSError: no lab"}
    assert written.read_text().count("| fast | ≤ 2 ms | 2.00 ms |") == 1


def test_rows_of_another_commit_are_dropped_and_nothing_is_written_until_a_run_is_complete(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half = run("aaaa", "good")
    assert not written.exists()
    assert bench.outcome(half) == 'BENCHMARKS.md is not written until the run is complete: make bench ONLY="bad"'
    other = run("bbbb", "bad")
    assert "rows of another run are dropped: of commit aaaa, this is bbbb" in capsys.readouterr().out
    assert bench.missing(other) == ["good"]
    assert not written.exists()
    assert bench.outcome(run("bbbb", "good")) == "written to BENCHMARKS.md"
    assert "commit bbbb" in written.read_text()


def test_groups_that_are_named_renew_a_former_run_whose_other_rows_say_of_which_commit_they_are(written: Path) -> None:
    bench.GROUPS["other"] = lambda _: [Row(Figure("steady", 7.0, "ms"), 0.5, "01-02 03:04", 0.25)]  # type: ignore[index]
    run("aaaa", "good", "bad", "other")
    for commit_, fast in (("bbbb", "2.00"), ("cccc", "3.00")):
        kept = run(commit_, "good", whole=False)
        assert kept.failures == {"bad": "OSError: no lab"}
        assert kept.rows[0].commit == ""
        text = written.read_text()
        assert f"commit {commit_}" in text
        assert f"| fast | ≤ 2 ms | {fast} ms | " in text
        assert "| steady | 7.00 ms | 0.5 | 0.250 s | 01-02 03:04, aaaa | " in text
        assert text.count("aaaa") == 1
    assert read(written.read_text())["steady"] == Measured(7.0, "ms", 0.25)


def test_what_is_in_no_commit_is_not_written(written: Path) -> None:
    kept = run("", "good", "bad")
    assert [row.figure.name for row in kept.rows] == ["fast"]
    assert "there are changes that are in no commit" in bench.outcome(kept)
    assert not written.exists()
    assert not bench.KEPT.exists()


def test_a_tree_with_changes_has_no_commit_but_for_the_file_that_is_written(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        named = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
        subprocess.run(["git", "-C", str(tmp_path), *named, *words], check=True, capture_output=True)

    assert commit(tmp_path) == ""
    git("init")
    (tmp_path / "code").write_text("1")
    git("add", ".")
    git("commit", "-m", "x")
    known = commit(tmp_path)
    assert re.fullmatch("[0-9a-f]{12}", known)
    (tmp_path / "BENCHMARKS.md").write_text("figures")
    assert commit(tmp_path) == known
    (tmp_path / "code").write_text("2")
    assert commit(tmp_path) == ""


def test_etcd_and_docker_are_told_beside_and_are_no_part_of_ours() -> None:
    account = Account()
    account.pss_mb = {"reconciler": 20.0, "play": 50.0, "etcd": 500.0, "dockerd": 500.0}
    account.between_mb = [40.0, 44.0]
    found = {figure.name: figure.value for figure in figures_of(account, 60.0, timer_s=0.6)}
    assert found["idle: PSS of ours"] == 70.0
    assert found["idle: PSS of ours between observations"] == 42.0
    assert found["idle: PSS of etcd"] == 500.0
    assert found["idle: CPU of ours"] == 1.0


@pytest.mark.parametrize(("every_s", "window_s", "ended"), [(300, 305.0, 2), (20, 245.0, 13)])
def test_items_are_no_more_than_a_window_has_periods(
    every_s: int, window_s: float, ended: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    class Observed(Account):
        """A node that has an item for three seconds of each so many, from the second one on."""

        def sample(self, *, begin: bool = False, memory: bool = False) -> None:  # noqa: ARG002
            self.observes = 1.5 < now[0] % every_s < 4.5

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(idle, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    account = Observed()
    assert until_observed(account, 240.0) == window_s
    account.items = ended
    (figure,) = (each for each in figures_of(account, window_s, 0.0) if "items" in each.name)
    assert (figure.bar, figure.verdict) == (1, "missed")
    assert figure.note.endswith(f", {ended} that ended")


def test_a_first_packet_that_is_mostly_slower_is_told_though_one_was_as_quick() -> None:
    few, many = [14.0, 14.0, 21.0, 14.0, 15.0], [14.0, 19.6, 29.4, 19.6, 21.0]
    figure = in_turns(few, many)
    assert figure.value == pytest.approx(1.4)
    assert figure.verdict == "missed"
    assert figure.note.endswith("least 14.0 us, 14.0 us at 10: 1.00 x")


def test_the_idle_window_does_not_begin_with_what_the_start_of_the_pods_left_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]

    class Observed(Account):
        """A node with its last item for the pods after 30 s, whose interpreter stays, and an observation each 300 s."""

        def sample(self, *, begin: bool = False, memory: bool = False) -> None:  # noqa: ARG002
            self.observes = 30 < now[0] < 62 or 200 < now[0] % 300 < 232

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(idle, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(idle, "Account", Observed)
    monkeypatch.setattr(idle, "timer_cpu_s", lambda: 0.0)
    (items,) = (each for each in idle.measure(240.0) if "items" in each.name)
    assert items.note.endswith("290 s, 1 that ended")
