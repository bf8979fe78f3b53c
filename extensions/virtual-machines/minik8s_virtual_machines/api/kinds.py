"""The kinds of ``kubevirt.io/v1`` that are served, with KubeVirt's names."""

from __future__ import annotations

from minik8s_modules.api.kind import Kind

GROUP, VERSION = "kubevirt.io", "v1"
SUBRESOURCES = "subresources.kubevirt.io"
_TYPES = "io.kubevirt.v1."

VM = Kind(
    GROUP, VERSION, "VirtualMachine", "virtualmachines", f"{_TYPES}VirtualMachine",
    short_names=("vm", "vms"), categories=("all",), subresources=("status",),
)  # fmt: skip
VMI = Kind(
    GROUP, VERSION, "VirtualMachineInstance", "virtualmachineinstances", f"{_TYPES}VirtualMachineInstance",
    short_names=("vmi", "vmis"), categories=("all",), subresources=("status",),
)  # fmt: skip
REPLICA_SET = Kind(
    GROUP, VERSION, "VirtualMachineInstanceReplicaSet", "virtualmachineinstancereplicasets",
    f"{_TYPES}VirtualMachineInstanceReplicaSet",
    short_names=("vmirs", "vmirss"), categories=("all",), subresources=("status", "scale"),
)  # fmt: skip
MIGRATION = Kind(
    GROUP, VERSION, "VirtualMachineInstanceMigration", "virtualmachineinstancemigrations",
    f"{_TYPES}VirtualMachineInstanceMigration",
    short_names=("vmim", "vmims"), categories=("all",), subresources=("status",),
)  # fmt: skip
KINDS = (VM, VMI, REPLICA_SET, MIGRATION)

VM_FINALIZER = "kubevirt.io/virtualMachineControllerFinalize"
VMI_FINALIZER = "foregroundDeleteVirtualMachine"

FINAL = frozenset({"Succeeded", "Failed"})
"""Phases of an instance that no other follows."""
