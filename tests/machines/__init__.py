"""Clusters on lab machines."""
