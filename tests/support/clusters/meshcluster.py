"""A machine with a mesh."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.clusters.labcluster import LabCluster


@contextmanager
def mesh_machine(lab_name: str) -> Iterator[LabCluster]:
    """Install a machine with a mesh; MINIK8S_MESH_ONE in the environment names a lab to use again and keep."""
    name = os.environ.get("MINIK8S_MESH_ONE") or lab_name
    made = LabCluster(name, control=1, workers=0, variables={"minik8s_mesh": True})
    try:
        made.up()
        if not made.kubeconfig.exists():
            made.install()
        yield made
    finally:
        if name == lab_name:
            made.close()
