"""The provider passes what every provider passes: ``pytest`` in this folder, where minik8s is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from processes import Processes

from minik8s_modules.virtual.contract import ProviderContract, new_pod
from minik8s_modules.virtual.errors import InvalidInput
from minik8s_modules.virtual.provider import ContainerLogOptions, InitConfig, Provider


class TestProcesses(ProviderContract):
    """See ProviderContract."""

    survives_restarts = True

    def make(self, config: InitConfig) -> Provider:
        """Return the provider."""
        return Processes(config)

    def pod(self, name: str, **spec: Any) -> dict[str, Any]:
        """Return a Pod of a process that runs for a minute."""
        made = new_pod(name, **spec)
        made["spec"]["containers"][0]["command"] = ["sleep", "60"]
        return made

    def test_a_process_writes_a_log_and_ends(self, tmp_path: Path) -> None:
        """What it wrote and how it ended is known."""
        provider = self.provider(tmp_path)
        pod = new_pod("ends")
        pod["spec"]["containers"][0] = {
            "name": "app",
            "command": ["sh", "-c", "echo $WHO; exit 3"],
            "env": [{"name": "WHO", "value": "me"}],
        }
        self._pods.append(pod)
        provider.create_pod(pod)
        self.until(lambda: self._phase(provider, "ends") == "Failed", "phase Failed")
        (told,) = provider.get_pod_status("default", "ends")["containerStatuses"]
        assert told["state"]["terminated"]["exitCode"] == 3
        assert b"".join(provider.get_container_logs("default", "ends", "app", ContainerLogOptions())) == b"me\n"

    def test_what_it_cannot_do_is_refused_with_the_reason(self, tmp_path: Path) -> None:
        """Nothing is accepted and ignored."""
        provider = self.provider(tmp_path)
        with pytest.raises(InvalidInput, match="needs a command"):
            provider.create_pod({**new_pod("a"), "spec": {"containers": [{"name": "app", "image": "x:1"}]}})
        with pytest.raises(InvalidInput, match=r"spec\.volumes is not possible here"):
            provider.create_pod(self.pod("a", volumes=[{"name": "v", "emptyDir": {}}]))
