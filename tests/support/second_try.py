"""A pytest plugin: a test that failed is tried again with new fixtures, its module brought to its place before.

A module's tests may build on each other (a Service that one makes is reached by the next). A test that failed takes its
clusters and servers with it, and so what the tests before it had made; before the next try of the module those are run
again, unreported. How first tries failed is told at the end. Trying again itself is pytest-rerunfailures' work.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import pytest
from _pytest.runner import runtestprotocol
from _pytest.terminal import TerminalReporter

REPLAYS = 3
"""How often the tests of one module are brought to their place again: one with nothing but failures ends, too."""
_FAILED = pytest.StashKey[bool]()
_TOLD_LINES = 60
_NO_TRY = 1_000
"""What pytest-rerunfailures counts as tries of a test that is only run again: it leaves it alone."""


def pytest_configure(config: pytest.Config) -> None:
    """Register what keeps the tests of this process."""
    config.pluginmanager.register(SecondTry(), "minik8s-second-try")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the socket by which pytest-rerunfailures counts tries with the other processes, which leaves it open."""
    if hasattr(config, "workerinput"):
        config.failures_db.sock.close()  # type: ignore[attr-defined]


class SecondTry:
    """The tests of this process, and those of the module at work that have begun."""

    def __init__(self) -> None:
        self._items: dict[str, pytest.Item] = {}
        self._module = ""
        self._begun: list[pytest.Item] = []
        self._lost = self._replaying = False
        self._replays = 0

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Remember the tests by their names."""
        self._items = {item.nodeid: item for item in session.items}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Bring the module to the place of the try that begins now."""
        if nodeid not in self._items:
            return  # the process that only hands out tests
        item = self._items[nodeid]
        earlier = self._to_replay(item)
        self._replaying = True
        try:
            for one, following in zip(earlier, [*earlier[1:], item], strict=False):
                _run_again(one, following)
        finally:
            self._replaying = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Remember whether a test failed."""
        report = yield
        if report.failed and not self._replaying:
            item.stash[_FAILED] = True
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Tear down all fixtures of a test that failed, those of its module too."""
        if item.stash.get(_FAILED, False):
            item.stash[_FAILED], self._lost = False, True
            item.session._setupstate.teardown_exact(None)

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Tell how the first tries failed."""
        for report in terminalreporter.stats.get("rerun", ()):
            terminalreporter.section(f"first try of {report.nodeid}", "-")
            listed = [line for line in report.longreprtext.splitlines() if line.startswith((">", "E "))]
            terminalreporter.write_line("\n".join(listed[:_TOLD_LINES]))

    def _to_replay(self, item: pytest.Item) -> Sequence[pytest.Item]:
        module = item.nodeid.partition("::")[0]
        if module != self._module:
            self._module, self._begun, self._lost, self._replays = module, [], False, 0
        earlier = [one for one in self._begun if one is not item]
        if item not in self._begun:
            self._begun.append(item)
        lost, self._lost = self._lost, False
        if not lost or not earlier or self._replays == REPLAYS:
            return []
        self._replays += 1
        return earlier


def _run_again(item: pytest.Item, following: pytest.Item) -> None:
    tries = getattr(item, "execution_count", 0)
    item.execution_count = _NO_TRY  # type: ignore[attr-defined]
    try:
        item._initrequest()  # type: ignore[attr-defined]
        runtestprotocol(item, nextitem=following, log=False)
    finally:
        item.execution_count = tries  # type: ignore[attr-defined]
