"""The program of the original's Job is read where the command runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from minik8s_modules.cli.original.manifests import in_kubernetes_terms, read_manifests

JOB = "kind: Job\nmetadata: {name: a}\nspec: {partition: p, file: f, codePath: PATH}\n"


def test_the_program_of_a_job_goes_into_the_object(tmp_path: Path):
    (tmp_path / "a.cu").write_text("int main() {}\n")
    manifest = tmp_path / "job.yml"
    manifest.write_text(JOB.replace("PATH", str(tmp_path / "a.cu")))
    ((found, _),) = read_manifests([str(manifest)], "default")
    assert found["spec"]["source"] == "int main() {}\n"
    result = in_kubernetes_terms(str(manifest), None, recursive=False, dialect="")
    assert result is not None
    assert '"source":"int main() {}\\n"' in result


def test_a_program_that_cannot_be_read_is_left_to_the_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    manifest = tmp_path / "job.yml"
    manifest.write_text(JOB.replace("PATH", str(tmp_path / "none.cu")))
    ((found, _),) = read_manifests([str(manifest)], "default")
    assert "source" not in found["spec"]
    assert "none.cu cannot be read here: No such file or directory" in capsys.readouterr().err


def test_a_job_that_brings_its_program_keeps_it(tmp_path: Path):
    manifest = tmp_path / "job.yml"
    manifest.write_text(JOB.replace("PATH", "a.cu").replace("file: f", "file: f, source: mine"))
    ((found, _),) = read_manifests([str(manifest)], "default")
    assert found["spec"]["source"] == "mine"
