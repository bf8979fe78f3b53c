"""Which lines of the stock programs are about something of ours; each was copied from one."""

from __future__ import annotations

import itertools

import pytest

from minik8s_modules.reconcile.watching.reading import NO_INOTIFYWAIT, Places, Said, gone_link, sections_of

PLACES = Places(b"mk8s0", b"/var/lib/minik8s", b"/run/minik8s", b"mk8s-vx0")
LINKS, RULES, NOTHING = {"network", "sandboxes"}, {"network", "sandboxes", "services"}, set[str]()


@pytest.mark.parametrize(
    ("line", "sections"),
    [
        ("[LINK]Deleted 12: mk8s-1a2b3c4d@if11: <BROADCAST,MULTICAST> mtu 1500 qdisc noop master mk8s0", LINKS),
        ("[LINK]12: mk8s0: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 qdisc noqueue state DOWN", LINKS),
        ("[ADDR]Deleted 12: mk8s0    inet 10.244.0.1/24 scope global mk8s0", LINKS),
        ("[ROUTE]Deleted 10.244.1.0/24 via 192.0.2.7 dev mk8s-vx0 proto static", LINKS),
        ("[ADDR]13: mk8s-1a2b3c4d    inet6 fe80::2cef:44ff:feb9:8305/64 scope link ", NOTHING),
        ("[ADDR]Deleted 13: mk8s-1a2b3c4d    inet6 fe80::2cef:44ff:feb9:8305/64 scope link ", NOTHING),
        ("[ADDR]13: mk8s-1a2b3c4d    inet6 fd00:10::9/64 scope global ", LINKS),
        ("[ADDR]13: mk8s-1a2b3c4d    inet 10.244.0.9/24 scope global ", LINKS),
        ("[ADDR]12: mk8s0    inet6 fe80::1/64 scope link ", LINKS),
        ("[ROUTE]local fe80::2cef:44ff:feb9:8305 dev mk8s-1a2b3c4d table local proto kernel metric 0", NOTHING),
        ("[ROUTE]Deleted multicast ff00::/8 dev mk8s-1a2b3c4d table local proto kernel metric 256", NOTHING),
        ("[ROUTE]Deleted fe80::/64 dev mk8s-1a2b3c4d proto kernel metric 256 pref medium", NOTHING),
        ("[ROUTE]fd00:10::/64 dev mk8s-1a2b3c4d metric 1024 pref medium", LINKS),
        ("[ROUTE]fe80::/64 dev mk8s-vx0 proto kernel metric 256 pref medium", LINKS),
        ("[LINK]13: veth51f7@if12: <BROADCAST,MULTICAST,UP> mtu 1500 master docker0", NOTHING),
        ("[LINK]Deleted 14: minik8s-dummy: <BROADCAST,NOARP> mtu 1500", {"services"}),
        ("[LINK]Deleted 11: mk8s0: <BROADCAST,MULTICAST> mtu 1500 state DOWN", LINKS | {"policies", "services"}),
        ("[NEIGH]Deleted 192.0.2.7 dev mk8s-vx0 lladdr 02:00:00:00:00:01 NOARP PERMANENT ", {"network"}),
        ("[NEIGH]192.0.2.8 dev mk8s-vx0 lladdr 02:00:00:00:00:01 NOARP PERMANENT ", {"network"}),
        ("[NEIGH]10.244.1.0 dev mk8s-vx0 lladdr 02:00:00:00:00:02 PERMANENT ", {"network"}),
        ("[NEIGH]fd00:10:244:77::5 dev mk8s-vx0 FAILED ", NOTHING),
        ("[NEIGH]Deleted fd00:10:244:77::5 dev mk8s-vx0 FAILED ", NOTHING),
        ("[NEIGH]Deleted 10.244.1.0 dev mk8s-vx0 FAILED ", NOTHING),
        ("[NEIGH]10.244.1.0 dev mk8s-vx0 lladdr 02:00:00:00:00:02 REACHABLE ", {"network"}),
        ("[NEIGH]Deleted ff02::16 dev mk8s-vx0 lladdr 33:33:00:00:00:16 NOARP ", NOTHING),
        ("[NEIGH]fd00:10::7 dev mk8s0 lladdr 02:00:00:00:00:02 PERMANENT ", {"sandboxes"}),
        ("[NEIGH]fd00:10::7 dev mk8s0 FAILED ", NOTHING),
        ("[NEIGH]Deleted fd00:10::7 dev mk8s0 FAILED ", NOTHING),
        ("[NEIGH]Deleted dev mk8s0 lladdr 82:fb:38:1a:87:76 PERMANENT ", NOTHING),
        ("[NEIGH]10.244.0.7 dev mk8s0 lladdr 02:00:00:00:00:01 REACHABLE ", NOTHING),
        ("[NEIGH]dev mk8s-1a2b3c4d lladdr 02:00:00:00:00:01 REACHABLE ", NOTHING),
        ("delete table ip minik8s_mk8s0", RULES),
        ("delete table ip minik8s_policies", {"policies"}),
        ("delete element ip minik8s_policies_mk8s0 ingress_of { 10.244.0.7 }", {"policies"}),
        ("delete table inet minik8s_tunnels", {"network"}),
        ("add element inet minik8s_tunnels_mk8t-vx0 peers { 2001:db8::7 }", {"network"}),
        ("delete element ip minik8s_ports_1a2b3c4d tcp_any { 80 : 10.244.0.7 . 8080 }", {"sandboxes"}),
        ("delete chain ip6 minik8s_names_1a2b3c4d prerouting", {"dns"}),
        ('add element bridge minik8s_sources own { "mk8s-1a2b3c4d" . 10.244.0.7 }', NOTHING),
        ('delete element bridge minik8s_sources_mk8s0 links { "mk8s-1a2b3c4d" }', {"sandboxes"}),
        ("add table bridge minik8s_sources { flags dormant; }", {"sandboxes"}),
        (
            "add chain bridge minik8s_sources arriving { type filter hook prerouting priority 0; policy accept; }",
            {"sandboxes"},
        ),
        ("insert rule bridge minik8s_sources arriving accept", {"sandboxes"}),
        ("delete rule bridge minik8s_sources_mk8s0 arriving handle 4", {"sandboxes"}),
        ("delete chain bridge minik8s_sources arriving", {"sandboxes"}),
        ("delete table bridge minik8s_sources", {"sandboxes"}),
        ("add rule ip minik8s_pods mk8s0 ip saddr 10.244.0.0/24 counter accept", RULES),
        ("delete element ip minik8s_mk8s0 services { 100.0.0.7 . tcp . 80 }", RULES),
        ("delete rule ip filter FORWARD handle 17", RULES),
        ("add rule ip filter FORWARD ip saddr 198.51.100.1 counter drop", NOTHING),
        ("delete rule ip nat DOCKER handle 3", NOTHING),
        ("# new generation 8590 by process 4849 (nft)", NOTHING),
        ("# new generation 8591 by process 4850 (mk8s0)", NOTHING),
        ("[FILE]/var/lib/minik8s/nginx/hosts/web.example.conf", {"ingress"}),
        ("[FILE]/var/lib/minik8s/nginx/nginx.conf", {"ingress"}),
        ("[FILE]/var/lib/minik8s/nginx/nginx.pid", NOTHING),
        ("[FILE]/var/lib/minik8s/dns/cluster.zone", {"dns"}),
        ("[FILE]/var/lib/minik8s/pods/u/volumes/conf/..data/a b", {"volumes"}),
        ("[FILE]/run/minik8s/secrets/.volumes/u/token/..data/token", {"volumes"}),
        ("[FILE]/run/minik8s/secrets/shop/key/tls.key", {"secrets", "volumes"}),
        ("[FILE]/var/lib/minik8s-else/dns/x", NOTHING),
        (NO_INOTIFYWAIT.decode(), NOTHING),
        ("umount /run/minik8s/secrets", {"secrets", "volumes"}),
        ("remount /var/lib/minik8s/pods/u/volumes/cache", {"volumes"}),
        ("mount /var/lib/docker/overlay2/1/merged", NOTHING),
        ("", NOTHING),
    ],
)
def test_only_what_bears_a_name_of_ours_counts(line, sections):
    assert sections_of(f"{line}\n".encode(), PLACES) == sections


