"""The executor with the ansible-core that Python 3.12 and newer get: its own suite, and that of the plugins."""

from __future__ import annotations

import subprocess

from tests.support.clients import ROOT
from tests.support.newer_python import python

SUITES = ["tests/integration/executor", "tests/unit/plugins", "tests/unit/reconcile/executor", "tests/unit/library"]


def test_the_suite_passes_with_the_newest_ansible() -> None:
    argv = [str(python()), "-c", "import ansible; print(ansible.__version__)"]
    version = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert tuple(map(int, version.split(".")[:2])) >= (2, 21)
    argv = [str(python()), "-m", "pytest", *SUITES, "-m", "not nightly", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
