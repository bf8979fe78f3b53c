"""Attacks that need Docker's containers.

``streaming`` is a real API server, gateway and dockerd; ``node`` the node's modules on the shared dockerd.
"""

from tests.integration.library.conftest import node
from tests.integration.streams.conftest import streaming

__all__ = ["node", "streaming"]
