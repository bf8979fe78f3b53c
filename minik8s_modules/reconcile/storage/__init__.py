"""Volumes of a pod as entries of its node's document, projected sources and image pull secrets. Pure."""
