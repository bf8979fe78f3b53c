"""What services ask of a node's kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from minik8s_modules.module_utils.minik8s.network import switches
from minik8s_modules.module_utils.minik8s.services.services_host import follows_sctp


@pytest.mark.parametrize(
    ("known", "follows"),
    [
        ([], True),  # connections are followed once there is a table
        (["nf_conntrack_max"], False),
        (["nf_conntrack_max", "nf_conntrack_sctp_timeout_established"], True),
    ],
)
def test_sctp_is_translated_where_connections_of_it_are_followed(
    known: list[str],
    *,
    follows: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "netfilter").mkdir()
    for name in known:
        (tmp_path / "netfilter" / name).write_text("1\n", encoding="ascii")
    monkeypatch.setattr(switches, "SYSCTL", f"{tmp_path}/")  # this machine has one kernel
    assert follows_sctp() == follows
