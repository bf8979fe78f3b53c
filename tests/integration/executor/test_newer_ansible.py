"""The executor with the ansible-core that Python 3.12 and newer get: its own suite, and that of the plugins."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.clients import ROOT
from tests.support.newer_python import SUITES, python

TESTS = ["tests/integration/executor", "tests/unit/plugins", "tests/unit/reconcile/executor", "tests/unit/library"]


@pytest.mark.parametrize("version", sorted(SUITES))
def test_the_suite_passes_with_the_newest_ansible(version: str) -> None:
    argv = [str(python(version)), "-c", "import ansible; print(ansible.__version__)"]
    core = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert tuple(map(int, core.split(".")[:2])) >= (2, 21)
    # ansible-runner 2.4 opens files by codecs.open, which Python 3.14 warns of; here a warning is an error
    told = ["-m", "not nightly", "-q", "-p", "no:cacheprovider", "-W", "ignore:codecs.open:DeprecationWarning"]
    argv = [str(python(version)), "-m", "pytest", *TESTS, *told]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.parametrize("version", sorted(SUITES))
def test_ansible_doc_of_the_newest_ansible_says_nothing_but_the_documentation(version: str, tmp_path: Path) -> None:
    """``ansible-test sanity`` holds a warning for an error, and this ansible-core has more of them."""
    modules = [path.stem for path in sorted((ROOT / "library").glob("*.py"))]
    argv = [str(python(version)), "-m", "ansible", "doc", "--type", "module", "--json", *modules]
    about = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(argv, cwd=ROOT, env=about, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout).keys() == set(modules)
    assert done.stderr == ""
