"""The providers of this package pass what every provider passes."""

from __future__ import annotations

from minik8s_modules.virtual.contract import ProviderContract
from minik8s_modules.virtual.provider import InitConfig, Provider
from minik8s_modules.virtual.providers.mock import Mock
from minik8s_modules.virtual.providers.simulated import Simulated, Timeline


class TestMock(ProviderContract):
    """See ProviderContract."""

    def make(self, config: InitConfig) -> Provider:
        """Return a mock."""
        return Mock(config)


class TestSimulated(ProviderContract):
    """See ProviderContract."""

    config = {"stages": [{"when": "created", "next": "running", "delay": 0.01, "jitter": 0.02}]}  # noqa: RUF012 - read

    def make(self, config: InitConfig) -> Provider:
        """Return a simulated node."""
        return Simulated(config, Timeline())
