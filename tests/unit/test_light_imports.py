"""Daemons import what they need: modules that are imported are most of what the memory of an idle cluster holds."""

from __future__ import annotations

import subprocess
import sys

import pytest

OF_LIBRARIES = ("argparse", "dis", "html.entities", "prometheus_client.exposition", "yaml", "zipfile")
"""What libraries import without need, or what that imports (`base/seldom.py`), and what reads options and YAML."""
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
    "minik8s_modules.controllers.access.certificates": ("cryptography", *OF_LIBRARIES),
    "minik8s_modules.controllers.main": (
        *OF_LIBRARIES,
        "cryptography",
        "jinja2",
        "minik8s_modules.api.tables",
        "minik8s_modules.cel",
        "re2",
    ),
    "minik8s_modules.gateway.main": (
        *OF_LIBRARIES,
        "cryptography",
        "docker",
        "minik8s_modules.apiserver",
        "prometheus_client",
        "requests",
    ),
    "minik8s_modules.scheduler.main": OF_LIBRARIES,
    "minik8s_modules.streams.main": ("h11", "wsproto", *OF_LIBRARIES),
    "minik8s_modules.reconcile.main": (
        "dis",
        "html.entities",
        "prometheus_client.exposition",
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
    told = f"""
import sys
sys.argv = ["minik8s-daemon"]
import {module}
from minik8s_modules.base.seldom import Seldom
print(*sorted(name for name, found in sys.modules.items() if not isinstance(found, Seldom)), sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    found = done.stdout.split()
    assert module in found
    needless = tuple(NEEDLESS[module])
    bad = {name for name in found if name.startswith(tuple(f"{one}." for one in needless)) or name in needless}
    assert bad - SMALL == set()


def test_an_api_server_has_nothing_that_answers_no_request() -> None:
    told = """
import sys
sys.argv = ["minik8s-apiserver"]
from minik8s_modules.base.seldom import Seldom, have_no_commands, have_no_templates
have_no_templates()
have_no_commands()
import minik8s_modules.apiserver.serving.application
OF_WEB = ("click.core", "http.server", "jinja2.environment", "prometheus_client.exposition", "urllib.request")
print(*(name for name in (*OF_WEB, "google.protobuf.text_format") if name in sys.modules))
print(*(name for name in ("calendar", "locale") if not isinstance(sys.modules[name], Seldom)))
"""
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_play_imports_nothing_of_agents_collections_and_reports() -> None:
    told = """
import sys
from minik8s_modules.base.seldom import Seldom
from minik8s_modules.plugins.live import program
sys.argv = ["ansible-playbook", "--version"]
try:
    program.main()
finally:
    from ansible.plugins.callback import junit
    print("modules:", *(name for name, found in sys.modules.items() if not isinstance(found, Seldom)))
"""
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    found = done.stdout.partition("modules: ")[2].split()
    assert {"ansible.plugins.callback.junit", "minik8s_modules.plugins.live.serving"} <= set(found)
    assert (
        set(found) & {"ansible._internal._ssh._ssh_agent", "packaging.specifiers", "tarfile", "xml.etree.ElementTree"}
        == set()
    )
