#!/usr/bin/python
# Copyright: the minik8s authors
# Apache License 2.0 (see LICENSE)
"""Ansible module: long-running programs under systemd or supervisor."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_daemons
short_description: Long-running programs under systemd or supervisor
description:
  - Defines each program for the machine's service manager, enabled and running.
  - A program whose definition or watched files changed since its start is restarted, one of which only files changed
    that it reads again is told so; others are left alone.
options:
  manager:
    description: The service manager of the machine.
    type: str
    choices: [systemd, supervisor]
    required: true
  daemons:
    description: The programs, in the order in which they start.
    type: list
    elements: dict
    default: []
    suboptions:
      name: {description: Name of the unit or program., type: str, required: true}
      description: {description: One line for people., type: str, required: true}
      command: {description: Absolute path and arguments., type: list, elements: str, required: true}
      prepare:
        description: What root runs before each start. Unless it succeeds, the program is not started.
        type: list
        elements: str
        default: []
      user: {description: User that runs it; its groups apply., type: str, default: root}
      after: {description: Names of units that start before it (systemd)., type: list, elements: str, default: []}
      watch:
        description: Files it reads when it starts. The program is restarted when one of them changes.
        type: list
        elements: path
        default: []
      reread:
        description: Files it reads again when it gets SIGHUP. When nothing but them changes, it gets that, and goes on.
        type: list
        elements: path
        default: []
      environment: {description: Its environment., type: dict, default: {}}
      stop_timeout_s: {description: Seconds from SIGTERM to SIGKILL., type: int, default: 20}
      kill_children: {description: Whether its child processes are ended with it., type: bool, default: true}
      confinement:
        description:
          - What it may; all else is kept from it, as far as the service manager and the kernel can.
          - supervisor knows no I(writes) and no I(peers), and keeps no system calls from a program.
        type: dict
        default: {}
        suboptions:
          writes: {description: The only directories it may write to., type: list, elements: str, default: []}
          capabilities:
            description: The only capabilities it has, as C(net_bind_service).
            type: list
            elements: str
            default: []
          peers: {description: The only addresses it may talk to; none for all., type: list, elements: str, default: []}
          exceptions:
            description:
              - Why it may more, by what it may - C(new-privileges) to become root by sudo, C(shared-mounts) to see and
                make the machine's mounts, C(later-mounts) to see those made after its start, C(common-umask) to write
                what others read, C(all-processes) to see those of other users, C(all-capabilities) of root,
                C(netlink) to ask for the machine's addresses, C(everything).
            type: dict
            default: {}
  absent:
    description: Names of programs to stop and remove.
    type: list
    elements: str
    default: []
attributes:
  check_mode: {description: Says what would be defined and restarted., support: full}
  diff_mode: {description: Shows the definitions., support: full}
  idempotent: {description: A running program with the declared definition is left alone., support: full}
author: the minik8s authors
"""

EXAMPLES = r"""
- name: The scheduler runs
  minik8s_daemons:
    manager: supervisor
    daemons:
      - name: minik8s-scheduler
        description: minik8s scheduler
        command: [/opt/minik8s/venv/bin/minik8s-scheduler, --config, /etc/minik8s/scheduler.yml]
        user: minik8s
        confinement: {peers: [localhost]}
        watch: [/etc/minik8s/scheduler.yml, /etc/minik8s/scheduler.kubeconfig]
"""

RETURN = r"""
steps:
  description: What was done (in check mode, would be done).
  returned: always
  type: list
  elements: dict
  sample: [{action: define, name: minik8s-scheduler}]
"""

import shutil
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.minik8s.core.owned_files import write_file
from ansible.module_utils.minik8s.install.daemons import (
    Confinement,
    Daemon,
    DaemonState,
    DaemonStep,
    path_of,
    plan_daemons,
    render,
    restart_key,
)

SPEC = {
    "name": {"type": "str", "required": True},
    "description": {"type": "str", "required": True},
    "command": {"type": "list", "elements": "str", "required": True},
    "prepare": {"type": "list", "elements": "str", "default": []},
    "user": {"type": "str", "default": "root"},
    "after": {"type": "list", "elements": "str", "default": []},
    "watch": {"type": "list", "elements": "path", "default": []},
    "reread": {"type": "list", "elements": "path", "default": []},
    "environment": {"type": "dict", "default": {}},
    "stop_timeout_s": {"type": "int", "default": 20},
    "kill_children": {"type": "bool", "default": True},
    "confinement": {
        "type": "dict",
        "default": {},
        "options": {
            "writes": {"type": "list", "elements": "str", "default": []},
            "capabilities": {"type": "list", "elements": "str", "default": []},
            "peers": {"type": "list", "elements": "str", "default": []},
            "exceptions": {"type": "dict", "default": {}},
        },
    },
}


