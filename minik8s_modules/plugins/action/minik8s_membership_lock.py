"""Action plugin of the module minik8s_membership_lock: what only the controller knows about runs of playbooks.

It says who asks: this ansible-playbook, by its process. Of a holder that it is told about it can say whether that has
ended when it ran on this very controller; then the module is asked again, to take the lock over. What it refuses, it
refuses with everything that a reader needs to go on.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import socket
import sys
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

Result = dict[str, Any]
REFUSED = (
    "The members of this cluster are being changed already, and two runs at once would undo each other; this one has "
    "changed nothing since it asked. {user}@{host} runs {playbook} (process {pid}) since {since}. Wait until that "
    "is over, then run this again. If it is over (it failed or was killed on {host}), -e membership_lock_break={id} "
    "ends its claim now; else that ends by itself at {ends}, {ends_in_s} s from now, unless it is renewed. The lock is "
    "{path} on {machine}"
)


def controller() -> str:
    """Return what tells apart whose process ids are whose: boot and process namespace; "" where that is not known."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return ""


def started(pid: int) -> str:
    """Return when a process began, in ticks since the boot; "" where that cannot be read."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        state, *rest = text.rpartition(")")[2].split()
        return "" if state == "Z" else rest[18]
    return ""


def has_ended(holder: Result) -> bool:
    """Return whether a holder is known to have ended; what runs elsewhere, or hides, is not."""
    if not controller() or holder.get("controller") != controller():
        return False
    pid = int(holder["pid"])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return started(pid) != holder.get("started")


def asker() -> Result:
    """Return this run as a holder. Tasks are carried out by children of the ansible-playbook process."""
    pid, host = os.getppid(), socket.gethostname()
    fields = {"host": host, "controller": controller(), "pid": pid, "started": started(pid)}
    digest = hashlib.sha256(repr(sorted(fields.items())).encode()).hexdigest()
    return {**fields, "id": digest[:12], "user": getpass.getuser()}


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible has no types
    """Asks the module, and once more where the holder has ended."""

    def run(self, tmp: Any = None, task_vars: Result | None = None) -> Result:
        """Return the module's answer; a lock that somebody else holds is a failure."""
        super().run(tmp, task_vars)
        variables = task_vars or {}
        given = {**self._task.args, "holder": {**asker(), "playbook": _playbook()}}
        answer = self._ask(given, variables)
        if not answer.get("granted", True) and has_ended(answer["holder"]):
            answer = self._ask({**given, "over": answer["holder"]["id"]}, variables)
        if answer.get("granted", True):
            return answer
        places = {"path": given.get("path", "/run/minik8s-membership.json"), "machine": self._machine(variables)}
        words = REFUSED.format(**answer["holder"], **places)
        if self._task.check_mode:
            return {**answer, "warnings": [*answer.get("warnings", []), words]}
        return {**answer, "failed": True, "msg": words}

    def _ask(self, arguments: Result, variables: Result) -> Result:
        name = self._task.action  # in a collection, the task has the module's full name
        answer: Result = self._execute_module(module_name=name, module_args=arguments, task_vars=variables)
        return answer

    def _machine(self, variables: Result) -> str:
        return str(self._task.delegate_to or variables.get("inventory_hostname", ""))


def _playbook() -> str:
    words = [Path(word).name for word in sys.argv[1:] if word.endswith((".yml", ".yaml")) and not word.startswith("@")]
    known = [word for word in words if (Path(__file__).parents[3] / "playbooks" / word).exists()]
    return " ".join(known or words[-1:]) or Path(sys.argv[0]).name
