"""What ``modprobe`` in a native node finds: the modules that the host's kernel has built in, by its configuration."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

CONFIGURATION = Path("/proc/config.gz")
# The names differ from the options' too often to derive them; these are what containers and services ask for.
MODULES = {
    "BRIDGE": "bridge",
    "BRIDGE_NETFILTER": "br_netfilter",
    "DUMMY": "dummy",
    "IP_SET": "ip_set",
    "IP_VS": "ip_vs",
    "IP_VS_RR": "ip_vs_rr",
    "MACVLAN": "macvlan",
    "NETFILTER_XT_MATCH_IPVS": "xt_ipvs",
    "NETFILTER_XT_MATCH_OWNER": "xt_owner",
    "NETFILTER_XT_MATCH_STATISTIC": "xt_statistic",
    "NETFILTER_XT_TARGET_REDIRECT": "xt_REDIRECT",
    "NFSD": "nfsd",
    "NFS_FS": "nfs",
    "NF_CONNTRACK": "nf_conntrack",
    "NF_NAT": "nf_nat",
    "NF_TABLES": "nf_tables",
    "OVERLAY_FS": "overlay",
    "TUN": "tun",
    "VETH": "veth",
    "VXLAN": "vxlan",
}


def builtin(configuration: str) -> str:
    """Return the text of modules.builtin (depmod's input) for a kernel's configuration."""
    options = set(configuration.split())
    return "".join(f"kernel/{name}.ko\n" for option, name in MODULES.items() if f"CONFIG_{option}=y" in options)


def write(folder: Path) -> None:
    """Write the files for the running kernel below ``folder``; none where it does not tell its configuration."""
    own = folder / os.uname().release
    own.mkdir(parents=True, exist_ok=True)
    text = gzip.decompress(CONFIGURATION.read_bytes()).decode() if CONFIGURATION.exists() else ""
    (own / "modules.builtin").write_text(builtin(text), encoding="ascii")
    (own / "modules.order").touch()
