"""The live run as a program, which ends with its parent.

    python -m minik8s_modules.plugins.live.program -i INVENTORY PLAYBOOK

It takes ansible-playbook's arguments and is configured as that is. `playbook.py` is what it does, which is imported
once it is known what Ansible need not import for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from minik8s_modules.base import heap, seldom
from minik8s_modules.plugins.live.process import die_with_parent

SELDOM: dict[str, Sequence[str]] = {
    "ansible._internal._ssh._ssh_agent": ("SshAgentClient",),
    "packaging.specifiers": ("SpecifierSet",),
    "tarfile": (),
    "xml.dom.minidom": (),
    "xml.etree.ElementTree": (),
}
"""What Ansible imports for keys in an agent, for collections, for roles that are fetched, and for reports to JUnit."""


def main() -> None:
    """Run until the socket says stop."""
    if not die_with_parent(int(os.environ.get("MINIK8S_PARENT") or os.getppid())):
        sys.exit(1)
    heap.keep_large_apart()
    for name, functions in SELDOM.items():
        seldom.stand_for(name, functions)
    from minik8s_modules.plugins.live import playbook, routing  # noqa: PLC0415 - see the top of this file

    routing.leave_out_modules()
    playbook.LivePlaybook.cli_executor(sys.argv)


if __name__ == "__main__":
    main()
