"""Launchers' pods on a real node, with guests that really boot."""
