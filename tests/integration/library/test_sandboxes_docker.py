"""Sandboxes on real Docker and netlink: made, compared with the kernel, healed, removed; others never touched."""

from __future__ import annotations

import pytest

from minik8s_modules.module_utils.minik8s.core import labels
from minik8s_modules.module_utils.minik8s.network import sources
from minik8s_modules.module_utils.minik8s.network.attachment import link_name
from minik8s_modules.module_utils.minik8s.network.nftables_wire import NEW_CHAIN, commit, named
from minik8s_modules.module_utils.minik8s.network.wire import CREATE, NETFILTER, Wire, message, text
from tests.support.node import TestNode, assert_answers, command


def test_a_sandbox_has_its_address_names_and_dns(node: TestNode) -> None:
    sandboxes, containers = node.start_pod(7)
    seen = node.run("sandboxes", sandboxes)
    assert not seen["changed"]
    (uid, pod), (key, _) = next(iter(sandboxes.items())), next(iter(containers.items()))
    assert seen["status"][uid]["ip"] == pod["ip"]
    assert seen["status"][uid]["state"] == "running"
    app = node.run("containers", containers)["status"][key]["id"]
    assert pod["ip"] in node.execute(app, "cat", "/etc/hosts")
    assert node.execute(app, "hostname").strip() == "pod-7"
    assert "options ndots:5" in node.execute(app, "cat", "/etc/resolv.conf")
    assert f"default via {pod['gateway']}" in node.execute(app, "ip", "route")


@pytest.mark.parametrize(
    "harm",
    [
        ["ip", "link", "del", "LINK"],
        ["ip", "link", "set", "LINK", "down"],
        ["ip", "link", "set", "LINK", "nomaster"],
        ["ip", "link", "set", "LINK", "mtu", "1300"],
        ["nsenter", "-t", "PID", "-n", "ip", "link", "del", "eth0"],
        ["nsenter", "-t", "PID", "-n", "ip", "addr", "flush", "dev", "eth0"],
        ["nsenter", "-t", "PID", "-n", "ip", "addr", "add", "10.9.9.9/24", "dev", "eth0"],
        ["nsenter", "-t", "PID", "-n", "ip", "route", "del", "default"],
        ["nsenter", "-t", "PID", "-n", "ip", "link", "set", "eth0", "down"],
        ["nsenter", "-t", "PID", "-n", "ip", "link", "set", "lo", "down"],
    ],
)
def test_drift_of_a_pods_network_is_seen_and_healed(node: TestNode, harm: list[str]) -> None:
    assert not node.run("network", node.network())["errors"]
    pod = node.pod(7)
    uid = pod["pod"]["uid"]
    pause = node.run("sandboxes", {uid: pod})["status"][uid]["id"]
    found = node.docker.inspect(pause)
    assert found is not None
    words = {"LINK": link_name(uid), "PID": str(found["State"]["Pid"])}
    command(*[words.get(word, word) for word in harm])
    planned = node.run("sandboxes", {uid: pod}, check=True)
    assert [step["action"] for step in planned["steps"]] == ["attach"]
    assert planned["diff"]["before"] != planned["diff"]["after"]
    healed = node.run("sandboxes", {uid: pod})
    assert healed["steps"] == planned["steps"]
    assert not healed["errors"]
    assert healed["status"][uid]["id"] == pause
    assert not node.run("sandboxes", {uid: pod})["changed"]
    assert_answers(pod["ip"])


def test_what_is_not_declared_goes_and_other_nodes_stay(node: TestNode) -> None:
    node.run("network", node.network())
    pods = {pod["pod"]["uid"]: pod for pod in (node.pod(7), node.pod(8))}
    node.run("sandboxes", pods)
    other = node.docker.create("", {"Image": "minik8s/pause:1", "Labels": {labels.NODE: node.name + "-other"}})
    plain = node.docker.create("", {"Image": "minik8s/pause:1"})
    try:
        result = node.run("sandboxes", {})
        assert sorted(step["action"] for step in result["steps"]) == ["remove_pod", "remove_pod"]
        assert node.ids() == []
        assert node.links() == {node.bridge}
        assert node.docker.inspect(other)
        assert node.docker.inspect(plain)
    finally:
        node.docker.remove(other)
        node.docker.remove(plain)


