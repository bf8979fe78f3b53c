"""What people are told of the chains that services share, and who may come by them."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.services import ipvs_rules, nftables_elements
from minik8s_modules.module_utils.minik8s.services.guards import guard_chain, jump_to
from minik8s_modules.module_utils.minik8s.services.nftables_elements import GUARDED, pick_chain, picking


@pytest.mark.parametrize(
    ("chain", "words"),
    [
        (pick_chain("count", 3, 0, b"web"), "1 of 3 endpoints"),
        (pick_chain("port", 12, 600, b"web"), "1 of 12 endpoints, the same for 600 s"),
        (pick_chain("keep", 1, 0, b"web"), "1 of 1 endpoints, whose clients keep their address"),
        (pick_chain("near", 2, 0, b"web"), "1 of 2 endpoints, for clients in the cluster"),
        ("somebody_elses", "somebody_elses"),
        ("count_00003; drop", "count_00003; drop"),
    ],
)
def test_a_chain_is_told_by_what_it_does(chain: str, words: str) -> None:
    assert picking(chain) == words


@pytest.mark.parametrize("sources", [[], ["192.0.2.0/24"], None])
@pytest.mark.parametrize("mode", [ipvs_rules, nftables_elements])
def test_who_may_come_is_guarded_also_where_no_range_is_of_the_family(mode: Any, sources: list[str] | None) -> None:
    entry = {
        "protocol": "TCP", "address": "100.0.0.1", "port": 80, "endpoints": [["10.0.0.1", 80]],
        "outside": ["203.0.113.7"], "at_nodes": True,
    }  # fmt: skip
    rules = mode.rules_of(entry | ({} if sources is None else {"sources": sources}), "192.0.2.1")
    found = [rule.value for rule in rules if rule.table == GUARDED]
    assert found == ([] if sources is None else [jump_to(guard_chain(sources))] * 2)
