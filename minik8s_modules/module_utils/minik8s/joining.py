"""The passes of several sections in one call: what an item asks of a node costs one call, not one a section."""

from __future__ import annotations

import traceback
from typing import Any

from .core.faults import NodeFault
from .core.section import Request, context_for, run_pass
from .core.sections import HELD, SECTIONS
from .core.shell import ARGUMENTS as OF_SECTION
from .core.shell import HOLD, REQUIRED_IF
from .reapplying import SECTION_OBJECTS

ARGUMENTS: dict[str, dict[str, Any]] = {
    "sections": {"type": "dict", "required": True},
    "blob": {"type": "str", "no_log": True},
}


def run_sections(module: Any, validator: Any) -> None:
    """Run the passes for an ``AnsibleModule`` and exit with their results; the first that fails fails the module.

    ``validator`` is Ansible's ``ArgumentSpecValidator``.
    """
    wanted, results = module.params["sections"], dict[str, Any]()
    if unknown := sorted(set(wanted) - set(SECTIONS)):
        module.fail_json(msg=f"section {unknown[0]} is none of {', '.join(SECTIONS)}", sections={})
    for name in (one for one in SECTIONS if one in wanted):
        try:
            results[name] = _realized(name, wanted[name], module, validator)
        except NodeFault as fault:
            module.fail_json(msg=f"minik8s_{name}: {fault}", sections=results)
        except Exception as error:  # noqa: BLE001  one section's defect must not lose what was done before it
            module.fail_json(msg=f"minik8s_{name}: {error!r}", sections=results, exception=traceback.format_exc())
    module.exit_json(changed=any(one["changed"] for one in results.values()), sections=results)


def _realized(name: str, options: Any, module: Any, validator: Any) -> dict[str, Any]:
    """Return the result of a section's pass.

    Raises:
        NodeFault: its options cannot be used, or the pass as a whole failed.
    """
    if not isinstance(options, dict):
        raise NodeFault("its options are no dictionary")
    arguments = {**OF_SECTION, **(HOLD if name in HELD else {})}
    maps = [option for option, declared in arguments.items() if declared["type"] == "dict"]
    large = {option: options[option] for option in maps if isinstance(options.get(option), dict)}
    # the validator copies what it is given, so that it sees no entries
    small = {option: {} if option in large else value for option, value in options.items()}
    checked = validator(arguments, required_if=REQUIRED_IF).validate(small)
    if checked.error_messages:
        raise NodeFault("options that cannot be used: " + "; ".join(checked.error_messages))
    found = {**checked.validated_parameters, **large, "blob": module.params["blob"]}
    given: dict[str, Any] = {field: found.get(field) for field in Request._fields}
    request = Request(**given)
    context = context_for(request)
    try:
        return run_pass(SECTION_OBJECTS[name], request, context, check=module.check_mode)
    finally:
        context.docker.close()
