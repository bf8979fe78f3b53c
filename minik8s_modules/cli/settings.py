"""What ``--set`` says, checked before it is used: a name that a role declares, a value that the role takes.

Roles declare their variables in ``meta/argument_specs.yml``. The preflight check of the playbooks holds values against
these, too, and ranges against each other, but only once machines answer; and nothing else ever looks at names.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from minik8s_modules.base import release
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.module_utils.minik8s.install.ranges import Ranges, Underlay, range_problems

SHARD = "^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$"
"""As in roles/preflight."""
_CONNECTION = "ansible_"
_OPTION = re.compile("[a-z][a-z0-9_]*")
_TEXTS = {"path": "str"}  # a path is the machine's: its ~ is nobody's here


def parse_variables(given: Sequence[str]) -> dict[str, Any]:
    """Return the variables of ``--set``, with values of the types that roles declare.

    Variables of connections (``ansible_…``) are Ansible's own, and are passed on.

    Raises:
        UsageError: one is not VARIABLE=VALUE, no role has it, or its role does not take the value.
    """
    found: dict[str, Any] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not _OPTION.fullmatch(name):
            raise UsageError(f"--set {each}: write VARIABLE=VALUE, such as minik8s_shard=hall2")
        if "{{" in value or "{%" in value:
            raise UsageError(f"--set {name}: the value is a template; write the value itself")
        found[name] = value
    options = _options() if found else {}
    return {name: _taken(name, value, options) for name, value in found.items()}


def check_ranges(variables: Mapping[str, Any], nodes: int) -> None:
    """Refuse ranges and addresses that no cluster of so many nodes can have, whatever its machines are like.

    Raises:
        UsageError: in the words of the preflight check.
    """
    options = _options()

    def said(name: str) -> Any:
        return variables.get(name, options[name].get("default", ""))

    pods, driver = said("minik8s_cluster_cidr"), said("minik8s_network_driver")
    name_server = "fd00:169:254:20::10" if ":" in pods else said("minik8s_dns_address")  # as roles/minik8s/defaults
    # where nobody says the family of tunnels, it follows that of Services
    underlay = Underlay(driver, variables.get("minik8s_network_underlay", ""), said("minik8s_network_direct"))
    wanted = Ranges(
        pods,
        said("minik8s_service_cidr"),
        nodes,
        foreign_pods=driver in {"cni", "weave"},
        cluster_cidr_ipv6=said("minik8s_cluster_cidr_ipv6"),
        service_cidr_ipv6=said("minik8s_service_cidr_ipv6"),
        address=said("minik8s_node_address"),
        underlay=underlay,
        mesh=said("minik8s_mesh"),
        dns_address=variables.get("minik8s_dns_address", name_server),
    )
    needed = ["minik8s_service_cidr"] if wanted.foreign_pods else ["minik8s_service_cidr", "minik8s_cluster_cidr"]
    empty = [
        f"{each} is empty: write a network, such as {options[each]['default']}" for each in needed if not said(each)
    ]
    if problems := [*empty, *range_problems(wanted, [])]:
        raise UsageError(f"--set: {'; '.join(problems)}")


def _options() -> dict[str, Any]:
    """Return what the roles say of their variables, all in one."""
    specs = sorted((release.root() / "roles").glob("*/meta/argument_specs.yml"))
    found: dict[str, Any] = {}
    for path in specs:
        found |= yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"]["main"].get("options") or {}
    return found


def _taken(name: str, value: str, options: Mapping[str, Any]) -> Any:
    """Return a value as its role takes it."""
    from ansible.module_utils.common.arg_spec import ArgumentSpecValidator  # noqa: PLC0415 - few commands need it

    if name.startswith(_CONNECTION):
        return value
    if name not in options:
        near = difflib.get_close_matches(name, options, 1)
        raise UsageError(
            f"--set {name}: no role has such a variable{f'; is it {near[0]}?' if near else ''} "
            "(`ansible-doc -t role -r roles minik8s` describes them)"
        )
    option = {key: _TEXTS.get(text, text) if key in {"type", "elements"} else text
              for key, text in options[name].items()}  # fmt: skip
    result = ArgumentSpecValidator({name: option}).validate({name: value})
    if result.error_messages:
        raise UsageError(f"--set {name}={value}: {'; '.join(result.error_messages)}")
    if name == "minik8s_shard" and not re.fullmatch(SHARD, value):
        raise UsageError(
            f'--set: minik8s_shard is "{value}": it must be up to 32 lower-case letters, digits and hyphens, and must '
            "not begin or end with a hyphen"
        )
    return result.validated_parameters[name]
