"""Names by which a Node tells of devices that it counts (``minik8s_devices``). Pure."""

COUNTED = "minik8s.io/devices"
"""The annotation with the resources that are its reconciler's to count."""
MISSING = "minik8s.io/DevicesMissing"
"""The condition of a node that lacks devices which its setting names."""
