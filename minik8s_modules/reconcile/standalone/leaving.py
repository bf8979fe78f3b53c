"""How a node with a reconciler of its own leaves: the Node goes, then everything of ours on the machine.

The order matters. The Node goes while the machine still runs its pods, so the control plane replaces them at once;
where the API does not answer, the machine stays as it is, since somebody else might count on its pods. Then the machine
is emptied by the same modules that filled it, with an empty document; only a machine that is empty gives its addresses
and its range back.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from pathlib import Path

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound, StatusError
from minik8s_modules.api.kinds import LEASE, NODE, POD_ADDRESS, POD_CIDR, Kind
from minik8s_modules.base.clock import Clock
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.kubeconfig import load_kubeconfig
from minik8s_modules.module_utils.minik8s.core.fencing import stored_token
from minik8s_modules.module_utils.minik8s.core.sections import SECTIONS
from minik8s_modules.reconcile.executor.runner import AnsibleRunner
from minik8s_modules.reconcile.standalone.daemon_configs import Machine, shard_of
from minik8s_modules.reconcile.standalone.files import Home
from minik8s_modules.reconcile.values.items import OnOutcome, Outcome, Runner, SectionRequest, WorkItem

log = logging.getLogger(__name__)
PATIENCE_S = 30.0
EMPTYING_S = 120.0
RETRY_S = 2.0
_MOST_PASSES = 20


def leave(machine: Machine, home: Home, stop_gateway: Callable[[], None], clock: Clock) -> int:
    """Take the node out of the cluster; return the exit code: 0, or 1 where something of it is left."""
    api = ApiClient.of(load_kubeconfig(home.path("kubeconfig")), user_agent="minik8s-node", timeout_s=5.0)
    try:
        if not unregister(api, machine.node, clock):
            return 1
        stop_gateway()
        if not empty(machine, _ansible(machine, home.path("hosts.yml"))):
            return 1
        return 0 if _patiently(lambda: give_back(api, machine.node), clock) else 1
    finally:
        api.close()


def unregister(api: ApiClient, node: str, clock: Clock) -> bool:
    """Delete the Node; return whether it is gone."""
    if _patiently(lambda: _delete(api, NODE, node), clock):
        log.info("node %s is unregistered", node)
        return True
    log.error("node %s stays registered, and its pods stay: the API does not answer; start it again, or: %s", node,
              f"kubectl delete node {node}")  # fmt: skip
    return False


def give_back(api: ApiClient, node: str) -> None:
    """Release addresses, range and Leases of a node whose machine is empty. Raises as the API does."""
    for kind in (POD_ADDRESS, POD_CIDR):
        for claim in api.list(kind).items:
            if objects.spec(claim).get("nodeName") == node:
                _delete(api, kind, objects.name(claim))
    _delete(api, LEASE, node, "kube-node-lease")
    _delete(api, LEASE, f"minik8s-reconciler-{shard_of(node)}", "kube-system")


def _delete(api: ApiClient, kind: Kind, name: str, namespace: str = "") -> None:
    try:
        api.delete(kind, name, namespace)
    except NotFound:
        log.debug("%s %s is gone already", kind.kind, name)


def _patiently(call: Callable[[], None], clock: Clock) -> bool:
    end_s = clock.monotonic() + PATIENCE_S
    while True:
        try:
            call()
        except (TemporaryError, StatusError) as error:
            log.warning("%s; trying again", error)
        else:
            return True
        if clock.monotonic() >= end_s:
            return False
        clock.wait(threading.Event(), RETRY_S)


def _ansible(machine: Machine, inventory: Path) -> Callable[[OnOutcome], Runner]:
    private = Path(machine.run_dir) / "agent" / "leaving"

    def make(on_outcome: OnOutcome) -> Runner:
        return AnsibleRunner(
            inventory=inventory,
            private_data_dir=private,
            project_dir=Path(machine.project_dir),
            on_outcome=on_outcome,
        )

    return make


def empty(machine: Machine, make_runner: Callable[[OnOutcome], Runner]) -> bool:
    """Remove everything of ours from the machine; return whether nothing is left."""
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    runner = make_runner(outcomes.put)
    runner.start()
    try:
        for number in range(_MOST_PASSES):
            runner.submit(_nothing(machine, number))
            left = remaining(outcomes.get(timeout=EMPTYING_S))
            if not left:
                return True
            log.info("still on the machine: %s", "; ".join(left[:5]))
    except queue.Empty:
        log.warning("a pass over the machine took more than %g s", EMPTYING_S)
    finally:
        runner.stop()
    log.error("the machine is not empty; playbooks/reset.yml removes what is left")
    return False


def _nothing(machine: Machine, number: int) -> WorkItem:
    """Return the item that declares nothing; pods go before what they stand on."""
    found = stored_token(machine.state_dir)
    token = (int(found[0]), int(found[1])) if found else ()
    options = {"mode": "full", "entries": {}, **({"token": list(token)} if token else {})}
    sections = {section: SectionRequest(dict(options)) for section in SECTIONS}
    return WorkItem(f"leave-{number}", machine.node, False, token, sections)  # noqa: FBT003


def remaining(outcome: Outcome) -> list[str]:
    """Return what a pass has left, as texts."""
    if outcome.status != "ok":
        return [outcome.message or outcome.status]
    found = []
    for section, result in outcome.sections.items():
        found += [f"{section}/{due['key']}: {due['reason']}" for due in result.get("due") or []]
        found += [f"{section}/{key}: {error['message']}" for key, error in (result.get("errors") or {}).items()]
        if result.get("fenced") or result.get("failed"):
            found.append(f"{section}: {result.get('msg') or 'another reconciler has the node'}")
    return found
