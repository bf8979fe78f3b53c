"""Sandboxes and containers of pods, in Docker.

Two sections, in this order: ``sandboxes`` (the pause container with network, cgroup and files of a pod) and
``containers``. Each has a planner without input or output (``sandbox_plan``, ``container_plan``), and
``container_spec`` translates an entry into the body that Docker's API takes.
"""
