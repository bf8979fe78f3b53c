"""What people are told of the chains that services share."""

from __future__ import annotations

import pytest

from minik8s_modules.module_utils.minik8s.services.nftables_elements import pick_chain, picking


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
