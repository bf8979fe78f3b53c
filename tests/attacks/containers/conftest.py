"""Attacks that need Docker's containers.

``streaming`` is a real API server, gateway and dockerd; ``node`` the node's modules on the shared dockerd; ``cluster``
all daemons with one node that has a CoreDNS and an nginx.
"""

from tests.integration.library.conftest import node
from tests.integration.naming.conftest import cluster
from tests.integration.streams.conftest import streaming

__all__ = ["cluster", "node", "streaming"]
