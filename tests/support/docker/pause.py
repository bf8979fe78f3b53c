"""The pause image with its probing program, for tests: built from the repository's source, under a tag of its own."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from minik8s_modules.module_utils.minik8s.core.docker import Docker
from minik8s_modules.module_utils.minik8s.install.images import PROBER, Recipe, archive, changes, import_image

SOURCE = Path(__file__).resolve().parents[3] / "roles" / "images" / "files" / "pause.c"


def compiled(directory: Path) -> Path:
    """Return the program, compiled into ``directory``."""
    program = directory / "pause"
    argv = ["gcc", "-Os", "-static", "-s", "-Wall", "-Wextra", "-Werror", "-o", str(program), str(SOURCE)]
    subprocess.run(argv, check=True)
    return program


def pause_image(socket: str) -> str:
    """Return the name of the image, built unless Docker has it; its tag is the source's digest."""
    name = f"minik8s/pause:test-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]}"
    docker = Docker(socket)
    try:
        if docker.image(name) is None:
            with tempfile.TemporaryDirectory() as directory:
                program = compiled(Path(directory)).read_bytes()
            recipe = Recipe(name, (), ("/pause",), (), "pause", ((PROBER, "1"),))
            import_image(docker, recipe, archive(recipe, program), changes(recipe, recipe.digest(program)))
    finally:
        docker.close()
    return name


def http_check(name: str, host: str, port: int, **changes: Any) -> dict[str, Any]:
    """Return a check as a reconciler declares it: every second, 1 success or 2 failures count."""
    return {
        "id": name,
        "container": "c",
        "period_s": 1,
        "timeout_s": 1,
        "success": 1,
        "failure": 2,
        "http": {"host": host, "port": port, "path": "/", "headers": []},
        **changes,
    }
