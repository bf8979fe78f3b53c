"""Nodes as the cluster sees them: their registration, conditions and taints, and which reconcile themselves."""
