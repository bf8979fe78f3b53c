"""The how-to on custom kinds, done with real kubectl."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.support.apiserver import ApiServerProcess
from tests.support.waiting import until

PAGE = Path(__file__).parents[4] / "docs/how-to/custom-kinds.md"


def test_the_how_to_does_what_it_says(server: ApiServerProcess, tmp_path: Path):
    found = re.search(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    definition, nightly = tmp_path / "definition.yml", tmp_path / "nightly.yml"
    for file, text in zip((definition, nightly), found[1].split("---\n"), strict=True):
        file.write_text(text, encoding="utf-8")
    try:
        server.kubectl("create", "-f", str(definition))
        server.kubectl("wait", "--for=condition=Established", "crd/backups.example.com")
        server.kubectl("create", "-f", str(nightly))
        table = [line.split("   ") for line in server.kubectl("get", "bk").stdout.splitlines()]
        assert [[cell.strip() for cell in line if cell.strip()][:3] for line in table] == [
            ["NAME", "SCHEDULE", "COPIES"], ["nightly", "0 3 * * *", "2"],
        ]  # fmt: skip
        assert "nightly" in server.kubectl("get", "all").stdout
        assert "Five fields as in cron." in server.kubectl("explain", "backup.spec.schedule").stdout
        server.kubectl("scale", "--replicas=3", "backup/nightly")
        assert json.loads(server.kubectl("get", "bk", "nightly", "-o", "json").stdout)["spec"] == {
            "schedule": "0 3 * * *", "copies": 3, "match": "=",
        }  # fmt: skip
        server.kubectl("apply", "-f", str(nightly))
        strict = nightly.read_text(encoding="utf-8").replace("schedule:", "shedule:")
        refused = server.kubectl("apply", "-f", "-", stdin=strict, check=False)
        assert 'unknown field "spec.shedule"' in refused.stderr
        server.kubectl("delete", "backup", "nightly")
    finally:
        server.kubectl("delete", "crd", "backups.example.com", "--ignore-not-found")
    until(lambda: server.kubectl("get", "bk", check=False).returncode != 0)
