"""``python3 -m minik8s.reapply``: nobody attends this node, so it applies its last-good documents by itself.

A timer starts reapply.sh every minute and at boot, and that this, unless a glance shows it that the node is attended.
While it is (attendance.py) this does nothing, either. Else every section's last declared set is converged as modules do
it, and exited containers whose restart policy says so are started again. Secrets come from the sealed copy. After a
boot the API is asked first: while it answers, somebody will come who knows which pods are still this node's, and is
waited for for two minutes. It takes the node's lock and no token: a reconciler that comes back simply goes on.

What converges is in reapplying.py, and imported only then.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pwd
import sys
from typing import Callable

from .core.files import write_atomically
from .install import attendance

USER = "minik8s-node"  # the gateway's on this machine; it writes into the run directory
DOCKER_BOOTS_S = 30.0


def is_wanted(options: argparse.Namespace, answers: Callable[[tuple[str, ...]], bool] = attendance.answers) -> bool:
    """Return whether this node has to help itself now; leaves a record of this look in the run directory.

    ``answers`` asks the API servers whose addresses stand in the file ``options.control_plane``.
    """
    _ensure(options.run_dir)
    seen = attendance.look(options.run_dir)
    known = attendance.with_glance(attendance.read_record(options.run_dir), attendance.read_glance(options.run_dir))
    verdict, record = attendance.judge(seen, known)
    with contextlib.suppress(OSError):  # a full disk: the next look then goes by the time of the touch alone
        write_atomically(attendance.record_path(options.run_dir), json.dumps(record._asdict()).encode(), 0o644)
    if verdict != attendance.BOOTED:
        return verdict == attendance.UNATTENDED
    if answers(attendance.servers(options.control_plane)):
        return False
    from .reapplying import await_docker  # noqa: PLC0415 - see above

    await_docker(options.docker_socket, options.docker_boots_s)
    return True


def _ensure(run_dir: str) -> None:
    """Make the run directory where nothing else makes it after a boot: the gateway's, as the installation has it."""
    if not os.path.isdir(run_dir):
        os.makedirs(run_dir, 0o755)
        with contextlib.suppress(KeyError):
            owner = pwd.getpwnam(USER)
            os.chown(run_dir, owner.pw_uid, owner.pw_gid)


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="minik8s.reapply", description="Apply this node's last-good documents.")
    parser.add_argument("--state-dir", default="/var/lib/minik8s")
    parser.add_argument("--run-dir", default="/run/minik8s")
    parser.add_argument("--docker-socket", default="/var/run/docker.sock")
    parser.add_argument("--control-plane", default="/etc/minik8s/control-plane.json")
    parser.add_argument("--docker-boots-s", type=float, default=DOCKER_BOOTS_S)
    parser.add_argument("--attended-too", action="store_true", help="apply even while a gateway attends this node")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run once; print what was done as JSON lines. Exit code 1 when a key or a section failed."""
    options = _arguments(argv)
    if not os.path.isdir(os.path.join(options.state_dir, "documents")):
        return 0
    if not options.attended_too and not is_wanted(options):
        return 0
    from .reapplying import reapply  # noqa: PLC0415 - see above

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
