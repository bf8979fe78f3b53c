"""A node with a reconciler of its own (``minik8s reconciler --node``): join, run three daemons as children, leave.

``startup`` tells the whole; ``joining`` and ``leaving`` are its ends, ``agent`` keeps what lies between.
"""
