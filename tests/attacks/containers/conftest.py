"""Attacks that need Docker's containers: a real API server, gateway and dockerd (tests/integration/streams)."""

from tests.integration.streams.conftest import streaming

__all__ = ["streaming"]
