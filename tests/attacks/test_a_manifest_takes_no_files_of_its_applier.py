"""Attack: a manifest from somebody else names a file of whoever applies it, whose text then goes into the cluster.

The program of the original's Job is read where the command runs. Nothing is read that no Job can have.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from minik8s_modules.api.pods.slurm import SOURCE_BYTES
from minik8s_modules.cli.original.manifests import read_manifests

JOB = "kind: Job\nmetadata: {name: a}\nspec: {partition: p, file: f, codePath: PATH}\n"


@pytest.mark.parametrize("name", ["id_rsa", "shadow", "admin.kubeconfig", "device.py", "large.c"])
def test_no_key_no_device_and_no_large_file_is_read(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / name
    if name == "device.py":
        taken.symlink_to("/dev/null")
    else:
        taken.write_text("secret" if name != "large.c" else "x" * (SOURCE_BYTES + 1))
    manifest = tmp_path / "job.yml"
    manifest.write_text(JOB.replace("PATH", str(taken)))
    ((found, _),) = read_manifests([str(manifest)], "default")
    assert "source" not in found["spec"]
    assert "cannot be read here" in capsys.readouterr().err
