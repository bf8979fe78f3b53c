"""Rules of policies that are no longer needed, with real packets: when they go, and whose drift they are."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.loop.drifts import Realized
from minik8s_modules.reconcile.loop.section_changes import Request, full
from tests.integration.policies.policed import NAMED, X_A, A, Policed, entries, policy


def test_packets_pass_the_chains_of_a_direction_only_where_it_isolates_a_pod(policed: Policed) -> None:
    both = {direction: {direction, f"ipvs_{direction}"} for direction in ("ingress", "egress")}

    def passed() -> set[str]:
        return {name for names in both.values() for name in names if f"chain {name} {{" in policed.rules()}

    wall, door = policy("x", "wall", A, policyTypes=["Ingress"]), policy("x", "door", A, policyTypes=["Egress"])
    known, wanted = entries([wall]), entries([wall, door])
    policed.converge(entries=known)
    assert passed() == both["ingress"]
    assert policed.reached()["x-a", "y-a", 8080]
    upsert = {key: one for key, one in wanted.items() if known.get(key) != one}
    policed.converge(mode="delta", base=policed.digest, upsert=upsert, delete=[])
    assert passed() == both["ingress"] | both["egress"]
    assert not policed.reached()["x-a", "y-a", 8080]
    assert not policed.converge(entries=wanted)["changed"]
    policed.policies([door])
    assert passed() == both["egress"]
    reached = policed.reached()
    assert (reached["x-a", "y-a", 8080], reached["y-a", "x-a", 8080]) == (False, True)


def test_what_a_delta_leaves_of_policies_is_no_drift_and_what_somebody_adds_is(policed: Policed) -> None:
    wall = policy("x", "wall", A, ingress=[{"from": [X_A], "ports": NAMED[0]["ports"]}], egress=[])
    stays = policy("y", policyTypes=["Ingress"])
    wanted, known, realized = entries([stays]), entries([wall, stays]), Realized()

    def told(entries: JsonObject) -> dict[str, str]:
        planned = policed.converge(entries=entries, check=True)
        done = policed.converge(entries=entries)
        assert done["steps"] == planned["steps"]
        assert not policed.converge(entries=entries)["changed"]
        return {one.key: one.what for one in realized.take("policies", full(entries), done, datetime.now(UTC))}

    assert told(known) == {}
    touched = frozenset(key for key in known if wanted.get(key) != known[key])
    upsert, delete = {key: wanted[key] for key in touched if key in wanted}, sorted(touched - set(wanted))
    result = policed.converge(mode="delta", base=policed.digest, upsert=upsert, delete=delete)
    assert realized.take("policies", Request({}, wanted, touched), result, datetime.now(UTC)) == []
    left = policed.rules()
    for name in ("chain egress {", "chain ipvs_egress {", "chain pods/egress/", "set ports/tcp/serve-81 {"):
        assert name in left
    policed.shell(shlex.split("nft add chain ip minik8s_policies theirs"))
    policed.shell(shlex.split("nft add rule ip minik8s_policies ipvs_egress counter"))
    assert told(wanted).keys() == {"theirs", "ipvs_egress"}
    assert "egress" not in policed.rules().replace("map egress_of", "")
