"""A pytest plugin: what a module's tests left open is told at the last of them.

A socket, a file or a process that nobody closed is an error when Python collects it. In a cycle of objects that is
minutes later, while a test of another module runs, which fails by it. So garbage is collected at each module's end.
What is there before the first test (all tests, most of our code) is put aside: a collection that walks through it takes
0.3 s, and those that Python begins by itself while tests are looked for took a third of the time for that.
"""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest
from _pytest.unraisableexception import collect_unraisable


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for tests without the collector."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Put aside what is there."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """Collect what the module's tests have left, once all fixtures are torn down."""
    yield
    if nextitem is None or nextitem.path != item.path:
        getattr(item, "funcargs", {}).clear()  # the last test's are kept until it has been reported
        gc.collect()
        collect_unraisable(item.config)
