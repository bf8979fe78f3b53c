"""Rules of a pod bridge: masquerade in our own nft table, and leave to pass Docker's FORWARD policy (DROP).

``table ip minik8s_pods`` has one chain per bridge. The two FORWARD rules go through iptables, because only a rule in
Docker's own chain hook can accept what its policy would drop. Every rule's comment tells whose it is, so it is found
and removed even when its bridge is gone. Each change is one transaction. Nothing is parsed further than into lines:
what nft and iptables print is compared with what they print for the wanted rules.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import subprocess

from ..core.faults import KeyFault

TABLE = "minik8s_pods"
IPV4, IPV6 = "ip", "ip6"
_IPTABLES = {IPV4: "iptables", IPV6: "ip6tables"}
WAIT_S = "5"
NAME_SHOWN = 63


def mark_of(node: str) -> str:
    """Return the comment that tells a rule is this node's; nft takes 128 characters, a node name has up to 253."""
    return "minik8s/" + (node if len(node) <= NAME_SHOWN else hashlib.sha256(node.encode()).hexdigest()[:16])


def masquerade_rule(node: str, cidr: str, cluster_cidr: str) -> str:
    """Return the rule as nft prints it: what leaves the cluster takes this node's address."""
    words = family_of(cidr)
    return f'{words} saddr {cidr} {words} daddr != {cluster_cidr} masquerade fully-random comment "{mark_of(node)}"'


def family_of(address: str) -> str:
    """Return nft's word for the family of an address or range."""
    return IPV6 if ":" in address else IPV4


def forward_rules(node: str, bridge: str) -> list[str]:
    """Return the FORWARD rules as ``iptables -S`` prints them."""
    comment = f"-m comment --comment {mark_of(node)}/{bridge} -j ACCEPT"
    return [f"-A FORWARD -o {bridge} {comment}", f"-A FORWARD -i {bridge} {comment}"]


def range_rules(node: str, bridge: str, cidr: str) -> list[str]:
    """Return FORWARD rules for a whole range of pods, whatever devices they have; kept under our bridge's name."""
    comment = f"-m comment --comment {mark_of(node)}/{bridge} -j ACCEPT"
    return [f"-A FORWARD -d {cidr} {comment}", f"-A FORWARD -s {cidr} {comment}"]


def parse_chains(text: str) -> dict[str, list[str]]:
    """Return the rules by chain from ``nft list table``."""
    found: dict[str, list[str]] = {}
    for name, body in re.findall(r"^\tchain (\S+) \{\n(.*?)^\t\}", text, re.MULTILINE | re.DOTALL):
        found[name] = [line.strip() for line in body.splitlines() if line.strip()]
    return found


_PRIORITIES = {"raw": -300, "mangle": -150, "dstnat": -100, "filter": 0, "security": 50, "srcnat": 100}
_PRIORITY = re.compile(rf"(?<= priority )(?:({'|'.join(_PRIORITIES)})\b)? ?([+-]? ?\d+)?(?=;)")


def in_numbers(line: str) -> str:
    """Return a chain's first line with its priority as a number, which nft of one version prints and another names."""
    return _PRIORITY.sub(
        lambda found: str(_PRIORITIES.get(found[1], 0) + int((found[2] or "0").replace(" ", ""))), line
    )


def hooked_chains(text: str) -> dict[str, list[str]]:
    """Return the rules by chain, and before them where it hangs, its priority a number."""
    return {
        name: [in_numbers(line) if line.startswith("type ") else line for line in lines]
        for name, lines in parse_chains(text).items()
    }


def parse_forward(node: str, text: str) -> dict[str, list[str]]:
    """Return the node's FORWARD rules by bridge from ``iptables -S FORWARD``."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        words = shlex.split(line)
        comment = words[words.index("--comment") + 1] if "--comment" in words else ""
        mark, _, bridge = comment.rpartition("/")
        if mark == mark_of(node):
            found.setdefault(bridge, []).append(shlex.join(words))
    return found


def chains_of(node: str, found: dict[str, list[str]]) -> list[str]:
    """Return the chains that hold a rule of this node."""
    ending = f'comment "{mark_of(node)}"'
    return [name for name, rules in found.items() if any(rule.endswith(ending) for rule in rules)]


def _run(argv: list[str], text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, input=text, capture_output=True, text=True, check=False)


def _must(argv: list[str], text: str) -> None:
    done = _run(argv, text)
    if done.returncode != 0:
        raise KeyFault("NetworkNotReady", f"{' '.join(argv)}: {done.stderr.strip()[:300]}")


def chains(family: str = IPV4) -> dict[str, list[str]]:
    """Return the rules of our table of a family by chain; {} when there is none.

    Raises:
        KeyFault: NetworkNotReady, nft is not installed.
    """
    if not shutil.which("nft"):
        raise KeyFault("NetworkNotReady", "the command nft is not installed on this node (package nftables)")
    done = _run(["nft", "list", "table", family, TABLE])
    return parse_chains(done.stdout) if done.returncode == 0 else {}


HOOK = "type nat hook postrouting priority srcnat; policy accept;"


def set_chain(bridge: str, rule: str, family: str = IPV4) -> None:
    """Make the bridge's chain hold exactly ``rule``, in one transaction."""
    chain = f"{family} {TABLE} {bridge}"
    lines = [
        f"add table {family} {TABLE}",
        f"add chain {chain} {{ {HOOK} }}",
        f"flush chain {chain}",
        f"add rule {chain} {rule}",
    ]
    _must(["nft", "-f", "-"], "\n".join(lines) + "\n")


def delete_chain(bridge: str, *, last: bool, family: str = IPV4) -> None:
    """Delete the bridge's chain, with the table when it is the last one."""
    line = f"delete table {family} {TABLE}" if last else f"delete chain {family} {TABLE} {bridge}"
    _must(["nft", "-f", "-"], line + "\n")


def forwards(node: str, family: str = IPV4) -> dict[str, list[str]] | None:
    """Return the node's FORWARD rules by bridge; None on a node without iptables, where nothing drops."""
    if not shutil.which(_IPTABLES[family]):
        return None
    return parse_forward(node, _run([_IPTABLES[family], "-w", WAIT_S, "-S", "FORWARD"]).stdout)


def set_forwards(present: list[str], wanted: list[str], family: str = IPV4) -> None:
    """Replace our rules of one bridge in one transaction; the wanted ones go on top."""
    gone = [rule.replace("-A FORWARD", "-D FORWARD", 1) for rule in present]
    new = [rule.replace("-A FORWARD", "-I FORWARD 1", 1) for rule in reversed(wanted)]
    _must(
        [f"{_IPTABLES[family]}-restore", "-w", WAIT_S, "--noflush"], "\n".join(["*filter", *gone, *new, "COMMIT", ""])
    )
