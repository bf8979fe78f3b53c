"""Lets tests import library/ as ansible.modules and the nodes' shared code as ansible.module_utils.minik8s.

Says as well which tests follow each other when two processes share them (`--dist loadgroup`): those of one group stay
in one process. Groups that take long come first, so that both processes end at about the same time.
"""

from pathlib import Path

import ansible.module_utils
import ansible.modules
import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
ansible.modules.__path__.append(str(REPOSITORY / "library"))
ansible.module_utils.__path__.append(str(REPOSITORY / "minik8s_modules" / "module_utils"))
# labs, the shared Docker and the installed cluster carry one test at a time each; others need only their module's own
TOGETHER = {
    "machines": ["machines"],
    "docker": [
        f"integration/{room}"
        for room in ("executor", "reconcile", "streams", "library", "services", "gateway", "naming", "ansible")
    ],
    "installed": ["e2e"],
    "lab": ["integration/lab"],
}


@pytest.hookimpl(tryfirst=True)  # before the plugin puts groups into names
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each test its group, and order groups by what they take."""
    if config.getoption("dist", "no") != "loadgroup" and not hasattr(config, "workerinput"):
        return
    order = [*TOGETHER, "integration", "unit"]
    groups = {item: _group(item.path.relative_to(REPOSITORY / "tests")) for item in items}
    items.sort(key=lambda item: order.index(groups[item].partition(":")[0]))
    for item in items:
        item.add_marker(pytest.mark.xdist_group(groups[item]))


def _group(path: Path) -> str:
    """Return the group of the test module at ``path`` below tests/: its own, but for those of ``TOGETHER``."""
    for group, folders in TOGETHER.items():
        if any(path.is_relative_to(folder) for folder in folders):
            return group
    return f"{'unit' if path.parts[0] == 'unit' else 'integration'}:{path.with_suffix('')}"