def test_check_mode_tells_the_same_steps_and_changes_nothing(node: TestNode) -> None:
    node.run("network", node.network())
    pod = node.pod(7)
    entries = {pod["pod"]["uid"]: pod}
    before = node.traces()
    planned = node.run("sandboxes", entries, check=True)
    assert node.traces() == before
    done = node.run("sandboxes", entries)
    assert (planned["steps"], planned["diff"]) == (done["steps"], done["diff"])


def test_the_next_attempt_replaces_a_dead_pause_container(node: TestNode) -> None:
    sandboxes, _ = node.start_pod(7)
    uid = next(iter(sandboxes))
    node.docker.kill(node.ids(labels.SANDBOX)[0], "SIGKILL")
    left_alone = node.run("sandboxes", sandboxes)
    assert not left_alone["changed"]
    assert left_alone["status"][uid]["state"] == "exited"
    sandboxes[uid]["attempt"] = 1
    result = node.run("sandboxes", sandboxes)
    assert [step["action"] for step in result["steps"]] == ["remove", "create"]
    assert result["status"][uid]["attempt"] == 1
    assert len(node.ids(labels.SANDBOX)) == 1


def test_a_host_network_sandbox_has_no_link(node: TestNode) -> None:
    pod = node.pod(7, host_network=True)
    result = node.run("sandboxes", {pod["pod"]["uid"]: pod})
    assert not result["errors"]
    assert node.links() == set()
    assert not node.run("sandboxes", {pod["pod"]["uid"]: pod})["changed"]


def test_a_missing_bridge_is_that_pods_error_and_heals_later(node: TestNode) -> None:
    pod = node.pod(7)
    entries = {pod["pod"]["uid"]: pod}
    failed = node.run("sandboxes", entries)
    assert failed["errors"][pod["pod"]["uid"]]["reason"] == "NetworkNotReady"
    node.run("network", node.network())
    healed = node.run("sandboxes", entries)
    assert [step["action"] for step in healed["steps"]] == ["attach"]
    assert healed["status"][pod["pod"]["uid"]]["ip"] == pod["ip"]


def test_one_pods_error_does_not_stop_the_others(node: TestNode) -> None:
    node.run("network", node.network())
    good, absent, wrong = node.pod(7), node.pod(8, image="minik8s/absent:1"), node.pod(9, colour="red")
    result = node.run("sandboxes", {pod["pod"]["uid"]: pod for pod in (good, absent, wrong)})
    reasons = {key: error["reason"] for key, error in result["errors"].items()}
    assert reasons == {absent["pod"]["uid"]: "ImageMissing", wrong["pod"]["uid"]: "InvalidEntry"}
    assert result["status"][good["pod"]["uid"]]["state"] == "running"


def test_a_delta_looks_at_its_keys_only(node: TestNode) -> None:
    node.run("network", node.network())
    first, second = node.pod(7), node.pod(8)
    base = node.run("sandboxes", {first["pod"]["uid"]: first})["digest"]
    command("ip", "link", "del", link_name(first["pod"]["uid"]))
    result = node.run("sandboxes", mode="delta", base=base, upsert={second["pod"]["uid"]: second}, delete=[])
    assert [step["key"] for step in result["steps"]] == [second["pod"]["uid"]]
    assert set(result["status"]) == {second["pod"]["uid"]}
    assert node.run("sandboxes", mode="delta", base=base, upsert={}, delete=[])["base_mismatch"]
    gone = node.run("sandboxes", mode="delta", base=result["digest"], delete=[first["pod"]["uid"]])
    assert gone["status"] == {first["pod"]["uid"]: None}
    assert len(node.ids()) == 1


def test_an_older_token_is_fenced_off(node: TestNode) -> None:
    pod = node.pod(7, host_network=True)
    assert not node.run("sandboxes", {}, token=[2, 10])["fenced"]
    result = node.run("sandboxes", {pod["pod"]["uid"]: pod}, token=[2, 9])
    assert result["fenced"]
    assert not result["changed"]
    assert node.ids() == []
    assert not node.run("sandboxes", {}, token=[3, 1])["fenced"]
    assert node.run("sandboxes", {}, token=[2, 11])["fenced"]


