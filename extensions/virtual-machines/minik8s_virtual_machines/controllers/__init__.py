"""VirtualMachine → VirtualMachineInstance → the launcher's pod.

``machines`` decides on a VirtualMachine, ``instances`` on an instance (with ``conditions``), ``replicas`` on a set of
them: pure. ``shells`` has them take turns with the API; ``asking`` looks into running pods.
"""
