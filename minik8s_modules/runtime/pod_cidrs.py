"""Claims the range of pod addresses of a node. Several processes may: the create decides, and never gives one twice."""

from __future__ import annotations

import logging

from minik8s_modules.api.errors import AlreadyExists
from minik8s_modules.api.kinds import NODE, POD_CIDR
from minik8s_modules.api.nodes.pod_cidrs import choose, claim_of
from minik8s_modules.client.interface import Api

log = logging.getLogger(__name__)


def claim_cidr(api: Api, cluster_cidr: str, node: str) -> str:
    """Return the range of ``node``, claiming the lowest free one if it has none; repeating is safe.

    Raises:
        NoCidrLeft: every block is taken.
        ApiUnreachable, StatusError: the API did not record the claim; asking again finds out.
    """
    refused: set[str] = set()
    while True:
        found = choose(cluster_cidr, node, api.list(NODE).items, api.list(POD_CIDR).items, refused)
        if found.claimed or found.cidr in refused:
            return found.cidr
        try:
            api.create(POD_CIDR, claim_of(found.cidr, node))
        except AlreadyExists:
            # somebody was faster, or the list was old; a range that the Node has already is looked at once more
            refused.add(found.cidr)
            continue
        log.info("range %s is claimed for node %s", found.cidr, node)
        return found.cidr
