"""Chooses a node for each pod and binds it."""
