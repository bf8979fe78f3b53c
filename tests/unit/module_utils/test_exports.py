"""What a machine exports: only to machines, only what is ours, and nothing that exports(5) reads as something else."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.install.exports import (
    FILE,
    HEADER,
    Export,
    ObservedExports,
    Step,
    export_of,
    plan,
    render,
)
from minik8s_modules.module_utils.minik8s.volumes.exported import pairs_of

SHOP = Export("/srv/shop", ("192.0.2.10", "192.0.2.11"), ("rw", "sync"))
TEXT = HEADER + "/srv/shop 192.0.2.10(rw,sync) 192.0.2.11(rw,sync)\n"
ACTIVE = frozenset({("/srv/shop", "192.0.2.10"), ("/srv/shop", "192.0.2.11")})
OTHERS = ("/home", "*")


def test_the_file_names_each_machine() -> None:
    assert render([SHOP]) == TEXT
    assert render([]) == ""


def test_the_kernels_table_is_read() -> None:
    text = "# x\n/srv/shop\t192.0.2.10(rw,sync,wdelay)\n/home\t*(ro)\n\n"
    assert pairs_of(text) == {("/srv/shop", "192.0.2.10"), OTHERS}


@pytest.mark.parametrize(
    ("wanted", "seen", "steps"),
    [
        (
            [SHOP],
            ObservedExports("", frozenset({OTHERS}), frozenset({"/srv/shop"})),
            [Step("make", "/srv/shop"), Step("write", FILE), Step("export", "all")],
        ),
        ([SHOP], ObservedExports(TEXT, ACTIVE | {OTHERS}, frozenset()), []),
        ([SHOP], ObservedExports(TEXT, frozenset(), frozenset()), [Step("export", "all")]),
        ([SHOP], ObservedExports(TEXT + "/etc *(rw)\n", ACTIVE | {("/etc", "*")}, frozenset()), [
            Step("write", FILE), Step("export", "all"), Step("unexport", "*:/etc"),
        ]),
        (
            [SHOP._replace(clients=("192.0.2.10",))],
            ObservedExports(TEXT, ACTIVE, frozenset()),
            [Step("write", FILE), Step("export", "all"), Step("unexport", "192.0.2.11:/srv/shop")],
        ),
        (
            [],
            ObservedExports(TEXT, ACTIVE | {OTHERS}, frozenset()),
            [Step("remove", FILE), *(Step("unexport", f"192.0.2.{n}:/srv/shop") for n in (10, 11))],
        ),
        ([], ObservedExports("", frozenset({OTHERS}), frozenset()), []),
    ],
    ids=["new", "as declared", "unexported by hand", "added by hand", "a machine less", "taken back", "never ours"],
)  # fmt: skip
def test_a_plan_leads_to_what_is_declared_and_touches_no_export_of_others(
    wanted: list[Export], seen: ObservedExports, steps: list[Step]
) -> None:
    assert plan(wanted, seen) == steps


@pytest.mark.parametrize(
    "change",
    [
        {"path": "srv"},
        {"path": "/"},
        {"path": "/srv/../etc"},
        {"path": "/srv/a b"},
        {"path": "/srv\n/etc *(rw)"},
        {"path": '/srv"'},
        {"path": "/srv\0"},
        {"path": "/srv#"},
        {"clients": []},
        {"clients": ["*"]},
        {"clients": ["192.0.2.0/24"]},
        {"clients": ["@group"]},
        {"clients": ["a(rw)"]},
        {"clients": ["a\n/etc"]},
        {"options": ["rw)", "x"]},
        {"options": ["rw,sync\n"]},
        {"options": ["{{ x }}"]},
    ],
    ids=str,
)
def test_what_would_be_read_as_something_else_is_refused(change: dict[str, Any]) -> None:
    good = {"path": "/srv/shop", "clients": ["node-1", "192.0.2.10", "2001:db8::1"], "options": ["rw", "anonuid=65534"]}
    assert export_of(good).path == "/srv/shop"
    with pytest.raises(KeyFault):
        export_of({**good, **change})
