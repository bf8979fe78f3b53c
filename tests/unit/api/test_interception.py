"""Annotations that leave connections out of the mesh: what they mean, and what is refused with its place."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.pods.interception import (
    INBOUND_PORTS,
    MOST,
    OUTBOUND_PORTS,
    OUTBOUND_RANGES,
    Excluded,
    causes,
    excluded,
)


def pod(**annotations: str) -> dict[str, Any]:
    keys = {"inbound": INBOUND_PORTS, "outbound": OUTBOUND_PORTS, "ranges": OUTBOUND_RANGES}
    return {"metadata": {"annotations": {keys[name]: value for name, value in annotations.items()}}}


def test_lists_are_read_once_each_and_in_order():
    found = pod(inbound=" 8080,22 , 22", outbound="", ranges="192.0.2.1,10.0.0.0/8,192.0.2.1/32")
    assert list(causes(("", "Pod"), found)) == []
    assert excluded(found) == Excluded((22, 8080), (), ("10.0.0.0/8", "192.0.2.1/32"))


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("inbound", "0", "'0' is no port"),
        ("inbound", "65536", "'65536' is no port"),
        ("inbound", "22,", "'' is no port"),
        ("inbound", "22;23", "'22;23' is no port"),
        ("outbound", "http", "'http' is no port"),
        ("outbound", "٢٢", "is no port"),
        ("outbound", "9" * 5000, "is no port"),
        ("outbound", ",".join(["1"] * (MOST + 1)), "at most 100"),
        ("ranges", "10.0.0.0/33", "is not a range"),
        ("ranges", "10.0.0.1/8", "is not a range"),
        ("ranges", "10.0.0.0/255.0.0.0", "must be written 10.0.0.0/8"),
        ("ranges", "::/0", "is not a range"),
        ("ranges", "10.0.0.0/8\n-A OUTPUT -j DROP", "is not a range"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place_and_leaves_out_nothing(name: str, value: str, why: str):
    (found,) = causes(("", "Pod"), pod(**{name: value}))
    assert why in found.message
    assert found.field.startswith("metadata.annotations[minik8s.io/exclude-")
    template = {"spec": {"template": pod(**{name: value})}}
    (found,) = causes(("apps", "Deployment"), template)
    assert found.field.startswith("spec.template.metadata.annotations[")


def test_static_pods_with_a_wrong_one_leave_out_what_can_be_read():
    assert excluded(pod(inbound="22,x,70000", ranges="x")) == Excluded((22,), (), ())
