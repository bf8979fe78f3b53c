"""Streams to containers: log, exec, attach, port-forward, for API servers over mutual TLS.

One thread runs one asyncio loop for all streams (listener.py). An API server has decided who may do what; it sends one
request a connection and then passes bytes both ways without looking at them, so what is spoken here is spoken with
kubectl itself: WebSocket (websocket.py) or SPDY/3.1 (spdy.py), Docker's own on the other side (dockerd.py). Every write
waits until its other end takes it, so a slow reader stops Docker, and nobody else: no stream holds more than some
hundred kilobytes.
"""
