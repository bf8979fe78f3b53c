"""``minik8s-streams``: the process that parses what containers and clients of streams send, and may do nothing else.

Its user is not in Docker's group and has no sudo rights. It serves API servers over mutual TLS (listener.py), and reads
their requests (requests.py), WebSocket (websocket.py), SPDY/3.1 (spdy.py), Docker's frames (frames.py) and the answers
to probes (answers.py). A request that an API server has signed goes to the gateway over a named socket (asking.py,
passing.py); back comes the one connection that the request is about, as a file descriptor. So no byte of a stream is
copied a second time, and nothing that is parsed here reaches Docker, ssh or sudo.

One thread runs one asyncio loop for all streams. Every write waits until its other end takes it, so a slow reader stops
Docker, and nobody else: no stream holds more than some hundred kilobytes.
"""
