#!/usr/bin/python
# Copyright: the minik8s authors
# Apache License 2.0 (see LICENSE)
"""Ansible module: the members of an etcd cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_etcd_members
short_description: Members of an etcd cluster
description:
  - Asks one running member, over its JSON gateway with a client certificate. etcd is neither started nor stopped.
  - A member joins in two calls, V(joining) before it is started the first time and V(voting) after; in between it is a
    learner, so that nothing depends on it before it has all the data.
options:
  state:
    description:
      - V(only) gives the asked member the peer URL O(peer) and removes the members that have none of O(peers).
      - V(joining) announces a learner with the peer URL O(peer). One that has been started before is replaced, since
        its machine has lost its data.
      - V(voting) waits until the learner with the peer URL O(peer) has all data, and promotes it.
    type: str
    choices: [only, joining, voting]
    required: true
  peer: {description: Peer URL of the member meant., type: str, required: true}
  name: {description: "Its name, for RV(initial_cluster).", type: str, default: ""}
  peers: {description: Peer URLs of all declared members., type: list, elements: str, default: []}
  endpoint: {description: Client URL of the member that is asked., type: str, default: "https://127.0.0.1:2379"}
  ca: {description: File of etcd's authority., type: path, required: true}
  cert: {description: File of the client's certificate., type: path, required: true}
  key: {description: File of its key., type: path, required: true}
  wait_s: {description: How long to wait for a learner or a silent member., type: int, default: 120}
attributes:
  check_mode: {description: Says what would be done; an etcd that does not run yet is no failure., support: full}
  diff_mode: {description: Shows one line a step with its reason., support: full}
  idempotent: {description: Members that are as declared are left alone., support: full}
author: the minik8s authors
"""

EXAMPLES = r"""
- name: A second member may be started
  minik8s_etcd_members:
    state: joining
    name: control2
    peer: https://192.0.2.12:2380
    ca: /etc/minik8s/pki/etcd/ca.crt
    cert: /etc/minik8s/pki/etcd/apiserver-client.crt
    key: /etc/minik8s/pki/etcd/apiserver-client.key
"""

RETURN = r"""
initial_cluster:
  description: The option of that name with which a joining member is started.
  returned: when O(state=joining) and O(name) is given
  type: str
  sample: control1=https://192.0.2.11:2380,control2=https://192.0.2.12:2380
peers:
  description: Peer URLs of the members there are then; in check mode, and before etcd runs, those there were.
  returned: always
  type: list
  elements: str
  sample: ["https://192.0.2.11:2380"]
steps:
  description: What was done (in check mode, would be done), with the reason.
  returned: always
  type: list
  elements: dict
  sample: [{action: add, id: "", peer: "https://192.0.2.12:2380", reason: it joins}]
"""

import contextlib
import http
import json
import ssl
import time
import urllib.error
import urllib.request
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.minik8s.install.etcd_members import (
    Member,
    MemberStep,
    NoSuchMember,
    initial_cluster,
    members_of,
    plan_joining,
    plan_only,
    plan_voting,
)

CALL_S = 10
RETRY_S = 0.5


class Refused(Exception):
    """etcd's answer is an error; the text is etcd's."""


class NoGateway(Exception):
    """The member answers only gRPC."""


class Etcd:
    """Calls on one member's JSON gateway."""

    def __init__(self, endpoint: str, context: ssl.SSLContext) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._context = context

    def call(self, what: str, **body: Any) -> dict[str, Any]:
        """Return the answer to ``/v3/cluster/member/<what>``. Raises Refused, or OSError without an answer."""
        request = urllib.request.Request(  # noqa: S310 - the scheme is the administrator's
            f"{self._endpoint}/v3/cluster/member/{what}", json.dumps(body).encode(), method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=CALL_S, context=self._context) as answer:  # noqa: S310
                return dict(json.loads(answer.read()))
        except urllib.error.HTTPError as error:
            if error.code == http.HTTPStatus.NOT_FOUND:
                raise NoGateway("it has no JSON gateway; start it with enable-grpc-gateway: true") from error
            raise Refused(error.read(2000).decode(errors="replace")) from error

    def members(self) -> tuple[str, list[Member]]:
        """Return the id of the member that answers, and all members."""
        answer = self.call("list")
        return str(answer["header"]["member_id"]), members_of(answer)


def plan(params: dict[str, Any], own_id: str, members: list[Member]) -> list[MemberStep]:
    """Return the steps to what is declared."""
    peer: str = params["peer"]
    if params["state"] == "only":
        return list(plan_only(members, own_id, peer, [*params["peers"], peer]))
    return list(plan_joining(members, peer) if params["state"] == "joining" else plan_voting(members, peer))


def apply(etcd: Etcd, step: MemberStep) -> None:
    """Carry out one step."""
    body: dict[str, Any] = {"ID": step.id} if step.id else {"isLearner": True}
    if step.action in {"add", "update"}:
        body["peerURLs"] = [step.peer]
    etcd.call(step.action, **body)


def apply_one(etcd: Etcd, steps: list[MemberStep]) -> MemberStep:
    """Carry out the first step that etcd does not refuse, of those that do the same, and return it.

    Of several members to remove etcd refuses those that live while another one that is dead would be left.
    """
    for step in steps:
        if step.action == steps[0].action:
            with contextlib.suppress(Refused):
                apply(etcd, step)
                return step
    apply(etcd, steps[0])
    return steps[0]


def carry_out(etcd: Etcd, params: dict[str, Any], done: list[MemberStep]) -> list[Member]:
    """Take one step after another, planned again each time, and return the members there are then.

    A learner that lags and a cluster that is electing are asked again until ``wait_s`` is over.
    """
    end = time.monotonic() + params["wait_s"]
    while True:
        try:
            own_id, members = etcd.members()
            steps = plan(params, own_id, members)
            if not steps:
                return members
            done.append(apply_one(etcd, steps))
        except (Refused, OSError):  # noqa: PERF203 - each round is a call over the network
            if time.monotonic() > end:
                raise
            time.sleep(RETRY_S)


def main() -> None:
    """Observe, plan, apply, report."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["only", "joining", "voting"], "required": True},
            "peer": {"type": "str", "required": True},
            "name": {"type": "str", "default": ""},
            "peers": {"type": "list", "elements": "str", "default": []},
            "endpoint": {"type": "str", "default": "https://127.0.0.1:2379"},
            "ca": {"type": "path", "required": True},
            "cert": {"type": "path", "required": True},
            "key": {"type": "path", "required": True, "no_log": False},
            "wait_s": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    params = module.params
    steps: list[MemberStep] = []
    members: list[Member] = []
    try:
        context = ssl.create_default_context(cafile=params["ca"])
        context.load_cert_chain(params["cert"], params["key"])
        etcd = Etcd(params["endpoint"], context)
        if module.check_mode:
            own_id, members = etcd.members()
            steps = plan(params, own_id, members)
        else:
            members = carry_out(etcd, params, steps)
    except (OSError, Refused, NoGateway, NoSuchMember) as error:
        if not module.check_mode:  # nothing runs yet in a check of an installation
            module.fail_json(msg=f"cannot change the members of etcd at {params['endpoint']}: {error}")
    lines = "".join(f"{step.action} {step.peer}: {step.reason}\n" for step in steps)
    peers = [url for member in members for url in member.peers]
    membership = {"initial_cluster": initial_cluster(members, params["name"], params["peer"])} if params["name"] else {}
    module.exit_json(
        changed=bool(steps),
        peers=peers,
        steps=[step._asdict() for step in steps],
        diff={"before": "", "after": lines},
        **membership,
    )


if __name__ == "__main__":
    main()