def test_a_pod_sends_as_itself_alone_and_its_place_in_the_rules_goes_with_it(node: TestNode) -> None:
    pod = node.pod(7)
    uid, bridge = pod["pod"]["uid"], node.bridge
    assert not node.run("network", node.network())["errors"]
    assert not node.run("sandboxes", {uid: pod})["errors"]
    pair = sources.Pair(link_name(uid), pod["ip"])
    whole = sources.Guard(frozenset({pair}), len(sources.RULES), len(sources.RULES_IPV6) + len(sources.PASSING))
    assert sources.found(bridge) == whole
    assert not node.run("sandboxes", {uid: pod})["changed"]
    chains = [["flush", "chain", "bridge", sources.table_of(bridge), name] for name in ("arriving", "arriving_ipv6")]
    for harm in (*chains, ["delete", "table", "bridge"]):
        command("nft", *harm, *([sources.table_of(bridge)] if harm[0] == "delete" else []))
        assert [step["action"] for step in node.run("sandboxes", {uid: pod})["steps"]] == ["guard"], harm
        assert sources.found(bridge) == whole
    command("nft", f'add element bridge {sources.table_of(bridge)} own {{ "{pair.device}" . 10.244.0.99 }}')
    assert [step["action"] for step in node.run("sandboxes", {uid: pod})["steps"]] == ["guard"]
    assert sources.found(bridge) == whole
    with Wire(NETFILTER) as wire:  # nft takes no such name, and so deletes no such chain
        commit(wire, [message(NEW_CHAIN, CREATE, named(f"bridge {sources.table_of(bridge)}") + text(3, "drop"))])
    for _ in range(2):
        assert node.run("sandboxes", {uid: pod})["errors"][uid]["reason"] == "NetworkNotReady"
        assert sources.found(bridge) == whole
    command("nft", "delete", "table", "bridge", sources.table_of(bridge))
    assert not node.run("sandboxes", {uid: pod})["errors"]
    assert sources.found(bridge) == whole
    node.run("sandboxes", {})
    assert sources.found(bridge) == whole._replace(pairs=frozenset())
    node.run("network", {})
    assert sources.found(bridge) == sources.Guard()


def test_rules_are_written_once_and_again_where_somebody_changed_them(
    node: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = list[str]()
    write = sources._nft

    def writing(text: str) -> bool:
        written.append(text)
        return write(text)

    monkeypatch.setattr(sources, "_nft", writing)
    pods = {pod["pod"]["uid"]: pod for pod in map(node.pod, (7, 8, 9))}
    node.run("network", node.network())
    first, second, _ = pods
    table = ["bridge", sources.table_of(node.bridge)]
    assert node.run("sandboxes", {first: pods[first]})["changed"]
    rules = command("nft", "-s", "list", "table", *table)
    assert node.run("sandboxes", {first: pods[first], second: pods[second]})["changed"]
    assert len(written) == 1
    guard = sources.found(node.bridge)
    assert guard is not None
    assert guard.pairs == {sources.Pair(link_name(uid), pods[uid]["ip"]) for uid in (first, second)}
    assert not node.run("sandboxes", {uid: pods[uid] for uid in (first, second)})["changed"]
    # it has as many rules that drop as before
    command("nft", "insert", "rule", *table, "arriving", "accept")
    assert sources.found(node.bridge) == guard
    planned = node.run("sandboxes", pods, check=True)
    assert [step["action"] for step in planned["steps"]] == ["guard", "guard", "create"]
    assert node.run("sandboxes", pods)["steps"] == planned["steps"]
    assert len(written) == 2
    assert not node.run("sandboxes", pods)["changed"]
    chains = rules[rules.index("chain arriving") :]
    assert command("nft", "-s", "list", "table", *table).endswith(chains)
    node.run("sandboxes", {})
    assert len(written) == 2
    assert sources.found(node.bridge) == guard._replace(pairs=frozenset())
