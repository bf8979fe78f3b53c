"""The configuration of housekeeping, and that the installation's is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.reconcile.housekeeping.garbage import ContainerPolicy
from minik8s_modules.reconcile.housekeeping.image_gc import ImagePolicy
from minik8s_modules.reconcile.housekeeping.policies import Policies, read_policies

ROOT = Path(__file__).resolve().parents[4]


def read(**given: Any) -> Policies:
    return read_policies(Configuration({"housekeeping": given}, "reconciler.yml"))


def test_what_is_left_out_is_off():
    assert read_policies(Configuration({}, "reconciler.yml")) == Policies()


def test_the_installation_keeps_house_by_kubelets_defaults():
    defaults = yaml.safe_load((ROOT / "roles/control_plane/defaults/main.yml").read_text())
    found = read(**defaults["control_plane_housekeeping"])
    assert (found.containers, found.images) == (ContainerPolicy(), ImagePolicy())
    assert {one.signal: one.text for one in found.thresholds} == {
        "memory.available": "100Mi",
        "nodefs.available": "10%",
        "nodefs.inodesFree": "5%",
    }
    assert found.reserved == {"memory+": str(100 * 2**20), "ephemeral-storage%": "10"}
    assert found == read(manifests=defaults["control_plane_housekeeping"]["manifests"])


@pytest.mark.parametrize(
    "given",
    [
        {"image_gc": {"high_percent": 80, "low_percent": 90}},
        {"image_gc": {"high_percent": 101}},
        {"container_gc": {"min_age_s": "long"}},
        {"container_gc": [1]},
        {"eviction_hard": {"memory": "1Gi"}},
        {"eviction_transition_s": True},
    ],
)
def test_what_cannot_be_is_refused(given):
    with pytest.raises(ConfigurationError):
        read(**given)
