"""``make cis`` on the installed cluster: every control is met, or says why not."""

from __future__ import annotations

import pytest

from tests.cis.__main__ import main
from tests.support.clusters.installed import Installed


def test_no_control_fails_without_an_explanation(cluster: Installed, capsys: pytest.CaptureFixture[str]):
    code = main([])
    said = capsys.readouterr().out
    assert code == 0, "\n".join(line for line in said.splitlines() if " FAIL " in line or line.startswith(" "))
    assert cluster.whole()
