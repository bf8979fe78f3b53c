"""systemd itself judges the rendered units."""

from __future__ import annotations

import subprocess
from pathlib import Path

from minik8s_modules.module_utils.minik8s.install.daemons import Daemon, render

AWKWARD = Daemon(
    "minik8s-test",
    "about 100% of it",
    ("/bin/echo", "a b", "100%", 'say "hi"', "it's", "$HOME", "back\\slash"),
    after=("minik8s-etcd",),
    prepare=("/bin/sh", "-c", 'test "$0" = "50%"', "50%"),
    environment=(("A", 'b "c" %d'),),
)


def test_systemd_reads_the_unit_without_a_complaint(tmp_path: Path) -> None:
    unit = tmp_path / "minik8s-test.service"
    unit.write_text(render("systemd", AWKWARD, "key"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if "minik8s-test" in line]
    assert (done.returncode, complaints) == (0, [])


def test_systemd_complains_about_a_broken_unit(tmp_path: Path) -> None:
    unit = tmp_path / "minik8s-test.service"
    unit.write_text(render("systemd", AWKWARD, "key").replace("Restart=always", "Restart=sometimes"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert "minik8s-test" in done.stderr
