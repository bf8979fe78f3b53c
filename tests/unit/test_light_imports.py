"""Daemons import what they need: modules that are imported are most of what the memory of an idle cluster holds."""

from __future__ import annotations

import subprocess
import sys

import pytest

NEEDLESS = {
    "minik8s_modules.apiserver.main": (
        "cryptography",
        "flask",
        "grpc",
        "jinja2",
        "minik8s_modules.api",
        "minik8s_modules.store",
        "orjson",
        "prometheus_client",
    ),
    "minik8s_modules.controllers.access.certificates": ("cryptography",),
    "minik8s_modules.controllers.main": (
        "cryptography",
        "jinja2",
        "minik8s_modules.api.tables",
        "minik8s_modules.cel",
        "re2",
    ),
    "minik8s_modules.gateway.main": (
        "cryptography",
        "docker",
        "minik8s_modules.apiserver",
        "prometheus_client",
        "requests",
    ),
    "minik8s_modules.reconcile.main": (
        "cryptography",
        "jinja2",
        "minik8s_modules.api.defaulting",
        "minik8s_modules.api.validation",
        "minik8s_modules.cel",
        "minik8s_modules.mesh",
        "minik8s_modules.reconcile.planning.answering",
    ),
    "minik8s_modules.module_utils.minik8s.reapply": (
        "http",
        "minik8s_modules.module_utils.minik8s.core.section",
        "minik8s_modules.module_utils.minik8s.reapplying",
        "ssl",
    ),
}
"""By what a process imports: what it must not have then, each with what is below it."""
SMALL = {
    "minik8s_modules.api",
    "minik8s_modules.api.network",
    "minik8s_modules.api.network.balancing",
    "minik8s_modules.api.network.dual_stack",
}
"""Of what a process must not have, the few modules that read its configuration; these import nothing else of it.

They are 0.1 of the arbiter's 15 MB, and by them it tells of a configuration that cannot be used before it has workers.
"""


@pytest.mark.parametrize("module", sorted(NEEDLESS))
def test_a_daemon_imports_nothing_that_it_does_not_need(module: str) -> None:
    told = f"import sys, {module}; print(*sorted(sys.modules), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    found = done.stdout.split()
    assert module in found
    needless = tuple(NEEDLESS[module])
    bad = {name for name in found if name.startswith(tuple(f"{one}." for one in needless)) or name in needless}
    assert bad - SMALL == set()
