"""Nobody's Pod gets a port of the cluster DNS by naming its address, as the playbook tells API servers of it.

The attack: name it as ``hostIP`` in an installation that says nothing of the address, which is 169.254.20.10 then.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.apiserver import own_server
from tests.unit.installation.test_machine_addresses import NEW, NEW_SERVICES, OLD, OLD_SERVICES, rendered

OF_IPV6 = {"minik8s_cluster_cidr": "fd00:10:244::/48"}


@pytest.mark.parametrize(
    ("machine", "services", "given", "address"),
    [(OLD, OLD_SERVICES, {}, "169.254.20.10"), (NEW, NEW_SERVICES, OF_IPV6, "FD00:169:254:20:0::10")],
)
def test_no_pod_names_the_clusters_dns(
    tmp_path: Path, machine: tuple[str, ...], services: str, given: dict[str, Any], address: str
) -> None:
    told = rendered(machine[:1], services, **given)["control_plane_additions"]["apiserver"]
    with own_server(tmp_path, **told) as server:
        for field, more in (("containers", {}), ("initContainers", {"restartPolicy": "Always"})):
            for asked, code in ((address, 403), (machine[0], 201)):
                port = {"containerPort": 53, "hostPort": 53, "protocol": "UDP", "hostIP": asked}
                one = {"name": "dns", "image": "i", "ports": [port], **more}
                spec = {"containers": [{"name": "app", "image": "i"}], field: [one]}
                body = {"metadata": {"generateName": "p-"}, "spec": spec}
                answer = server.request("POST", "/api/v1/namespaces/default/pods", body)
                assert answer.code == code, answer.body
