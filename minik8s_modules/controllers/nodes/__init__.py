"""Nodes that come, fall silent and go: their ranges of pod addresses, taints, eviction, leftover objects."""
