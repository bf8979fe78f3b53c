"""What a pass of services mends on a node whose nft fails: all else that Services need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.core.section import Request, context_for, run_pass
from minik8s_modules.module_utils.minik8s.services import services
from minik8s_modules.module_utils.minik8s.services.services import Services
from minik8s_modules.module_utils.minik8s.services.services_plan import FixedPart

PLANE = {
    "mode": "nftables",
    "table": "minik8s",
    "service_cidr": "100.0.0.0/16",
    "cluster_cidr": "10.32.0.0/16",
    "pod_cidr": "10.32.0.0/24",
    "bridge": "mk8s-br0",
    "gateway": "10.32.0.1",
    "node_ip": "192.0.2.7",
}


class Part:
    """A backend, or what it needs of the host; one aspect is to be mended, which fails with ``failure``."""

    def __init__(self, aspect: str, mended: list[str], failure: Exception | None = None) -> None:
        self._aspect, self._mended, self._failure = aspect, mended, failure

    def found(self, **_: bool) -> FixedPart:
        """Return that the aspect is wrong."""
        return FixedPart({self._aspect: ""}, {self._aspect: "there"})

    def mend(self, aspect: str) -> None:
        """Mend it, or fail."""
        if self._failure is not None:
            raise self._failure
        self._mended.append(aspect)

    def known(self) -> dict[str, str]:
        """Return nothing."""
        return {}


@pytest.mark.parametrize("failure", [KeyFault("NetworkNotReady", "nft -f -: no"), OSError("nft -f -: no")])
@pytest.mark.parametrize("hosts_failure", [None, KeyFault("NetworkNotReady", "another program's route")])
def test_a_node_whose_nft_fails_gets_its_routes_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, hosts_failure: Exception | None
) -> None:
    mended = list[str]()
    hosts = [Part("route", mended, hosts_failure), Part("ipv6 route", mended)]
    parts = (Part("rules", mended, failure), hosts)
    monkeypatch.setattr(services, "_parts", lambda *_, **__: parts)
    monkeypatch.setattr(services, "bridge_rules_possible", lambda: True)
    request: Any = Request("n1", state_dir=str(tmp_path), entries={"dataplane": PLANE})
    result = run_pass(Services(), request, context_for(request, checkpoint=lambda _: None, budget_s=600.0), check=False)
    assert mended == (["route", "ipv6 route"] if hosts_failure is None else ["ipv6 route"])
    assert "nft -f -: no" in result["errors"]["dataplane"]["message"]