@pytest.mark.parametrize(
    ("device", "gone", "section"),
    [
        ("mk8s0", "fd00:10::7", "sandboxes"),
        ("mk8s-vx0", "fd00:10:244:1::", "network"),
        ("mk8s-vx0", "10.244.1.0", "network"),
    ],
)
def test_a_neighbour_counts_when_somebody_deletes_it_and_not_when_an_address_does_not_answer(device, gone, section):
    line = f"[NEIGH]Deleted {gone} dev {device} FAILED \n".encode()
    assert sections_of(line, PLACES, Said(f"[NEIGH]{gone} dev {device} FAILED \n".encode())) == {section}
    assert sections_of(line, PLACES, Said(f"[NEIGH]fd00:10::8 dev {device} FAILED \n".encode())) == NOTHING
    assert sections_of(line, PLACES, Said(line)) == NOTHING


GENERATION = b"# new generation 8592 by process 4851 (nft)\n"
OWN, OWN_IPV6, DEVICE = (
    f"add element bridge minik8s_sources_mk8s0 {each} }}\n".encode()
    for each in (
        'own { "mk8s-1a2b3c4d" . 10.244.0.9',
        'own_ipv6 { "mk8s-1a2b3c4d" . fd00:10::9',
        'links { "mk8s-1a2b3c4d"',
    )
)


