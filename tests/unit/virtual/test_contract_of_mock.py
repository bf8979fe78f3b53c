"""The provider mock passes what every provider passes."""

from minik8s_modules.virtual.contract import ProviderContract
from minik8s_modules.virtual.provider import InitConfig, Provider
from minik8s_modules.virtual.providers.mock import Mock


class TestMock(ProviderContract):
    """See ProviderContract."""

    def make(self, config: InitConfig) -> Provider:
        """Return a mock."""
        return Mock(config)
