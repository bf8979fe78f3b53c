"""Gateway API's own tests of its schemas and CEL rules (``pkg/test/cel``), whole, of both channels."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.e2e.operators.conftest import built
from tests.support.apiserver import own_server
from tests.support.gotools import GATEWAY, TOGETHER, module_path

# What the sources of v1.3.0 have, each case a subtest: a suite that ran less would pass as well.
CASES = {"standard": 105, "experimental": 202}


@pytest.mark.parametrize("channel", CASES)
def test_every_schema_and_rule(channel: str, tmp_path: Path):
    program = built(f"gateway-cel-{channel}")
    definitions = module_path(GATEWAY, TOGETHER[GATEWAY]) / "config" / "crd" / channel
    with own_server(tmp_path) as api:
        files = [word for path in sorted(definitions.glob("gateway*.yaml")) for word in ("--filename", str(path))]
        api.kubectl("create", *files)
        api.kubectl("wait", "--for=condition=Established", "crd", "--all")
        done = subprocess.run(
            [str(program), "-test.v"],
            env={**os.environ, "KUBECONFIG": str(api.kubeconfig)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, "\n".join(line for line in done.stdout.splitlines() if "--- PASS" not in line)[-8000:]
    assert len(re.findall(r"^ +--- PASS", done.stdout, re.MULTILINE)) >= CASES[channel]
    assert "--- SKIP" not in done.stdout
