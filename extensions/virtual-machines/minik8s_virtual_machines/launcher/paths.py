"""Where things are in the pod; ``pods/`` mounts them there. KubeVirt's names where it has one."""

from __future__ import annotations

from pathlib import Path

ENVIRONMENT = "STANDALONE_VMI"
USER = 107
"""User and group of the machine: KubeVirt's, and Debian's qemu."""
RUN = Path("/var/run/kubevirt")
"""Sockets, and the memory file of a User-Mode Linux: a tmpfs."""
IMAGES = Path("/var/run/kubevirt-ephemeral-disks")
"""Images that live as long as the pod."""
VOLUMES = Path("/var/run/kubevirt-private/vmi-disks")
"""Claims and folders of the node, one folder a volume."""
SOURCES = Path("/var/run/kubevirt-private/sources")
"""ConfigMaps, Secrets and user data that become disks, one folder a volume."""
KERNEL = IMAGES / "kernel-boot"
"""The kernel and initrd of ``firmware.kernelBoot``."""
NETWORK = RUN / "network.json"
SOCKET = RUN / "launcher.sock"
TERMINATION = Path("/dev/termination-log")
UML = Path("/bin/linux.uml")
UML_REBOOTED = Path("/usr/lib/uml/rebooted")
QEMU = Path("/bin/qemu-system-x86_64")
KVM = Path("/dev/kvm")
