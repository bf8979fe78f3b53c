"""``python3 -m minik8s.reapply``: nobody attends this node, so it applies its last-good documents by itself.

A timer starts it every minute and at boot. While the gateway touches ``<run_dir>/attended`` it does nothing; when
that is older than two minutes, or missing, every section's last declared set is converged as the modules do it, and
exited containers whose restart policy says so are started again. Secrets come from the sealed copy. It takes the
node's lock and no token: a reconciler that comes back simply goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any

from .containers import Containers
from .dns import Dns
from .documents import load_document, stored_node
from .faults import NodeFault
from .ingress import Ingress
from .network import Network
from .sandboxes import Sandboxes
from .secrets import Secrets
from .section import AnySection, Request, context_for, run_pass
from .sections import SECTIONS
from .services import Services
from .volumes import Volumes

UNATTENDED_S = 120.0  # four touches of the gateway, one every 30 s
BUDGET_S = 600.0  # nobody waits for this run
SECTION_OBJECTS: dict[str, AnySection] = {
    section.name: section
    for section in (Network(), Secrets(), Volumes(), Sandboxes(), Containers(), Services(), Dns(), Ingress())
}


def is_attended(run_dir: str, now: float) -> bool:
    """Return whether the gateway has been here within the last two minutes."""
    try:
        return now - os.stat(os.path.join(run_dir, "attended")).st_mtime <= UNATTENDED_S
    except FileNotFoundError:
        return False


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


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="minik8s.reapply", description="Apply this node's last-good documents.")
    parser.add_argument("--state-dir", default="/var/lib/minik8s")
    parser.add_argument("--run-dir", default="/run/minik8s")
    parser.add_argument("--docker-socket", default="/var/run/docker.sock")
    parser.add_argument("--attended-too", action="store_true", help="apply even while a gateway attends this node")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run once; print what was done as JSON lines. Exit code 1 when a key or a section failed."""
    options = _arguments(argv)
    if not options.attended_too and is_attended(options.run_dir, time.time()):
        return 0
    results = reapply(options.state_dir, options.run_dir, options.docker_socket)
    bad = False
    for name, result in results.items():
        bad = bad or bool(result["errors"] or result.get("failed"))
        if result["steps"] or result["errors"] or result.get("failed"):
            shown = {key: result[key] for key in ("steps", "errors", "failed") if key in result}
            sys.stdout.write(json.dumps({"section": name, **shown}) + "\n")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
