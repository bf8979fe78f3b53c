"""What several rooms decide about nodes: which pods they may have, their address ranges, and how they leave.

The scheduler and the DaemonSet controller ask ``node_affinity`` first and ``taints`` second.
"""
