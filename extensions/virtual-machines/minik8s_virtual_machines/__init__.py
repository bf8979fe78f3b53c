"""KubeVirt's objects and client on minik8s: an extension, of which nothing lives in the core.

    api/          kinds, their schemas, defaults and rules: pure
    pods/         the launcher's pod of a VirtualMachineInstance: pure
    controllers/  VirtualMachine → VirtualMachineInstance → pod: deciders, and shells of a few lines
    server/       one HTTPS server: admission webhooks, and the API group subresources.kubevirt.io by aggregation
    launcher/     what runs in the pod's container ``compute``

``main.py`` is the daemon of the control side. How to use it: ``docs/how-to/virtual-machines.md``.
"""

__version__ = "1.0"
# what `virtctl version` and clients compare with their own: whose API this is
KUBEVIRT_VERSION = "v1.4.0"
