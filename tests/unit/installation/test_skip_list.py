"""A skipped test must be listed with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.repository import skips
from tests.support.repository.skips import Skip

TABLE = """\
# Tests
| test | reason |
|---|---|
| `tests.a.test_x::test_one[*]` | needs a machine with two CPUs |
"""
REPORT = """<testsuites><testsuite>
<testcase classname="tests.a.test_x" name="test_ok"/>
<testcase classname="tests.a.test_x" name="test_one[1]"><skipped type="pytest.skip" message="{reason}"/></testcase>
<testcase classname="tests.a.test_x" name="test_later"><skipped type="pytest.xfail" message="bug"/></testcase>
</testsuite></testsuites>"""


@pytest.mark.parametrize(("reason", "wrong"), [("needs a machine with two CPUs", 0), ("no idea", 1)])
def test_a_skip_is_allowed_by_name_and_reason(reason: str, wrong: int) -> None:
    found = skips.skipped(REPORT.format(reason=reason))
    assert found == [Skip("tests.a.test_x::test_one[1]", reason)]
    assert len(skips.unlisted(found, skips.allowed(TABLE))) == wrong


def test_the_header_is_no_row() -> None:
    assert [skip.test for skip in skips.allowed(TABLE)] == ["tests.a.test_x::test_one[*]"]


def test_no_report_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert skips.main([]) == 2
    assert "JUnit" in capsys.readouterr().err


def test_an_unlisted_skip_fails_and_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT.format(reason="no idea"))
    assert skips.main([str(report)]) == 1
    assert "test_one[1]" in capsys.readouterr().err
