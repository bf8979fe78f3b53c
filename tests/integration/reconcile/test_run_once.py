"""``minik8s reconciler --once`` with this machine's Docker and real modules: a folder's pods are made, and go."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import yaml

from tests.support.node import TestNode

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {
        "initContainers": [
            {
                "name": "first",
                "image": "minik8s/busybox:1",
                "command": ["sh", "-c", "echo made >/shared/index.html"],
                "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
            }
        ],
        "containers": [
            {
                "name": "server",
                "image": "minik8s/busybox:1",
                "command": ["httpd", "-f", "-p", "80", "-h", "/shared"],
                "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
            }
        ],
        "volumes": [{"name": "shared", "emptyDir": {}}],
    },
}


def once(node: TestNode, manifests: Path) -> str:
    """Run the command for a node of its own; return what it prints."""
    own = manifests.parent / "own.yml"
    own.write_text(yaml.safe_dump({"bridge": node.bridge, "cluster_cidr": f"{node.range}.0/24"}))
    where = [f"--state-dir={node.state_dir}", f"--run-dir={node.run_dir}", f"--settings={own}"]
    words = ["reconciler", "--once", f"--node={node.name}", f"--manifests={manifests}", f"--pod-cidr={node.range}.0/24"]
    argv = [sys.executable, "-m", "minik8s_modules.cli.main", *words, *where]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def alive(node: TestNode, container: str) -> bool:
    """Return whether a container runs."""
    return bool((node.docker.inspect(container) or {}).get("State", {}).get("Running"))


def test_the_pods_of_a_folder_are_made_once_and_go_with_their_files(tmp_path: Path) -> None:
    node, manifests = TestNode(tmp_path), tmp_path / "pods"
    manifests.mkdir()
    (manifests / "web.json").write_text(json.dumps(POD))
    try:
        assert once(node, manifests) == f"default/web-{node.name}\tRunning\n"
        (server,) = [one for one in node.ids("app") if alive(node, one)]
        assert node.execute(server, "cat", "/shared/index.html") == "made\n"
        assert once(node, manifests) == f"default/web-{node.name}\tRunning\n"
        assert alive(node, server), "the second run has started it again"
        (manifests / "web.json").unlink()
        assert once(node, manifests) == ""
        assert node.ids() == []
    finally:
        node.close()
