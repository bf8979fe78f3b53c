"""A slow link: a token bucket at both ends of a node's cable, with what the kernels have of tbf and htb.

The far end (bridge to node) is the host kernel's; the near end (node to bridge) is the node's own. Each is one ``tc``
in the right network namespace; the first queueing discipline that the kernel knows is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.lab.errors import LabError, LabUnsupported

# A bucket of one timer tick at the highest rate that makes sense here (100 Mbit/s x 4 ms), well over one packet.
BURST_BYTES = 50_000
LATENCY_MS = 400
# What tc says where the kernel has no such discipline: iproute2's own words, and the kernel's.
UNKNOWN = ("Specified qdisc kind is unknown", "Specified qdisc not found", "No such file or directory")


Tc = Callable[[Sequence[str]], object]


def disciplines(device: str, rate_kbit: int) -> dict[str, list[list[str]]]:
    """Return, by name and in order of preference, the ``tc`` arguments that limit what leaves through ``device``."""
    rate = f"{rate_kbit}kbit"
    tbf = ["qdisc", "replace", "dev", device, "root", "tbf", "rate", rate]
    return {
        "tbf": [[*tbf, "burst", str(BURST_BYTES), "latency", f"{LATENCY_MS}ms"]],
        "htb": [
            ["qdisc", "replace", "dev", device, "root", "handle", "1:", "htb", "default", "1"],
            ["class", "replace", "dev", device, "parent", "1:", "classid", "1:1", "htb", "rate", rate],
        ],
    }


def clear(device: str) -> list[str]:
    """Return the ``tc`` arguments that make the device as fast as it was."""
    return ["qdisc", "del", "dev", device, "root"]


def limit(tc: Tc, device: str, rate_kbit: int, whose: str) -> str:
    """Limit a device by the first discipline its kernel has, and return that one's name.

    Args:
        tc: Runs ``tc`` with these arguments where the device is; raises LabError with tc's words.
        device: Name of the device.
        rate_kbit: The rate, in 1000 bits a second.
        whose: Whose kernel that is, for the message.

    Raises:
        LabUnsupported: The kernel has none of them.
    """
    known = disciplines(device, rate_kbit)
    for name, lines in known.items():
        try:
            for line in lines:
                tc(line)
        except LabError as error:
            if not any(words in str(error) for words in UNKNOWN):
                raise
            continue
        return name
    raise LabUnsupported(f"a slow link needs one of {', '.join(known)}; {whose} has none of them")
