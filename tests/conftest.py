"""Lets tests import library/ as ansible.modules and the nodes' shared code as ansible.module_utils.minik8s.

Says as well which tests follow each other when processes share them (`--dist loadscope`): those of one group stay
in one process. Groups that take long come first, so that the processes end at about the same time. What a
second try begins with is in ``support/second_try.py``.
"""

from pathlib import PurePosixPath

import ansible.module_utils
import ansible.modules
import pytest
import xdist.remote
from xdist.scheduler import LoadScopeScheduling

pytest_plugins = ["tests.support.second_try"]
REPOSITORY = PurePosixPath(__file__).parent.parent
ansible.modules.__path__.append(str(REPOSITORY / "library"))
ansible.module_utils.__path__.append(str(REPOSITORY / "minik8s_modules" / "module_utils"))
# A cluster, the shared Docker and a lab carry one test at a time each; others need only their module's own.
TOGETHER = {
    "docker": [
        f"integration/{room}"
        for room in ("executor", "reconcile", "streams", "library", "services", "gateway", "naming", "ansible")
    ]
    + ["attacks/containers"],
    "resilience": ["machines/resilience"],
    "membership": ["machines/membership"],
    "installed": ["e2e"],
    "lab": ["integration/lab"],
}
# Others are by module, in this order.
ALONE = ["machines", "integration", "unit"]


class Groups(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each process a group at a time."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: xdist.remote.Producer) -> Groups:
    """Return the scheduler of `make test`."""
    return Groups(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order tests by their groups: those that take long come first."""
    order = [*TOGETHER, *ALONE]
    items.sort(key=lambda item: order.index(group_of(item.nodeid).partition(":")[0]))


def group_of(nodeid: str) -> str:
    """Return the group of a test: its module, but for those of ``TOGETHER``."""
    path = PurePosixPath(nodeid.partition("::")[0]).relative_to("tests")
    for group, folders in TOGETHER.items():
        if any(path.is_relative_to(folder) for folder in folders):
            return group
    kind = path.parts[0] if path.parts[0] in ALONE else "integration"
    return f"{kind}:{path.with_suffix('')}"
