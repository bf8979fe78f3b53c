#!/usr/bin/python
# Copyright: the minik8s authors
# Apache License 2.0 (see LICENSE)
"""Ansible module: the lock of a cluster's membership."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_membership_lock
short_description: Lock of a cluster's membership
description:
  - Playbooks that change machines, keys or programs of a cluster hold it, so that a second one fails at once instead of
    undoing half of what the first does. It is a file that names its holder; no process keeps it.
  - An action plugin of the same name runs on the controller first. It fills in O(holder) and finds out whether a
    holder on the same controller has ended (O(over)); for others, the claim expires.
  - The file is the only effect and says nothing about the cluster, so C(changed) is always false.
options:
  state:
    description: V(held) takes or renews the lock. V(free) releases it; a lock that somebody else holds stays.
    type: str
    choices: [held, free]
    required: true
  path:
    description: The file, in a directory where only root writes.
    type: path
    default: /run/minik8s-membership.json
  lasts_s: {description: Seconds after which a claim expires unless it is renewed., type: int, default: 1800}
  over: {description: "Id of a holder that has ended, or whose claim is to be broken.", type: str, default: ""}
  holder: {description: "Filled in by the action plugin. Its C(id) identifies one run.", type: dict, default: {}}
attributes:
  check_mode: {description: Says who holds the lock; neither takes nor refuses it., support: full}
  diff_mode: {description: There is nothing to show., support: none}
  idempotent: {description: A lock that is held by the same run is renewed., support: full}
author: the minik8s authors
"""

EXAMPLES = r"""
- name: The membership lock is held
  minik8s_membership_lock:
    state: held

- name: Others may
  minik8s_membership_lock:
    state: free
"""

RETURN = r"""
granted:
  description: Whether this run may go on; in check mode, whether it could.
  returned: always
  type: bool
reason:
  description: Why.
  returned: always
  type: str
  sample: it was free
holder:
  description: Who holds the lock after this, since when (C(since)) and until when (C(ends)); empty when nobody does.
  returned: always
  type: dict
  sample: {id: 5c0f2a91d3e4, user: root, host: admin1, pid: 4711, playbook: site.yml, since: "2026-01-05 10:00:00 UTC"}
"""

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.minik8s.install.membership_lock import Claim, Decision, Now, Place, machine_now, release, take


def decide(params: dict[str, Any], found: Claim | None, now: Now) -> Decision:
    """Return what comes of what is asked for."""
    if params["state"] == "free":
        return release(found, params["holder"])
    return take(found, params["holder"], params["lasts_s"], params["over"], now)


def carry_out(place: Place, params: dict[str, Any], now: Now, *, check_mode: bool) -> Decision:
    """Have the file be as decided; in check mode only decide, with nobody kept out."""
    if check_mode:
        return decide(params, place.look(), now)
    with place.alone() as descriptor:
        decision = decide(params, place.look(), now)
        if decision.granted:
            place.write(descriptor, decision.claim)
    return decision


def shown(claim: Claim | None, now: Now) -> dict[str, Any]:
    """Return a claim as people read it."""
    if claim is None:
        return {}
    left_s = claim.ends_in_s(now)
    times = {"since": _day(claim.since_day_s), "ends": _day(now.day_s + left_s), "ends_in_s": round(left_s)}
    return {**claim.holder, **times}


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def main() -> None:
    """Look, decide, write."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["held", "free"], "required": True},
            "path": {"type": "path", "default": "/run/minik8s-membership.json"},
            "lasts_s": {"type": "int", "default": 1800},
            "over": {"type": "str", "default": ""},
            "holder": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    if not module.params["holder"].get("id"):
        module.fail_json(
            msg="holder has no id: the action plugin of this module (action_plugins in ansible.cfg) fills it in"
        )
    now = machine_now()
    try:
        decision = carry_out(Place(module.params["path"]), module.params, now, check_mode=module.check_mode)
    except OSError as error:
        module.fail_json(msg=f"cannot use the lock {module.params['path']}: {error}")
    else:
        holder = shown(decision.claim, now)
        module.exit_json(changed=False, granted=decision.granted, reason=decision.reason, holder=holder)


if __name__ == "__main__":
    main()
