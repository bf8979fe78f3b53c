"""Connections before there is a request: TLS and headers in the event loop, whole bodies, limits, turns, charging."""
