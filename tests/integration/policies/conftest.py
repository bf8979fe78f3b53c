"""A lab node with a kernel of its own, as for Services."""

from __future__ import annotations

from tests.integration.services.conftest import lab

__all__ = ["lab"]
