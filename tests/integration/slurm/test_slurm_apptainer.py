"""Pods in images that Apptainer runs on a real Slurm: a folder, and a file (SIF) that it has made itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.slurm.test_slurm_images import Start, in_image, said, start
from tests.integration.slurm.test_slurm_provider import ended
from tests.support.servers.slurm import STUDENT, Slurm, running
from tests.support.servers.slurm_images import APPTAINER, IMAGE, apptainer

__all__ = ["start"]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A Slurm with Apptainer."""
    with running(tmp_path_factory.mktemp("slurm") / "machine", more=[apptainer()]) as found:
        yield found


@pytest.mark.parametrize("form", ["folder", "file"])
def test_a_pod_has_its_image_files_variables_and_last_words(start: Start, slurm: Slurm, form: str):
    command = APPTAINER
    if form == "file":
        slurm.run(["mkdir", "-p", "/tmp/images/tools"], STUDENT)
        slurm.run(["apptainer", "build", f"/tmp/images/{IMAGE}.sif", f"/images/{IMAGE}"], STUDENT, timeout_s=300)
        command = (*APPTAINER[:-1], "/tmp/images/{image}.sif")
    provider = start(
        *command,
        config_maps={"default/texts": {"data": {"hi": "from a ConfigMap\n"}}},
        secrets={"default/keys": {"data": {"key": "c2VjcmV0"}}},
    )
    script = (
        'cat /etc/motd texts/hi /etc/keys/key; echo " $WORD"; id -u; ls -A ..; ls /etc/slurm; '
        'echo "last words" > "$MINIK8S_TERMINATION_LOG"; exit 7'
    )
    mounts = [{"name": "texts", "mountPath": "texts"}, {"name": "keys", "mountPath": "/etc/keys"}]
    made = in_image("one", script, env=[{"name": "WORD", "value": "it's $HOME"}], volumeMounts=mounts)
    made["spec"]["volumes"] = [
        {"name": "texts", "configMap": {"name": "texts"}},
        {"name": "keys", "secret": {"secretName": "keys"}},
    ]
    provider.create_pod(made)
    found = ended(provider, "one")
    printed = said(provider, "one").splitlines()
    assert printed[:5] == ["of the image", "from a ConfigMap", "secret it's $HOME", "1000", "work"], printed
    assert "/etc/slurm: No such file" in printed[5]
    assert (found["exitCode"], found["message"]) == (7, "last words\n")
