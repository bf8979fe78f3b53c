"""The shell of a section's Ansible module: options in, one pass, result out."""

from __future__ import annotations

from typing import Any

from .faults import NodeFault
from .paths import PLACES
from .section import AnySection, Request, context_for, run_pass

ARGUMENTS: dict[str, dict[str, Any]] = {
    "node": {"type": "str", "required": True},
    "mode": {"type": "str", "choices": ["full", "delta"], "default": "full"},
    "entries": {"type": "dict"},
    "base": {"type": "str"},
    "upsert": {"type": "dict"},
    "delete": {"type": "list", "elements": "str"},
    "token": {"type": "list", "elements": "int", "no_log": False},
    **PLACES,
}
HOLD: dict[str, dict[str, Any]] = {"hold": {"type": "list", "elements": "str"}}
"""Of sections whose keys are independent, so that one can be left as it is."""
REQUIRED_IF = [("mode", "full", ["entries"]), ("mode", "delta", ["base"])]


def run_module(module: Any, section: AnySection) -> None:
    """Run one pass for an ``AnsibleModule`` and exit with its result; a fault of the whole pass fails the module."""
    request = Request(**{name: module.params.get(name) for name in Request._fields})
    context = context_for(request)
    try:
        result = run_pass(section, request, context, check=module.check_mode)
    except NodeFault as fault:
        module.fail_json(msg=f"minik8s_{section.name} on {request.node}: {fault}")
    else:
        module.exit_json(**result)
    finally:
        context.docker.close()