@pytest.mark.parametrize(
    ("transaction", "sections"),
    [
        ([OWN], {"sandboxes"}),
        ([OWN_IPV6], {"sandboxes"}),
        ([OWN, OWN_IPV6], {"sandboxes"}),
        ([OWN, b"add rule ip filter FORWARD counter accept\n"], {"sandboxes"}),
        ([DEVICE, OWN], {"sandboxes"}),
        ([OWN, DEVICE], NOTHING),
        ([OWN, OWN_IPV6, DEVICE], NOTHING),
        ([DEVICE], NOTHING),
    ],
)
def test_an_address_that_comes_without_its_device_is_not_ours(transaction, sections):
    for others in ([], [b"[LINK]13: veth51f7@if12: <UP> mtu 1500\n"], [b"mount /var/lib/docker/overlay2/1/merged\n"]):
        lines = [
            DEVICE,
            GENERATION,
            *(each for line in transaction for each in (line, *others)),
            GENERATION,
            GENERATION,
        ]
        *before, _ = itertools.accumulate(lines, Said.then, initial=Said())
        found = [sections_of(line, PLACES, said) for said, line in zip(before, lines, strict=True)]
        assert set().union(*found) == sections
        assert not found[-1], "it is told once"


@pytest.mark.parametrize(
    ("line", "link"),
    [
        ("[LINK]Deleted 12: mk8s-1a2b3c4d@if11: <BROADCAST,MULTICAST> mtu 1500 master mk8s0", "mk8s-1a2b3c4d"),
        ("[LINK]Deleted 12: mk8s-1a2b3c4d: <BROADCAST,MULTICAST> mtu 1500", "mk8s-1a2b3c4d"),
        ("[LINK]12: mk8s-1a2b3c4d@if11: <BROADCAST,MULTICAST> mtu 1500 master mk8s0", ""),
        ("[LINK]Deleted 12: mk8s0: <BROADCAST,MULTICAST> mtu 1500", ""),
        ("[LINK]Deleted 13: veth51f7@mk8s-1: <BROADCAST,MULTICAST,UP> mtu 1500", ""),
        ("[LINK]Deleted ", ""),
    ],
)
def test_a_pods_link_that_is_gone_is_told_by_its_name(line, link):
    assert gone_link(f"{line}\n".encode()) == link
