"""The kernel's switches that pods' IPv6 addresses need, and how these were before: whoever turns them gives them back.

What a switch was is recorded in ``<state_dir>/ipv6-switches.json`` before it is turned for the first time, and holds
until it is given back. Meanwhile somebody else may have turned it: only what still is as we left it goes back.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping

from ..core.faults import KeyFault
from ..core.files import read_json, remove_file, write_atomically
from .switches import SYSCTL, read_switch, set_switch

RECORD = "ipv6-switches.json"
FORWARDING = "ipv6/conf/all/forwarding"
_ACCEPTS, _ACCEPTS_THOUGH_FORWARDING = "1", "2"  # accept_ra of Linux' ip-sysctl
_NAME = re.compile(r"ipv6/conf/(?!\.\.?/)[^/\s]+/(?:forwarding|accept_ra)")


def recorded(state_dir: str) -> dict[str, str]:
    """Return what the switches were that we have turned, by their name below ``net/``."""
    found = read_json(os.path.join(state_dir, RECORD))
    rows = found.items() if isinstance(found, dict) else ()
    return {name: was for name, was in rows if isinstance(was, str) and was.isdigit() and _NAME.fullmatch(name)}


def forward(state_dir: str, bridge: str) -> None:
    """Forward; who takes its own way out from a router's advertisements goes on doing so."""
    listening = [name for name in _devices(bridge) if read_switch(_accepting(name)) == _ACCEPTS]
    was = {_accepting(name): _ACCEPTS for name in listening}
    if read_switch(FORWARDING) == "0":
        # the switch of all turns those of each device, too: some were on by themselves
        own = (f"ipv6/conf/{name}/forwarding" for name in ["default", "lo", *_devices(bridge)])
        was |= {FORWARDING: "0", **{name: "1" for name in own if read_switch(name) == "1"}}
    if new := {**was, **recorded(state_dir)}:
        write_atomically(os.path.join(state_dir, RECORD), json.dumps(new, sort_keys=True).encode(), sync=True)
    for name in listening:
        with contextlib.suppress(KeyFault):  # it is gone
            set_switch(_accepting(name), _ACCEPTS_THOUGH_FORWARDING)
    set_switch(FORWARDING, "1")


def give_back(state_dir: str) -> None:
    """Turn the switches back, that of all first, and forget what they were."""
    known = recorded(state_dir)
    for name in sorted(known, key=lambda one: one != FORWARDING):
        ours = _ACCEPTS_THOUGH_FORWARDING if name.endswith("/accept_ra") else "1"
        with contextlib.suppress(KeyFault):  # it is gone
            if known[name] == "1" and name.endswith("/forwarding"):
                set_switch(name, "1")
            elif read_switch(name) == ours:
                set_switch(name, known[name])
    remove_file(os.path.join(state_dir, RECORD))


def shown(known: Mapping[str, str]) -> str:
    """Return what is to be turned back, in words of sysctl."""
    names = ((name.split("/"), was) for name, was in sorted(known.items()))
    return "; ".join(f"net.{'.'.join(name)}={was}" for name, was in names)


def _accepting(device: str) -> str:
    return f"ipv6/conf/{device}/accept_ra"


def _devices(bridge: str) -> list[str]:
    devices = os.listdir(f"{SYSCTL}ipv6/conf") if os.path.isdir(f"{SYSCTL}ipv6/conf") else []
    return [name for name in devices if name not in {"all", "default", "lo", bridge} and not name.startswith("mk8")]
