"""Images imported into a real Docker."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from minik8s_modules.module_utils.minik8s.core.docker import Docker
from minik8s_modules.module_utils.minik8s.install.images import LABEL, Recipe, archive, changes, import_image

SOCKET = "/var/run/docker.sock"


@pytest.fixture
def recipe() -> Iterator[Recipe]:
    made = Recipe(f"minik8s/test-{uuid.uuid4().hex[:8]}:1", ("sh", "echo"), ("/bin/echo", "from the image"))
    yield made
    subprocess.run(["docker", "rmi", made.name], capture_output=True, check=False)


def test_an_imported_image_runs_and_carries_its_content(recipe: Recipe) -> None:
    program = Path("/bin/busybox").read_bytes()
    digest = recipe.digest(program)
    docker = Docker(SOCKET)
    import_image(docker, recipe, archive(recipe, program), changes(recipe, digest))
    image = docker.image(recipe.name)
    docker.close()
    assert image is not None
    assert image["Config"]["Labels"][LABEL] == digest
    done = subprocess.run(["docker", "run", "--rm", "--network=none", recipe.name], capture_output=True, check=True)
    assert done.stdout == b"from the image\n"
