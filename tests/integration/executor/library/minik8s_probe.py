#!/usr/bin/python
"""A module for tests of the executor: writes its entries to files, and misbehaves on request."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule


def leave(what: str) -> None:
    if what == "thread":
        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
    if what == "environment":
        os.environ["LEFT"] = "behind"
    if what == "folder":
        os.chdir("/tmp")


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str"},
            "mode": {"type": "str", "default": "full"},
            "entries": {"type": "dict", "default": {}},
            "base": {"type": "dict"},
            "token": {"type": "list", "elements": "int", "default": []},
            "blob": {"type": "str", "no_log": True},
            "directory": {"type": "str"},
            "sleep_s": {"type": "float", "default": 0},
            "fail": {"type": "str"},
            "die": {"type": "bool", "default": False},
            "big_bytes": {"type": "int", "default": 0},
            "leave": {"type": "str"},
        },
        supports_check_mode=True,
    )
    options = module.params
    if options["directory"] and options["sleep_s"]:
        Path(options["directory"], "pid-" + options["node"]).write_text(str(os.getpid()))
    time.sleep(options["sleep_s"])
    if options["die"]:
        os.kill(os.getpid(), signal.SIGKILL)
    if options["fail"]:
        module.fail_json(msg=options["fail"])
    steps = []
    for key, entry in sorted(options["entries"].items()):
        path = Path(options["directory"], key)
        current = path.read_text() if path.exists() else None
        if current != str(entry):
            steps.append({"action": "write", "key": key, "detail": ""})
            if not module.check_mode:
                path.write_text(str(entry))
    leave(options["leave"])
    module.exit_json(
        changed=bool(steps),
        section="probe",
        steps=steps,
        diff={"before": "", "after": str(options["entries"])},
        status=options["entries"],
        errors={},
        due=[],
        digest="",
        base_mismatch=False,
        fenced=False,
        uid=os.getuid(),
        token=options["token"],
        parent=os.getppid(),
        pad="x" * options["big_bytes"],
    )


if __name__ == "__main__":
    main()
