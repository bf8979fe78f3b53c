#!/usr/bin/python
# Copyright: the minik8s authors
# Apache License 2.0 (see LICENSE)
"""Ansible module: exchange a certificate authority for a new one in phases, both trusted in between."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_authorities
short_description: Exchange a certificate authority while both are trusted
description:
  - Completes one phase of an exchange. Its progress is read from the files, so a completed phase changes nothing, and
    the next run continues one that was killed.
  - The file of the certificate holds every trusted authority, the signing one first. The new pair waits beside the
    old one with C(.next) after its names; M(minik8s_certificates) makes it.
options:
  certificate:
    description: File of the trusted certificates.
    type: path
    required: true
  key:
    description: File of the signing authority's key.
    type: path
    required: true
  phase:
    description:
      - V(observe) only reports the phase. V(prepare) makes the waiting authority trusted too. V(switch) makes it the
        signing one. V(finish) trusts it alone.
    type: str
    choices: [observe, prepare, switch, finish]
    default: observe
attributes:
  check_mode: {description: Says what would be done., support: full}
  diff_mode: {description: Shows one line a step with its reason; never key material., support: full}
  idempotent: {description: A phase that is over changes nothing., support: full}
author: the minik8s authors
"""

EXAMPLES = r"""
- name: The waiting authority is trusted, too
  minik8s_authorities:
    certificate: /etc/minik8s/pki/ca.crt
    key: /etc/minik8s/pki/ca.key
    phase: prepare
"""

RETURN = r"""
stage:
  description: How far the exchange had come before this phase.
  returned: always
  type: str
  sample: settled
steps:
  description: What was done (in check mode, would be done), with the reason.
  returned: always
  type: list
  elements: dict
  sample: [{action: write, reason: "the new authority is trusted, too"}]
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.minik8s.core.files import read_bytes, remove_file
from ansible.module_utils.minik8s.core.owned_files import access_of, write_file
from ansible.module_utils.minik8s.install.authorities import (
    PHASES,
    AuthorityFiles,
    AuthorityStep,
    TooEarly,
    certificates_in,
    plan_exchange,
    stage,
    waiting_place,
)


def observe(certificate: str, key: str) -> AuthorityFiles:
    """Return what stands in the four files."""
    trusted = certificates_in((read_bytes(certificate) or b"").decode("ascii", "replace"))
    waiting = certificates_in((read_bytes(waiting_place(certificate)) or b"").decode("ascii", "replace"))
    return AuthorityFiles(trusted, "".join(waiting[:1]), Path(waiting_place(key)).exists())


def apply(step: AuthorityStep, certificate: str, key: str) -> None:
    """Carry out one step; each leaves files that the next run can continue from."""
    if step.action == "write":
        write_file(certificate, "".join(step.trusted).encode(), access_of(certificate))
    elif step.action == "take":
        Path(waiting_place(key)).replace(key)
    else:
        remove_file(waiting_place(certificate))


def main() -> None:
    """Observe, plan, apply, report."""
    module = AnsibleModule(
        argument_spec={
            "certificate": {"type": "path", "required": True},
            "key": {"type": "path", "required": True, "no_log": False},
            "phase": {"type": "str", "choices": list(PHASES), "default": "observe"},
        },
        supports_check_mode=True,
    )
    certificate, key = module.params["certificate"], module.params["key"]
    steps: list[AuthorityStep] = []
    found = AuthorityFiles((), "", waiting_key=False)
    try:
        found = observe(certificate, key)
        steps = plan_exchange(module.params["phase"], found)
        for step in [] if module.check_mode else steps:
            apply(step, certificate, key)
    except TooEarly as error:
        if not module.check_mode:  # what comes before it has not been done in a check
            module.fail_json(msg=f"{certificate}: {error}")
    except OSError as error:
        module.fail_json(msg=f"cannot exchange the authority in {certificate}: {error}")
    reported: list[dict[str, Any]] = [{"action": step.action, "reason": step.reason} for step in steps]
    lines = "".join(f"{certificate}: {step.reason}\n" for step in steps)
    module.exit_json(changed=bool(steps), stage=stage(found), steps=reported, diff={"before": "", "after": lines})


if __name__ == "__main__":
    main()