def declared(entry: dict[str, Any]) -> Daemon:
    """Return one entry of the options as a value."""
    environment = tuple((str(name), str(value)) for name, value in sorted(entry["environment"].items()))
    lists = {key: tuple(entry[key]) for key in ("command", "prepare", "after", "watch", "reread")}
    given = entry["confinement"]
    exceptions = {str(name): str(why) for name, why in (given.get("exceptions") or {}).items()}
    confinement = Confinement(**{**given, "exceptions": exceptions})
    return Daemon(**{**entry, **lists, "environment": environment, "confinement": confinement})


def keys(daemon: Daemon) -> tuple[str, str]:
    """Return the restart key and the reload key, "" for none, of the files as they are."""
    return restart_key(daemon.watch), restart_key(daemon.reread) if daemon.reread else ""


class Manager:
    """The service manager, by its own command."""

    def __init__(self, module: AnsibleModule, kind: str) -> None:
        self._module = module
        self._kind = kind

    def observe(self, name: str) -> DaemonState:
        """Return the definition of ``name`` on disk and whether the manager runs it."""
        path = Path(path_of(self._kind, name))
        definition = path.read_text(encoding="utf-8") if path.exists() else None
        if self._kind == "systemd":
            code, _output = self._call(["systemctl", "is-active", "--quiet", name])
            return DaemonState(definition, running=code == 0)
        _code, output = self._call(["supervisorctl", "status", name])
        return DaemonState(definition, running=output.split()[1:2] in (["RUNNING"], ["STARTING"]))

    def apply(self, step: DaemonStep, definitions: dict[str, str]) -> None:
        """Carry out one step.

        Raises:
            RuntimeError: the manager's command failed; the message holds its output.
        """
        path = path_of(self._kind, step.name)
        if step.action == "define":
            write_file(path, definitions[step.name].encode(), ("root", "root", "0644"))
        commands = self._systemd(step) if self._kind == "systemd" else self._supervisor(step)
        for command in commands:
            code, output = self._call(command)
            if code:
                raise RuntimeError(f"{' '.join(command)} failed ({code}): {output.strip()}")
        if step.action == "remove":
            Path(path).unlink(missing_ok=True)
            for command in self._forget(step.name):
                self._call(command)

    def _systemd(self, step: DaemonStep) -> list[list[str]]:
        return {
            "define": [["systemctl", "enable", step.name]],  # systemd reads all units again then
            "restart": [["systemctl", "restart", step.name]],
            "reload": [["systemctl", "kill", "--kill-who=main", "--signal=HUP", step.name]],
            "start": [["systemctl", "start", step.name]],
            "remove": [["systemctl", "disable", "--now", step.name]],
        }[step.action]

    def _supervisor(self, step: DaemonStep) -> list[list[str]]:
        return {
            "define": [["supervisorctl", "reread"], ["supervisorctl", "update", step.name]],
            "start": [
                ["supervisorctl", "reread"],
                ["supervisorctl", "update", step.name],
                ["supervisorctl", "start", step.name],
            ],
            "reload": [["supervisorctl", "signal", "HUP", step.name]],
            "remove": [],
        }[step.action]

    def _forget(self, name: str) -> list[list[str]]:
        if self._kind == "systemd":
            return [["systemctl", "daemon-reload"]]
        return [["supervisorctl", "reread"], ["supervisorctl", "update", name]]

    def _call(self, command: list[str]) -> tuple[int, str]:
        if shutil.which(command[0]) is None:  # in check mode the manager may not be installed yet
            return 127, f"{command[0]} is not installed"
        code, output, error = self._module.run_command(command)
        return code, output + error


def main() -> None:
    """Observe, plan, apply, report."""
    module = AnsibleModule(
        argument_spec={
            "manager": {"type": "str", "choices": ["systemd", "supervisor"], "required": True},
            "daemons": {"type": "list", "elements": "dict", "default": [], "options": SPEC},
            "absent": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    kind, absent = module.params["manager"], module.params["absent"]
    manager = Manager(module, kind)
    wanted: dict[str, str] = {}
    found: dict[str, DaemonState] = {}
    steps: list[DaemonStep] = []
    try:
        daemons = [declared(entry) for entry in module.params["daemons"]]
        wanted = {daemon.name: render(kind, daemon, *keys(daemon)) for daemon in daemons}
        found = {name: manager.observe(name) for name in [*wanted, *absent]}
        steps = plan_daemons(wanted, absent, found, kind)
        if not module.check_mode:
            for step in steps:
                manager.apply(step, wanted)
    except (ValueError, OSError, RuntimeError) as error:
        module.fail_json(msg=str(error))
    diff = [
        {
            "before_header": name,
            "after_header": name,
            "before": found[name].definition or "",
            "after": wanted.get(name, ""),
        }
        for name in dict.fromkeys(step.name for step in steps)
    ]
    module.exit_json(changed=bool(steps), steps=[step._asdict() for step in steps], diff=diff)


if __name__ == "__main__":
    main()
