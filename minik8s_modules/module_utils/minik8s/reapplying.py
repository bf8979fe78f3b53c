"""What a node converges by itself: each section's last declared set (reapply.py says when)."""

from __future__ import annotations

import time
from typing import Any

from .core.docker import Docker, DockerError
from .core.documents import load_document, stored_node
from .core.faults import NodeFault
from .core.section import AnySection, Request, context_for, run_pass
from .core.sections import SECTIONS
from .names.dns import Dns
from .names.ingress import Ingress
from .network.network import Network
from .network.sidecars import Sidecars
from .pods.containers import Containers
from .pods.sandboxes import Sandboxes
from .policies.policies import Policies
from .services.services import Services
from .volumes.folders import Folders
from .volumes.secrets import Secrets
from .volumes.volumes import Volumes

BUDGET_S = 600.0  # nobody waits for this run
_SECTIONS: tuple[AnySection, ...] = (
    Network(),
    Policies(),
    Secrets(),
    Folders(),
    Volumes(),
    Sandboxes(),
    Sidecars(),
    Containers(),
    Services(),
    Dns(),
    Ingress(),
)
SECTION_OBJECTS: dict[str, AnySection] = {section.name: section for section in _SECTIONS}


def await_docker(socket: str, timeout_s: float) -> None:
    """Wait until Docker answers, which after a boot may come up later than this, for ``timeout_s`` at most."""
    deadline = time.monotonic() + timeout_s
    docker = Docker(socket)
    while time.monotonic() < deadline:
        try:
            docker.call("GET", "/info")
        except DockerError:
            time.sleep(0.5)
        else:
            break
    docker.close()


def reapply(state_dir: str, run_dir: str, docker_socket: str) -> dict[str, Any]:
    """Converge every section that was ever declared; return the results by section."""
    results: dict[str, Any] = {}
    for name in SECTIONS:
        node = stored_node(state_dir, name)
        if node is None:
            continue
        entries = load_document(state_dir, name).entries
        request = Request(node, entries=entries, state_dir=state_dir, run_dir=run_dir, docker_socket=docker_socket)
        context = context_for(request, unattended=True, budget_s=BUDGET_S)
        try:
            results[name] = run_pass(SECTION_OBJECTS[name], request, context)
        except NodeFault as fault:  # the sections are independent: without Docker the network still comes up
            results[name] = {"failed": str(fault), "steps": [], "errors": {}}
        finally:
            context.docker.close()
    return results
