"""VirtualMachineInstance → the pod that runs it. Pure.

settings.py    what the administrator says
resources.py   memory with what the machine needs beside the guest's, counted devices
volumes.py     disks' volumes, the copies out of container images, Secrets of user data
pod.py         the whole
"""

from minik8s_virtual_machines.pods.pod import launcher_pod, refused
from minik8s_virtual_machines.pods.settings import Settings
from minik8s_virtual_machines.pods.volumes import secrets as launcher_secrets

__all__ = ["Settings", "launcher_pod", "launcher_secrets", "refused"]
